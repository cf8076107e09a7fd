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
    facts::{Persistence, Role, ServerFacts},
    link::RedisLink,
    script::{Call, Script},
    slots::slot,
    store_error::StoreError,
};
use crate::policy::address::Endpoint;

/// Returns how many masters a reply names, read as the reply of a Sentinel that was asked for the master, and as the reply of a cluster node that was
/// asked for slots. Checks that the owners of slots are among the masters.
pub fn masters_in(reply: &Value) -> usize {
    let asked = Endpoint::Tcp { host: "asked".to_owned(), port: 1 };
    let named = usize::from(sentinel::place(reply).is_some());
    let Some(map) = slots::SlotMap::read(reply, &asked) else { return named };
    let masters = map.masters();
    for slot in [0, 1, slots::SLOTS / 2, slots::SLOTS - 1] {
        assert!(map.owner(slot).is_none_or(|owner| masters.contains(owner)), "slot {slot} of {map:?}");
    }
    named + masters.len()
}

/// The answer of a script.
pub use ::redis::Value;
