//! Decisions within one process: no wire, two threads that share the table.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use governor::{Quota, RateLimiter};
use ratelimit_user::{
    clock::Clock,
    config,
    requests::{self, Engine},
};

use super::{
    client::KEYS,
    entrant::{Entrant, compare},
    field::Field,
    policy::{self, PACKETS},
};
use crate::{
    comparison::{Comparison, Sample, Unit},
    interrupt::Interrupt,
    place,
    rounds::Pace,
    targets::OURS,
};

/// Of each user, and its burst: far above what one of them gets of all that two threads can ask.
const PER_SECOND: u32 = 10_000;
const API: &str = "bench";
/// Decisions between two looks at the time.
const BATCH: u64 = 1_024;

pub(super) fn measure(field: &mut Field, pace: Pace, interrupt: &Interrupt) -> Result<Comparison> {
    let users: Vec<String> = (0..KEYS).map(|n| format!("user-{n}")).collect();
    let cpus = [field.client_cpu, field.server_cpu];
    let governor = RateLimiter::dashmap(Quota::per_second(PER_SECOND.try_into()?));
    let governor = Entrant::new("governor", "governor, keyed", |round| {
        decide(cpus, round, || |user: usize| governor.check_key(&users[user]).is_ok())
    });
    let limit = format!("{PER_SECOND}/s burst {PER_SECOND}");
    let text = [PACKETS, &policy::api(API, &limit, "token-bucket")].concat();
    let policy = config::parse(&text, "policy.toml").map_err(|error| anyhow!("{error}"))?.policy;
    let clock = Clock::start();
    let engine = Engine::new(&policy, clock.now_us());
    let ours = Entrant::new(OURS, "ratelimit, the engine", |round| {
        decide(cpus, round, || {
            let mut engine = engine.handle();
            let (clock, users) = (&clock, &users);
            move |user: usize| {
                let now_us = clock.now_us();
                let decided = engine.decide(&requests::Request::new(&users[user], API), now_us);
                decided.is_ok_and(|decision| decision.outcome.is_served())
            }
        })
    });
    let comparison = Comparison::new("library", "In one process, two threads", Unit::DecisionsPerSecond);
    compare(comparison, vec![ours, governor], pace, interrupt, &mut field.notes)
}

/// Decides about random users on all these CPUs at once, each by what it is given at the start.
fn decide<D: FnMut(usize) -> bool>(
    cpus: [usize; 2],
    round: Duration,
    begin: impl Fn() -> D + Sync,
) -> Result<Sample> {
    let alone = |cpu: usize| -> Result<f64> {
        place::pin(None, cpu)?;
        let mut is_allowed = begin();
        let mut random = fastrand::Rng::with_seed(cpu as u64);
        let (begun, mut decided, mut refused) = (Instant::now(), 0, 0_u64);
        while begun.elapsed() < round {
            for _ in 0..BATCH {
                refused += u64::from(!is_allowed(random.usize(..KEYS)));
            }
            decided += BATCH;
        }
        let took = begun.elapsed();
        ensure!(refused == 0, "{refused} of {decided} requests were refused that conform");
        Ok(decided as f64 / took.as_secs_f64())
    };
    let rates = thread::scope(|scope| {
        let threads = cpus.map(|cpu| scope.spawn(move || alone(cpu)));
        threads.map(|one| one.join().map_err(|_| anyhow!("a thread of the benchmark panicked"))?)
    });
    let mut value = 0.0;
    for rate in rates {
        value += rate?;
    }
    Ok(Sample { value, beside: None })
}
