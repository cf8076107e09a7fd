//! Changing the policy of a running host: diff, apply, confirm, rollback, SIGHUP, limit set --save, and what is refused.

mod apply;
mod lockout;
mod save;
mod wait;

use std::fs;

use aya::maps::{Array, ArrayOfMaps, Map, MapData};
use ratelimit_common::abi::{self, names};
use ratelimit_tests::daemon::Edge;
use ratelimit_user::dataplane::pin::{Layout, PinDir};

/// A policy of one limit.
fn packets(per_second: u64) -> String {
    format!("[source]\nlimits = [\"{per_second} packets/s\"]\n")
}

/// Another policy file beside the daemon's own.
fn file(edge: &Edge, name: &str, text: &str) -> String {
    let path = edge.dir().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// What the daemon says is in force.
fn in_force(edge: &Edge) -> u64 {
    edge.json(&["limit", "get", "source.packets"])["amount"].as_u64().unwrap()
}

/// What the kernel enforces, whether a daemon runs or not.
fn in_kernel(edge: &Edge) -> u64 {
    let pinned = PinDir::new(edge.pin()).map(Layout::current(262_144), names::POLICY);
    let map = Map::ArrayOfMaps(MapData::from_pin(pinned).unwrap());
    let policies: ArrayOfMaps<MapData, Array<MapData, abi::Policy>> = map.try_into().unwrap();
    let policy = policies.get(&0, 0).unwrap().get(&0, 0).unwrap();
    // The price of a packet is rounded up, so the rate comes out below what was asked for.
    256_000_000_000_u64.div_ceil(policy.source.set.limits[0].cost_fp)
}

fn is_waiting(edge: &Edge) -> bool {
    !edge.json(&["status"])["unconfirmed"].is_null()
}
