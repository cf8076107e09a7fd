//! Decisions that hosts make together: from leases where they last, by the store where they do not, and alone where it is gone.

use std::sync::Arc;

use super::{desk::Asking, renewals::Renewals, store::Store};
use crate::{
    cluster::inquiry::Inquiry,
    decide::{
        Decision, Engine, Mode, Outcome, Request, Rules,
        claims::Claims,
        clock::Clock,
        lease::Lease,
        leases::Leases,
        renewal,
        shared::{self, Step, Verdict, is_shared},
    },
};

/// When to ask again after a refusal that is due to the store being gone.
const TRY_AGAIN_US: u64 = 1_000_000;

/// What this host has in common with others.
#[derive(Debug)]
pub(super) struct Together {
    store: Store,
    leases: Arc<Leases>,
    renewals: Renewals,
    /// What keys in the store begin with.
    name: String,
}

impl Together {
    pub(super) fn new(store: Store, name: &str, keys: u64, clock: Clock) -> Self {
        let leases = Arc::new(Leases::new(keys));
        let renewals = Renewals::begin(&store, &leases, clock);
        Self { store, leases, renewals, name: name.to_owned() }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// The decision, if the store need not be asked or cannot be.
    pub(super) fn at_once<'r>(
        &self,
        engine: &Engine,
        rules: &'r Rules,
        claims: &Claims<'r>,
        request: &Request<'_>,
        asking: Asking,
        now_us: u64,
    ) -> Option<Decision<'r>> {
        // What this host counts for itself has to be looked at as well, after the store has said yes.
        if asking == Asking::Counted
            && claims.iter().all(is_shared)
            && let Step::Decided { decision, due } = shared::step(claims, request, &self.leases, now_us)
        {
            if due && self.store.is_up() {
                self.renew(claims, request, engine.headroom(), now_us);
            }
            return Some(decision);
        }
        (!self.store.is_up()).then(|| alone(engine, rules, claims, request, asking, now_us))
    }

    fn renew(&self, claims: &Claims<'_>, request: &Request<'_>, headroom: bool, now_us: u64) {
        for renewal in renewal::due(claims, request, &self.leases, &self.name, headroom, now_us) {
            self.renewals.push(renewal);
        }
    }

    /// The decision of the store, or of this host alone.
    pub(super) async fn decide<'r>(
        &self,
        engine: &Engine,
        clock: &Clock,
        rules: &'r Rules,
        claims: &Claims<'r>,
        request: &Request<'_>,
        asking: Asking,
    ) -> Decision<'r> {
        let (sent_us, headroom) = (clock.now_us(), engine.headroom());
        let peek = asking == Asking::Peeking;
        let asked: Arc<[Inquiry]> =
            shared::inquiries(claims, request, &self.leases, &self.name, headroom, peek, sent_us).into();
        let mut unanswered = Unanswered { claims, asked: &asked, leases: &self.leases, is_answered: false };
        let told = self.store.ask(Arc::clone(&asked)).await;
        unanswered.is_answered = told.is_ok();
        drop(unanswered);
        let now_us = clock.now_us();
        let Ok(told) = told else { return alone(engine, rules, claims, request, asking, now_us) };
        let Verdict { decision, undo } =
            shared::verdict(claims, &asked, &told, &self.leases, headroom, now_us);
        if !undo.is_empty() {
            self.store.tell(undo);
        }
        let local = claims.local();
        if !decision.outcome.is_served() || local.iter().next().is_none() {
            return decision;
        }
        let of_host = engine.judge(&local, request, now_us, asking.into());
        if of_host.outcome.is_served() {
            return decision;
        }
        if !peek {
            self.store.tell(shared::refunds(claims, request, &self.name, headroom));
        }
        of_host
    }

    pub(super) fn refund(&self, engine: &Engine, claims: &Claims<'_>, request: &Request<'_>) {
        let refunds = shared::refunds(claims, request, &self.name, engine.headroom());
        if !refunds.is_empty() {
            self.store.tell(refunds);
        }
    }

    pub(super) fn reset(&self, claims: &Claims<'_>, request: &Request<'_>) {
        for claim in claims.iter() {
            self.leases.with_known(claim.hash, Lease::forget);
        }
        let keys = shared::store_keys(claims, request, &self.name);
        if !keys.is_empty() {
            self.store.reset(keys);
        }
    }
}

/// Leases that the store is asked about. Whoever waits for it may hang up, and there is nobody then to take in an answer: it is as if there were
/// none, and the same is said again.
struct Unanswered<'d> {
    claims: &'d Claims<'d>,
    asked: &'d [Inquiry],
    leases: &'d Leases,
    is_answered: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            shared::failed(self.claims, self.asked, self.leases);
        }
    }
}

/// What this host decides when it cannot reach the store.
fn alone<'r>(
    engine: &Engine,
    rules: &'r Rules,
    claims: &Claims<'r>,
    request: &Request<'_>,
    asking: Asking,
    now_us: u64,
) -> Decision<'r> {
    match rules.alone(claims) {
        Some(claims) => engine.judge(&claims, request, now_us, Mode::from(asking)),
        None => Decision { outcome: Outcome::Refused { retry_us: Some(TRY_AGAIN_US) }, limit: None },
    }
}
