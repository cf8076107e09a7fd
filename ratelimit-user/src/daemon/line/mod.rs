//! The line between the daemon and the front process: messages, the streams that carry them, and the questions of the daemon.

pub(super) mod asking;
pub(super) mod frame;
pub(super) mod front;
pub(super) mod message;
mod post;
pub(super) mod requests;
pub(super) mod store;
