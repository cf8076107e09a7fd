//! A limit that holds on all hosts together: real daemons, real floods, a real store, and everything that can happen to it.
//!
//! What the receivers got is counted. One test at a time: each of them has several floods on a machine with few cores.

mod blocks;
mod bounds;
mod costs;
mod failures;
mod many;
mod stores;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ratelimit_tests::redis::Redis;

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server through its socket, which every network namespace can reach.
fn through_socket(redis: &Redis) -> String {
    format!("redis+unix://{}", redis.socket().display())
}
