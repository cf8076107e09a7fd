//! Decisions that hosts make together: from leases where they last, by the store where they do not, and alone where it is gone.

mod charging;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use self::charging::{ChargeRequest, Charged, contains};
use super::{
    Decision, Engine, JudgeMode, Nearest, Outcome, Request, Rules, Violated,
    asking::Asking,
    counter_keys::{CounterKey, CounterKeys},
    lease::RequestLease,
    leases::RequestLeases,
    renewal,
    renewals::Renewals,
    shared::{self, Step, Taking, fits, is_shared},
};
use crate::{
    clock::Clock,
    store::worker::{Full, Store, Unavailable},
};

/// Microseconds after which to ask again, if a refusal is due to the store being away.
const TRY_AGAIN_US: u64 = 1_000_000;
/// Pauses before a refusal is looked at again, and whether a refusal by that look is believed. Units that are given back were charged a round trip or two ago.
const PAUSES: [(Duration, bool); 2] = [(Duration::from_millis(5), false), (Duration::from_millis(15), true)];

/// The store, and the leases that this host holds.
#[derive(Debug)]
pub(super) struct Together {
    store: Store,
    leases: Arc<RequestLeases>,
    renewals: Renewals,
    /// The name of the cluster, which keys in the store begin with.
    name: String,
}

impl Together {
    pub(super) fn new(store: Store, name: &str, keys: u64, clock: Clock) -> Self {
        let leases = Arc::new(RequestLeases::new(keys));
        let renewals = Renewals::begin(&store, &leases, clock);
        Self { store, leases, renewals, name: name.to_owned() }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Decides without the store, if leases are enough or the store is away.
    pub(super) fn at_once<'r>(
        &self,
        engine: &Engine,
        rules: &'r Rules,
        counters: &CounterKeys<'r>,
        request: &Request<'_>,
        asking: Asking,
        now_us: u64,
    ) -> Option<Decision<'r>> {
        // Not for requests with counter keys of this host alone: they are looked at as well, after the store has said yes.
        if asking == Asking::Counted
            && counters.iter().all(is_shared)
            && let Step::Decided { decision, due } = shared::step(counters, request, &self.leases, now_us)
        {
            if due && self.store.is_up() {
                self.renew(counters, request, engine.headroom(), now_us);
            }
            return Some(decision);
        }
        (!self.store.is_up()).then(|| alone(engine, rules, counters, request, asking, now_us))
    }

    fn renew(&self, counters: &CounterKeys<'_>, request: &Request<'_>, headroom: bool, now_us: u64) {
        for renewal in renewal::due(counters, request, &self.leases, &self.name, headroom, now_us) {
            self.renewals.push(renewal);
        }
    }

    /// Decides by the store, or on this host alone if the store does not answer. A refusal by the store is looked at again before it is believed: it may be due
    /// to what another request was charged that gives it back at this moment.
    pub(super) async fn decide<'r>(
        &self,
        engine: &Engine,
        clock: &Clock,
        rules: &'r Rules,
        counters: &CounterKeys<'r>,
        request: &Request<'_>,
        asking: Asking,
    ) -> Decision<'r> {
        let own = counters.only(|counter| !is_shared(counter));
        let is_refused_here = own.iter().next().is_some()
            && !alone(engine, rules, &own, request, Asking::Peeking, clock.now_us()).outcome.is_served();
        let shared = counters.only(is_shared);
        let taking = match asking {
            // What this host refuses is charged nowhere. The store is asked all the same, so that all limits that refuse are named.
            _ if is_refused_here => Taking::Nothing,
            Asking::Peeking => Taking::Nothing,
            Asking::Counted => shared::ahead(counters, request),
            Asking::InBulk => Taking::Once,
        };
        let charging = ChargeRequest {
            store: &self.store,
            leases: &self.leases,
            clock,
            cluster: &self.name,
            headroom: engine.headroom(),
            counters: &shared,
            request,
            begun: Instant::now(),
            until: self.store.patience(),
        };
        let mut charged = match taking {
            Taking::Nothing => charging.look(false).await,
            Taking::Ahead | Taking::Once => charging.charge(taking).await,
        };
        for (pause, is_last) in PAUSES {
            if !charged.is_doubtful || is_refused_here || charging.is_late() {
                break;
            }
            tokio::time::sleep(pause).await;
            if let Some(decision) = self.at_once(engine, rules, counters, request, asking, clock.now_us()) {
                return decision;
            }
            charged = charging.look(is_last).await;
            if !charged.is_refused() && charged.decision.is_some() && taking != Taking::Nothing {
                charged = charging.charge_seen(taking, charged.unanswered).await;
            }
        }
        let Charged { decision, is_doubtful, refunds, unanswered } = charged;
        let rest = counters.only(|counter| !is_shared(counter) || contains(&unanswered, counter));
        let now_us = clock.now_us();
        let Some(decision) = decision else { return alone(engine, rules, &rest, request, asking, now_us) };
        let decision = if is_doubtful { decision.within(TRY_AGAIN_US) } else { decision };
        if rest.iter().next().is_none() {
            return decision;
        }
        if is_refused_here || !decision.outcome.is_served() {
            // Looks at the rest, too, so that all limits that refuse are named.
            return decision.and(alone(engine, rules, &rest, request, Asking::Peeking, now_us));
        }
        let of_host = alone(engine, rules, &rest, request, asking, now_us);
        if !of_host.outcome.is_served() && !refunds.is_empty() {
            self.store.tell(refunds);
        }
        decision.and(of_host)
    }

    /// Gives back what a request was charged `age_us` ago, where it was charged, and returns whether anything was given back. If the store is needed for
    /// that and does not answer, only what this host has charged without the store is given back.
    pub(super) async fn refund(
        &self,
        engine: &Engine,
        clock: &Clock,
        rules: &Rules,
        counters: &CounterKeys<'_>,
        request: &Request<'_>,
        age_us: u64,
    ) -> Result<bool, Unavailable> {
        let settled = shared::unspend(counters, request, &self.leases, clock.now_us());
        let refunds = shared::refunds(counters, settled, request, &self.name, engine.headroom(), age_us);
        let mut back = settled != 0;
        if !refunds.is_empty() {
            match self.store.ask(refunds.into(), self.store.patience()).await {
                // A part of the store may be away. What the other parts have given back stays given back.
                Ok(told) if told.iter().any(Result::is_ok) => {
                    back |= told.iter().flatten().any(|told| told.spent);
                }
                _ => {
                    let now_us = clock.now_us();
                    shared::respend(counters, settled, request, &self.leases, now_us);
                    // If this host has decided without the store, it has charged the request here.
                    let alone = rules.alone(counters).filter(|_| settled == 0);
                    let back = alone.is_some_and(|alone| engine.give_back(&alone, request, age_us, now_us));
                    return if back { Ok(true) } else { Err(Unavailable) };
                }
            }
        }
        shared::hope(counters, &self.leases);
        let local = counters.only(|counter| !is_shared(counter));
        Ok(engine.give_back(&local, request, age_us, clock.now_us()) || back)
    }

    /// Forgets leases and refusals, and has the store forget its records. Changes nothing if no more resets can be kept for the store.
    pub(super) fn reset(&self, counters: &CounterKeys<'_>, request: &Request<'_>) -> Result<(), Full> {
        self.store.reset(shared::store_keys(counters, request, &self.name))?;
        for counter in counters.iter() {
            self.leases.with_known(counter.hash, RequestLease::forget);
        }
        Ok(())
    }
}

