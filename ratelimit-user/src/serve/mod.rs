//! The edges that answer somebody: thin translations, no decisions.

pub mod control;
pub mod http;
pub mod protocol;
