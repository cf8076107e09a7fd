//! Where all protocols ask: one engine, one clock, one set of counters. Nothing here knows a protocol.

use std::sync::{
    RwLock,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    decide::{
        BadRequest, Decision, Engine, Outcome, Request, clock::Clock, meter::Bucket, throttle::Throttled,
    },
    policy::{Listen, Policy, Prefix},
};

/// Whether a question counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// It does.
    Counted,
    /// Somebody wants to know.
    Peeking,
}

/// Answers for every protocol.
#[derive(Debug)]
pub struct Desk {
    engine: Engine,
    clock: Clock,
    access: RwLock<Access>,
    counts: RwLock<Counts>,
}

/// Whom listeners believe.
#[derive(Debug, Default)]
struct Access {
    trusted_proxies: Vec<Prefix>,
}

/// Decisions by API and outcome.
#[derive(Debug, Default)]
struct Counts {
    apis: Vec<(String, [AtomicU64; Outcome::NAMES.len()])>,
}

impl Desk {
    /// A desk for a policy.
    pub fn new(policy: &Policy) -> Self {
        let clock = Clock::start();
        let desk = Self {
            engine: Engine::new(policy, clock.now_us()),
            clock,
            access: RwLock::default(),
            counts: RwLock::default(),
        };
        desk.settle(policy);
        desk
    }

    /// Follows a policy.
    pub fn follow(&self, policy: &Policy) {
        self.engine.follow(policy, self.clock.now_us());
        self.settle(policy);
    }

    fn settle(&self, policy: &Policy) {
        let Listen { trusted_proxies, .. } = policy.listen();
        if let Ok(mut access) = self.access.write() {
            access.trusted_proxies.clone_from(trusted_proxies);
        }
        let Ok(mut counts) = self.counts.write() else { return };
        let mut before = std::mem::take(&mut counts.apis);
        for name in self.engine.rules().api_names() {
            let kept = before.iter().position(|(known, _)| **known == *name);
            let row =
                kept.map_or_else(|| (name.to_string(), Default::default()), |at| before.swap_remove(at));
            counts.apis.push(row);
        }
    }

    /// Decides about a request, and hands the decision over. Nothing of it outlives that: rules may change any time.
    pub async fn check<R>(
        &self,
        request: &Request<'_>,
        asking: Asking,
        render: impl FnOnce(&Decision<'_>) -> R,
    ) -> Result<R, BadRequest> {
        let rules = self.engine.rules();
        let now_us = self.clock.now_us();
        let decision = match asking {
            Asking::Counted => self.engine.decide(&rules, request, now_us)?,
            Asking::Peeking => self.engine.peek(&rules, request, now_us)?,
        };
        if asking == Asking::Counted {
            self.count(rules.index_of(request.api), decision.outcome);
        }
        Ok(render(&decision))
    }

    /// Gives back what a request was charged; for a login: it succeeded.
    pub async fn refund(&self, request: &Request<'_>) -> Result<(), BadRequest> {
        self.engine.refund(&self.engine.rules(), request, self.clock.now_us())
    }

    /// Forgets what was counted under the keys of a request.
    pub async fn reset(&self, request: &Request<'_>) -> Result<(), BadRequest> {
        self.engine.reset(&self.engine.rules(), request)
    }

    /// Takes from a bucket that the caller describes.
    pub fn throttle(&self, key: &[u8], bucket: &Bucket, quantity: u64) -> Throttled {
        self.engine.throttle(key, bucket, quantity, self.clock.now_us())
    }

    /// Whether the word of this peer about the address of a caller counts.
    pub fn trusts(&self, peer: std::net::IpAddr) -> bool {
        let Ok(access) = self.access.read() else { return false };
        let peer = Prefix::masked(peer.to_canonical(), if peer.to_canonical().is_ipv4() { 32 } else { 128 });
        access.trusted_proxies.iter().any(|prefix| prefix.covers(&peer))
    }

    /// The engine, for whoever looks at it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Decisions so far: API, outcome, how many.
    pub fn decisions(&self) -> Vec<(String, &'static str, u64)> {
        let Ok(counts) = self.counts.read() else { return Vec::new() };
        let row = |(api, row): &(String, [AtomicU64; 5])| {
            let name = |at: usize| Outcome::NAMES[at];
            let counts = row.iter().map(|count| count.load(Ordering::Relaxed));
            counts.enumerate().map(|(at, count)| (api.clone(), name(at), count)).collect::<Vec<_>>()
        };
        counts.apis.iter().flat_map(row).collect()
    }

    fn count(&self, api: Option<usize>, outcome: Outcome) {
        let Ok(counts) = self.counts.read() else { return };
        if let Some((_, row)) = api.and_then(|api| counts.apis.get(api)) {
            row[outcome.index()].fetch_add(1, Ordering::Relaxed);
        }
    }
}