/// Decides on this host alone, because the store cannot be reached.
fn alone<'r>(
    engine: &Engine,
    rules: &'r Rules,
    counters: &CounterKeys<'r>,
    request: &Request<'_>,
    asking: Asking,
    now_us: u64,
) -> Decision<'r> {
    let soon = Outcome::Refused { retry_us: Some(TRY_AGAIN_US) };
    let Some(own) = rules.alone(counters) else {
        let limit = counters.iter().find_map(nothing_left);
        let violated = limit.map(|near| Violated::first(near.allowance)).unwrap_or_default();
        return Decision { outcome: soon, limit, violated };
    };
    let decision = engine.judge(&own, request, now_us, JudgeMode::from(asking));
    // The request is more than this host ever gives alone, but not more than the store gives, which may be back any moment.
    let is_too_much = decision.outcome == Outcome::Refused { retry_us: None };
    match is_too_much && counters.iter().all(|counter| fits(counter.allowance, request, engine.headroom())) {
        true => decision.within(TRY_AGAIN_US),
        false => decision,
    }
}

/// Returns the state of a shared limit of which this host gives nothing.
fn nothing_left<'r>(counter: &CounterKey<'r>) -> Option<Nearest<'r>> {
    let allowance = counter.allowance;
    let limit = allowance.limits.first().filter(|_| is_shared(counter))?;
    Some(Nearest { allowance, limit, remaining: 0, reset_us: TRY_AGAIN_US, more_us: TRY_AGAIN_US })
}

#[cfg(test)]
mod tests;
