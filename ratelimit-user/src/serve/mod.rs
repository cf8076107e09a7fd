//! The edges that answer somebody: thin translations, no decisions.

pub mod control;
mod feed;
pub mod http;
pub mod protocol;
