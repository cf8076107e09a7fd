//! What it costs to share limits with other hosts: leases from Redis against counting alone, and the same after Redis has died.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{
    client::RedisBenchmark,
    entrant::{Entrant, compare},
    field::{BUSY_API, Field, Protocol},
    wire::KEY,
};
use crate::{
    comparison::{Comparison, Unit},
    interrupt::Interrupt,
    progress,
    rounds::Pace,
    targets::{OURS, OURS_LEASE},
};

/// Commands at a time: enough to see the engine and not the wire alone.
const DEPTH: u32 = 16;
/// A user's first question goes to the store, always, and so do all of those that are near their limit; what is compared is the rest. Time for
/// one of every user, on a slow machine.
const WARM_UP: Duration = Duration::from_secs(10);

pub(super) fn measure(field: &mut Field, pace: Pace, interrupt: &Interrupt) -> Result<Vec<Comparison>> {
    // Two that are nearly alike, on a machine that may be shared: many short rounds say more than few long ones.
    let pace = Pace { rounds: 3 * pace.rounds, round: pace.round / 2 };
    let Some(mut store) = field.admit("leases", Field::store) else { return Ok(Vec::new()) };
    let url = format!("redis://127.0.0.1:{}", store.port);
    let alone = field.admit("ratelimit alone", |field| field.limiter(Protocol::Resp, None));
    let shared = field.admit("ratelimit with leases", |field| field.limiter(Protocol::Resp, Some(&url)));
    let (cpu, question) = (field.client_cpu, ["CHECK", KEY, BUSY_API]);
    let entrants = |title| -> Vec<Entrant<'_>> {
        [(OURS_LEASE, title, &shared), (OURS, "ratelimit alone", &alone)]
            .into_iter()
            .filter_map(|(name, title, running)| {
                let mut client = RedisBenchmark::new(cpu, running.as_ref()?.port, DEPTH, &question);
                Some(Entrant::new(name, title, move |round| client.run(round)))
            })
            .collect()
    };
    let unit = Unit::DecisionsPerSecond;
    let title = format!(
        "Leases from Redis (redis-benchmark -c 50 -P 16, CHECK; {} rounds of {} s)",
        pace.rounds,
        pace.round.as_secs_f64()
    );
    let with_store = Comparison::new("lease", &title, unit);
    let mut first = entrants("ratelimit with leases");
    progress::show("Leases from Redis, one for every user");
    let begun = Instant::now();
    while let Some(leased) = first.first_mut().filter(|_| begun.elapsed() < WARM_UP) {
        leased.take_turn(Duration::from_secs(1))?;
        interrupt.check()?;
    }
    let with_store = compare(with_store, first, pace, interrupt, &mut field.notes)?;
    store.server.kill();
    let without = Comparison::new("lease-killed", "The same after Redis was killed", unit);
    let without =
        compare(without, entrants("ratelimit whose Redis is dead"), pace, interrupt, &mut field.notes)?;
    Ok(vec![with_store, without])
}
