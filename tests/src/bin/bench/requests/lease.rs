//! What it costs to share limits with other hosts: leases from Redis against counting alone, and the same after Redis has died.

use anyhow::Result;

use super::{
    client::RedisBenchmark,
    comparison::{Comparison, Unit},
    entrant::{Entrant, Pace, compare},
    field::{Field, MANY_USERS, Protocol},
    targets::{OURS, OURS_LEASE},
    wire::KEY,
};
use crate::interrupt::Interrupt;

/// Commands at a time: enough to see the engine and not the wire alone.
const DEPTH: u32 = 16;

pub(super) fn measure(field: &mut Field, pace: Pace, interrupt: &Interrupt) -> Result<Vec<Comparison>> {
    let redis = field.redis();
    let Some(mut redis) = field.admit("leases", redis) else { return Ok(Vec::new()) };
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let [alone, shared] = [None, Some(url.as_str())].map(|store| field.limiter(Protocol::Resp, store));
    let alone = field.admit("ratelimit alone", alone);
    let shared = field.admit("ratelimit with leases", shared);
    let (cpu, question) = (field.client_cpu, ["CHECK", KEY, MANY_USERS]);
    let entrants = |title| {
        [(OURS_LEASE, title, &shared), (OURS, "ratelimit alone", &alone)]
            .into_iter()
            .filter_map(|(name, title, running)| {
                let mut client = RedisBenchmark::new(cpu, running.as_ref()?.port, DEPTH, &question);
                Some(Entrant::new(name, title, move |round| client.run(round)))
            })
            .collect()
    };
    let unit = Unit::DecisionsPerSecond;
    let with_store = Comparison::new("lease", "Leases from Redis (redis-benchmark -c 50 -P 16, CHECK)", unit);
    let with_store =
        compare(with_store, entrants("ratelimit with leases"), pace, interrupt, &mut field.notes)?;
    redis.server.kill();
    let without = Comparison::new("lease-killed", "The same after Redis was killed", unit);
    let without =
        compare(without, entrants("ratelimit whose Redis is dead"), pace, interrupt, &mut field.notes)?;
    Ok(vec![with_store, without])
}
