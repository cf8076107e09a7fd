//! The control socket: what is said there, who answers, and who asks.

pub mod admission;
pub mod client;
mod feed;
pub(crate) mod holder;
mod line;
pub mod protocol;
pub mod server;
