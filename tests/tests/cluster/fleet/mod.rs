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

use ratelimit_tests::redis::{Redis, wait_for};

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server through its socket, which every network namespace can reach.
fn through_socket(redis: &Redis) -> String {
    format!("redis+unix://{}", redis.socket().display())
}

/// Makes a store out of a new one that has been there for a day: limits that fill slowly are full. A new one cannot be told from one that was
/// emptied, so it takes everything for spent when it begins.
fn season(redis: &Redis) {
    season_cluster(redis, "ratelimit");
}

/// Makes the store of the cluster of this name an old one, which is not cold any more.
fn season_cluster(redis: &Redis, name: &str) {
    const DAY_US: u64 = 86_400_000_000;
    let text = |value: redis::Value| match value {
        redis::Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    };
    let key = format!("{name}:3:since");
    let since = wait_for("a store that was used", || text(redis.ask(&["GET", &key])));
    let mut words = since.split(' ').map(str::to_owned).collect::<Vec<_>>();
    words[1] = (words[1].parse::<u64>().expect("a time") - DAY_US).to_string();
    redis.ask(&["SET", &key, &words.join(" ")]);
}
