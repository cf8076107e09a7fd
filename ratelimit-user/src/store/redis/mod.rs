//! Redis as the store that hosts share: 6.2 or newer; one server, a master that Sentinels know, or a Redis Cluster.
//!
//! ```text
//! StoreAddress -> dial -> connection -> Link::run(calls) -> one answer per call
//! ```
//!
//! Nothing here waits without a deadline, and nothing here sends a call twice unless the server has said that it did not run it (`NOSCRIPT`,
//! `MOVED`, `ASK`, `TRYAGAIN`): the crate's own reconnecting and cluster clients repeat by themselves after a connection is lost, so only
//! its protocol and its multiplexed connection are used. A call that timed out, or whose connection was lost, may have run, and **may still
//! run later**, even after calls that were sent later over a new connection: scripts must know their own sequence numbers.

mod connection;
mod dial;
mod facts;
mod flight;
mod link;
mod password;
mod refusal;
mod routes;
mod script;
mod sentinel;
mod sentinel_watch;
mod slots;
mod store_error;
mod tls;
mod votes;

pub use self::{
    facts::{Role, ServerFacts},
    link::RedisLink,
    script::{Call, Script},
    slots::slot,
    store_error::StoreError,
};
/// What a script answers.
pub use ::redis::Value;
