//! The engine with policies as they are written, and a clock of our own.

mod answers;
mod examples;
mod keys;
mod login;
mod logs;
mod margins;
mod on_limit;
mod refunds;
mod rules;

use std::net::IpAddr;

use super::{Decision, Engine, Outcome, Request};
use crate::{config, policy::Policy};

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;

/// The beginning of a day, in microseconds since 1970.
const START: u64 = 20_718 * 86_400 * SECOND;

/// Every request algorithm, by its name in a policy.
const ALGORITHMS: [&str; 6] = [
    "token-bucket",
    "leaky-bucket",
    "fixed-window",
    "sliding-window",
    "sliding-window-weighted",
    "sliding-log",
];

/// A policy with these tables for requests.
fn policy(requests: &str) -> Policy {
    let text = format!("[source]\nlimits = [\"1000 packets/s\"]\n{requests}");
    config::parse(&text, "test").unwrap_or_else(|error| panic!("{error}")).policy
}

/// An engine with a policy.
struct World {
    engine: Engine,
}

impl World {
    fn new(requests: &str) -> Self {
        Self { engine: Engine::new(&policy(requests), START) }
    }

    fn ask<R>(&self, request: &Request<'_>, now_us: u64, look: impl FnOnce(&Decision<'_>) -> R) -> R {
        let rules = self.engine.rules();
        look(&self.engine.decide(&rules, request, now_us).unwrap())
    }

    fn outcome(&self, request: &Request<'_>, now_us: u64) -> Outcome {
        self.ask(request, now_us, |decision| decision.outcome)
    }

    fn serves(&self, request: &Request<'_>, now_us: u64) -> bool {
        self.outcome(request, now_us).is_served()
    }

    /// Returns how many of `asked` requests are served at once.
    fn served(&self, request: &Request<'_>, now_us: u64, asked: usize) -> usize {
        (0..asked).filter(|_| self.serves(request, now_us)).count()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}
