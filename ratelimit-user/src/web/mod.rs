//! The dashboard: the page that browsers show, what it is told once a second, and what it may ask and order.
//!
//! ```text
//! daemon --picture a second, while somebody looks--> gallery --stream--> page
//! page --explain, lists, orders--> gallery --> daemon
//! ```
//! The [`gallery`] is all that the listener knows of the daemon, and the daemon of the listener. `serve/check/dashboard.rs` is the translation from
//! and to HTTP; nothing here opens a socket.

pub mod asset;
pub mod decisions;
pub mod gallery;
pub mod guard;
pub mod metrics_source;
pub mod order;
pub mod order_queues;
pub mod picture;
