//! Decisions that hosts make together: from leases where they last, by the store where they do not, and alone where it is gone.

use std::{borrow::Cow, sync::Arc};

use super::{
    Decision, Engine, JudgeMode, Nearest, Outcome, Request, Rules, Violated,
    asking::Asking,
    counter_keys::{CounterKey, CounterKeys},
    lease::RequestLease,
    leases::RequestLeases,
    renewal,
    renewals::Renewals,
    shared::{self, SharedVerdict, Step, Taking, fits, is_shared},
};
use crate::{
    clock::Clock,
    store::{
        ask::Told,
        inquiry::Inquiry,
        worker::{Full, Store, Unavailable},
    },
};

/// Microseconds after which to ask again, if a refusal is due to the store being away.
const TRY_AGAIN_US: u64 = 1_000_000;

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

    /// Decides by the store, or on this host alone if the store does not answer.
    pub(super) async fn decide<'r>(
        &self,
        engine: &Engine,
        clock: &Clock,
        rules: &'r Rules,
        counters: &CounterKeys<'r>,
        request: &Request<'_>,
        asking: Asking,
    ) -> Decision<'r> {
        let (sent_us, headroom) = (clock.now_us(), engine.headroom());
        let peek = asking == Asking::Peeking;
        let taking = match asking {
            Asking::Counted => Taking::Ahead,
            Asking::InBulk => Taking::Once,
            Asking::Peeking => Taking::Nothing,
        };
        let asked: Arc<[Inquiry]> =
            shared::inquiries(counters, request, &self.leases, &self.name, headroom, taking, sent_us).into();
        let mut unanswered = Unanswered { counters, asked: &asked, leases: &self.leases, is_answered: false };
        let answers = self.store.ask(Arc::clone(&asked)).await;
        unanswered.is_answered = answers.is_ok();
        drop(unanswered);
        let now_us = clock.now_us();
        let Ok(answers) = answers else { return alone(engine, rules, counters, request, asking, now_us) };
        // A part of the store may be away. This host decides alone about counter keys without an answer, as about those that it counts for itself.
        let mut marks = answers.iter().map(Result::is_ok);
        let together = counters.only(|counter| is_shared(counter) && marks.next() == Some(true));
        let mut marks = answers.iter().map(Result::is_ok);
        let rest = counters.only(|counter| !is_shared(counter) || marks.next() != Some(true));
        let (told, answered) = self.told(&rest, &asked, &answers);
        let SharedVerdict { decision, undo } =
            shared::verdict(&together, &answered, &told, &self.leases, now_us);
        if !undo.is_empty() {
            self.store.tell(undo);
        }
        if rest.iter().next().is_none() {
            return decision;
        }
        if !decision.outcome.is_served() {
            // Looks at the rest, too, so that all limits that refuse are named.
            return decision.and(alone(engine, rules, &rest, request, Asking::Peeking, now_us));
        }
        let of_host = alone(engine, rules, &rest, request, asking, now_us);
        if of_host.outcome.is_served() {
            return decision.and(of_host);
        }
        let mut spent = told.iter().map(|told| told.spent && !peek);
        let paid = together.only(|_| spent.next() == Some(true));
        let paid = shared::refunds(&paid, 0, request, &self.name, headroom, 0);
        if !paid.is_empty() {
            self.store.tell(paid);
        }
        of_host
    }

    /// Returns the answers that there are, and the inquiries that they answer. The leases of the rest are told that there is no answer.
    fn told<'a>(
        &self,
        rest: &CounterKeys<'_>,
        asked: &'a [Inquiry],
        answers: &[Result<Told, Unavailable>],
    ) -> (Vec<Told>, Cow<'a, [Inquiry]>) {
        let told: Vec<Told> = answers.iter().filter_map(|answer| answer.ok()).collect();
        if told.len() == asked.len() {
            return (told, Cow::Borrowed(asked));
        }
        let of = |is_ok: bool| {
            let some = asked.iter().zip(answers).filter(move |(_, answer)| answer.is_ok() == is_ok);
            some.map(|(asked, _)| asked.clone()).collect::<Vec<_>>()
        };
        shared::failed(rest, &of(false), &self.leases);
        (told, Cow::Owned(of(true)))
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
            match self.store.ask(refunds.into()).await {
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

/// Leases that the store is asked about. A caller that waits for the store may hang up, and then nobody takes the answer: this tells the leases that
/// there is none, and they send the same entries again.
struct Unanswered<'d> {
    counters: &'d CounterKeys<'d>,
    asked: &'d [Inquiry],
    leases: &'d RequestLeases,
    is_answered: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            shared::failed(self.counters, self.asked, self.leases);
        }
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
        true => {
            let sooner = |near: Nearest<'r>| Nearest { more_us: near.more_us.min(TRY_AGAIN_US), ..near };
            Decision { outcome: soon, limit: decision.limit.map(sooner), ..decision }
        }
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
