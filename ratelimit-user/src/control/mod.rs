//! The control socket: its orders and replies, its server and its client.

pub mod admission;
pub mod client;
mod feed;
pub(crate) mod holder;
mod line;
pub mod protocol;
pub mod server;
