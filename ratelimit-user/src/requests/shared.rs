//! Requests that hosts count together: decided here from leases, or from the answers of the store. The caller asks the store.
//!
//! ```text
//! counter keys -> leases, enough of each? --yes--> allowed
//!              |                     --no---> inquiries -> store -> verdict
//!              +-- refused a moment ago: refused
//! ```

use super::{
    allowance::{Allowance, AllowanceLimit, InForce},
    counter_keys::{CounterKey, CounterKeys, write},
    decision::{Decision, Nearest, Outcome, Violated},
    key::TextKey,
    lease::{Left, MOST, PORTION, RequestLease},
    leases::RequestLeases,
    request::Request,
};
use crate::{
    meter::{NEVER_US, bit},
    policy::{OnRefusal, Sharing},
    store::{
        ask::{Ask, CountedLimit, Told},
        inquiry::Inquiry,
        record::FORM,
    },
};

/// Refusals for less than this are believed at once, in microseconds: requests that come back are as well off.
const DOUBTED_US: u64 = 1_000_001;

/// What leases say before the store is asked.
#[derive(Debug)]
pub enum Step<'r> {
    /// There is enough, or the store has refused the request a moment ago. `due` says whether [`super::renewal`] has leases to renew.
    Decided { decision: Decision<'r>, due: bool },
    /// The store has to be asked.
    Ask,
}

/// What the store is to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// The cost of a request, and units to hold for later requests.
    Ahead,
    /// Only the cost of the request.
    Once,
    /// Nothing: the caller only wants to know.
    Nothing,
}

/// Whether a counter key is counted with other hosts.
pub fn is_shared(counter: &CounterKey<'_>) -> bool {
    counter.allowance.sharing != Sharing::Local
}

/// Decides from leases alone, if they are enough. Only for requests all of whose counter keys are shared.
pub fn step<'r>(
    counters: &CounterKeys<'r>,
    request: &Request<'_>,
    leases: &RequestLeases,
    now_us: u64,
) -> Step<'r> {
    let (mut least, mut due): (Option<Nearest<'r>>, bool) = (None, false);
    for (nth, counter) in counters.iter().enumerate() {
        let needed = needed(counter.allowance, request);
        let leased = may_lease(counter.allowance, request);
        let known = leases.with_known(counter.hash, |lease| {
            let denied = lease.denies(needed, counter.allowance.terms, now_us);
            let spent = denied.is_none() && leased && lease.spend(request.cost, now_us);
            due |= spent && lease.is_due(now_us);
            (denied.is_some(), spent, lease.left(now_us))
        });
        let (denied, spent, left) = known.unwrap_or_default();
        let near = nearest(counter.allowance, &left, now_us);
        if !spent {
            give_back(counters.iter().take(nth), request, leases);
            return match denied && counter.allowance.on_limit == OnRefusal::Refuse {
                true => {
                    Step::Decided { decision: negative_entry(counters, request, leases, now_us), due: false }
                }
                false => Step::Ask,
            };
        }
        if least.is_none_or(|least| near.is_some_and(|near| near.remaining < least.remaining)) {
            least = near;
        }
    }
    Step::Decided { decision: Decision::served(Outcome::Allowed, least), due }
}

/// Refuses a request by all counter keys for which the store has refused it a moment ago.
fn negative_entry<'r>(
    counters: &CounterKeys<'r>,
    request: &Request<'_>,
    leases: &RequestLeases,
    now_us: u64,
) -> Decision<'r> {
    let mut longest: Option<(u64, Option<Nearest<'r>>)> = None;
    let mut violated = Violated::default();
    for counter in counters.iter().filter(|counter| counter.allowance.on_limit == OnRefusal::Refuse) {
        let needed = needed(counter.allowance, request);
        let terms = counter.allowance.terms;
        let known = leases
            .with_known(counter.hash, |lease| (lease.denies(needed, terms, now_us), lease.left(now_us)));
        let Some((Some((wait_us, bits)), left)) = known else { continue };
        violated.add(counter.allowance, bits);
        if longest.is_none_or(|(longest, _)| wait_us > longest) {
            longest = Some((wait_us, nearest(counter.allowance, &left, now_us)));
        }
    }
    let (wait_us, near) = longest.unwrap_or_default();
    refusal(wait_us, near, violated)
}

/// Makes a refusal of `wait_us` microseconds. One unit more comes no later than that, because the request needs more than is left.
fn refusal<'r>(wait_us: u64, near: Option<Nearest<'r>>, violated: Violated<'r>) -> Decision<'r> {
    let limit = near.map(|near| Nearest { more_us: near.more_us.min(wait_us), ..near });
    Decision { outcome: refused(wait_us), limit, violated }
}

fn give_back<'c, 'r: 'c>(
    counters: impl Iterator<Item = &'c CounterKey<'r>>,
    request: &Request<'_>,
    leases: &RequestLeases,
) {
    for counter in counters {
        leases.with_known(counter.hash, |lease| lease.unspend(request.cost));
    }
}

/// Returns what the store is to give for a request that counts. If it decides about one counter key of a request, it decides about all: units that were held
/// of the others would not be spent.
pub fn ahead(counters: &CounterKeys<'_>, request: &Request<'_>) -> Taking {
    let is_leased = |counter: &CounterKey<'_>| may_lease(counter.allowance, request);
    if counters.iter().all(is_leased) { Taking::Ahead } else { Taking::Once }
}

/// Returns the shared counter keys of a request as they are charged: those of one step at once, and the steps one after the other. Of which least is left comes
/// first, because it is likeliest to refuse; what this host does not know of is whole. The last are those with room for many such requests, and those
/// that refuse none.
pub fn steps<'r>(
    counters: &CounterKeys<'r>,
    request: &Request<'_>,
    leases: &RequestLeases,
    now_us: u64,
) -> Vec<CounterKeys<'r>> {
    let ranked = |counter: &CounterKey<'r>| {
        let (allowance, capacity) = (counter.allowance, counter.allowance.capacity());
        let left = leases.with_known(counter.hash, |lease| lease.left(now_us));
        let near = left.filter(|left| left.told_us > 0).and_then(|left| nearest(allowance, &left, now_us));
        let remaining = near.map_or(capacity, |near| near.remaining);
        let is_plenty =
            capacity >= PORTION && remaining >= capacity / 2 && needed(allowance, request) <= capacity / MOST;
        let refuses = allowance.on_limit != OnRefusal::Deprioritise;
        (refuses && !is_plenty).then_some((remaining, capacity, allowance.id))
    };
    let ranks: Vec<_> = counters.iter().map(ranked).collect();
    let mut order = ranks.clone();
    order.sort_unstable_by_key(|rank| (rank.is_none(), *rank));
    order.dedup();
    let step = |rank| {
        let mut own = ranks.iter();
        counters.only(|_| own.next() == Some(&rank))
    };
    order.into_iter().map(step).collect()
}

/// Returns what to ask the store about each shared counter key.
pub fn inquiries(
    counters: &CounterKeys<'_>,
    request: &Request<'_>,
    leases: &RequestLeases,
    cluster: &str,
    headroom: bool,
    taking: Taking,
    now_us: u64,
) -> Vec<Inquiry> {
    let (peek, leased) = (taking == Taking::Nothing, taking == Taking::Ahead);
    let asked = |counter: &CounterKey<'_>| {
        let allowance = counter.allowance;
        let said = leased.then(|| {
            leases.with(counter.hash, now_us, |lease| {
                (lease.ask(request.cost, allowance.capacity(), now_us), lease.life_us())
            })
        });
        let (lease, life_us) = said.flatten().unwrap_or_default();
        let ask = Ask {
            lease,
            life_us,
            spend: request.cost,
            reserved: reserved(allowance, request),
            patience_us: patience_us(allowance),
            peek,
            ..Ask::default()
        };
        inquiry(counter, request, cluster, headroom, ask)
    };
    counters.iter().filter(|counter| is_shared(counter)).map(asked).collect()
}

/// Takes back units that were spent from leases here and that the store has not heard of. Returns a bit for each counter key that is settled so.
pub fn unspend(
    counters: &CounterKeys<'_>,
    request: &Request<'_>,
    leases: &RequestLeases,
    now_us: u64,
) -> u64 {
    let leased = counters.iter().enumerate().filter(|(_, counter)| may_lease(counter.allowance, request));
    let unspent = leased.filter(|(_, counter)| {
        leases.with_known(counter.hash, |lease| lease.refund(request.cost, now_us)).unwrap_or_default()
    });
    unspent.fold(0, |bits, (nth, _)| bits | bit(nth))
}

/// Spends again what [`unspend`] took back of these counter keys.
pub fn respend(
    counters: &CounterKeys<'_>,
    settled: u64,
    request: &Request<'_>,
    leases: &RequestLeases,
    now_us: u64,
) {
    for (_, counter) in counters.iter().enumerate().filter(|(nth, _)| settled & bit(*nth) != 0) {
        leases.with_known(counter.hash, |lease| lease.spend(request.cost, now_us));
    }
}

/// Forgets refusals of these keys by the store, because something has been given back.
pub fn hope(counters: &CounterKeys<'_>, leases: &RequestLeases) {
    for counter in counters.iter().filter(|counter| is_shared(counter)) {
        leases.with_known(counter.hash, RequestLease::hope);
    }
}

/// Returns inquiries that give back what a request was charged `age_us` ago (0 is any age), except under counter keys that are settled already.
pub fn refunds(
    counters: &CounterKeys<'_>,
    settled: u64,
    request: &Request<'_>,
    cluster: &str,
    headroom: bool,
    age_us: u64,
) -> Vec<Inquiry> {
    let refund = |counter: &CounterKey<'_>| {
        // The store record is kept for as long as requests wait for their turn in it.
        let patience_us = patience_us(counter.allowance);
        inquiry(
            counter,
            request,
            cluster,
            headroom,
            Ask { refund: request.cost, age_us, patience_us, ..Ask::default() },
        )
    };
    let open =
        counters.iter().enumerate().filter(|(nth, counter)| is_shared(counter) && settled & bit(*nth) == 0);
    open.map(|(_, counter)| refund(counter)).collect()
}

/// Returns the names of the shared counter keys of a request in the store.
pub fn store_keys(counters: &CounterKeys<'_>, request: &Request<'_>, cluster: &str) -> Vec<String> {
    counters
        .iter()
        .filter(|counter| is_shared(counter))
        .map(|counter| store_key(counter, request, cluster))
        .collect()
}

/// Tells the leases that the store did not answer.
pub fn failed(counters: &CounterKeys<'_>, asked: &[Inquiry], leases: &RequestLeases) {
    for (counter, inquiry) in counters.iter().filter(|counter| is_shared(counter)).zip(asked) {
        leases.with_known(counter.hash, |lease| lease.failed(&inquiry.ask.lease));
    }
}

/// What the answers of the store come to.
#[derive(Debug)]
pub struct SharedVerdict<'r> {
    /// The decision, as far as shared counter keys go.
    pub decision: Decision<'r>,
    /// Whether a counter key refuses that had not refused before, and for long: another request may be giving back what is missing.
    pub is_doubtful: bool,
}

/// Passes the answers of the store to the leases, and decides by them. A refusal that is doubtful and not final is not remembered.
pub fn verdict<'r>(
    counters: &CounterKeys<'r>,
    asked: &[Inquiry],
    told: &[Told],
    leases: &RequestLeases,
    is_final: bool,
    now_us: u64,
) -> SharedVerdict<'r> {
    let mut is_doubtful = false;
    let mut violated = Violated::default();
    let mut retry: Option<(u64, Option<Nearest<'r>>)> = None;
    let (mut wait_us, mut margin, mut low) = (0, false, false);
    let mut least: Option<Nearest<'r>> = None;
    let shared = || counters.iter().filter(|counter| is_shared(counter)).zip(asked).zip(told);
    for ((counter, inquiry), told) in shared() {
        let (fits, allowance) = (told.spent, counter.allowance);
        let doubt = !is_final && !fits && allowance.on_limit != OnRefusal::Deprioritise && {
            let needed = inquiry.ask.spend + inquiry.ask.reserved;
            let recalls = |lease: &mut RequestLease| lease.recalls(needed, allowance.terms, now_us);
            (DOUBTED_US..NEVER_US).contains(&told.wait_us)
                && leases.with_known(counter.hash, recalls) != Some(true)
        };
        is_doubtful |= doubt;
        let left = told_to_lease(counter, inquiry, told, leases, !doubt, now_us);
        let near = nearest(allowance, &left, now_us).map(|near| Nearest { more_us: told.more_us, ..near });
        match (fits, allowance.on_limit) {
            (true, OnRefusal::Delay(_)) => wait_us = wait_us.max(told.wait_us),
            (true, _) => margin |= told.above,
            (false, OnRefusal::Deprioritise) => low = true,
            (false, _) => {
                violated.add(allowance, told.violated);
                if retry.is_none_or(|(longest, _)| told.wait_us > longest) {
                    retry = Some((told.wait_us, near));
                }
            }
        }
        if least.is_none_or(|least| near.is_some_and(|near| near.remaining < least.remaining)) {
            least = near;
        }
    }
    let Some((retry_us, near)) = retry else {
        let outcome = served(wait_us, low, margin);
        return SharedVerdict { decision: Decision::served(outcome, least), is_doubtful };
    };
    SharedVerdict { decision: refusal(retry_us, near, violated), is_doubtful }
}

/// Passes an answer of the store to the lease of a counter key, and returns what is left of the key.
fn told_to_lease(
    counter: &CounterKey<'_>,
    inquiry: &Inquiry,
    told: &Told,
    leases: &RequestLeases,
    is_believed: bool,
    now_us: u64,
) -> Left {
    let ask = &inquiry.ask;
    let left = leases.with(counter.hash, now_us, |lease| {
        lease.answer(&ask.lease, told, now_us);
        if !told.spent && is_believed {
            let needed = ask.spend + ask.reserved;
            lease.deny(needed, counter.allowance.terms, (told.wait_us, told.violated), now_us);
        }
        lease.left(now_us)
    });
    left.unwrap_or(Left { free: told.free, told_us: now_us, nearest: told.nearest, ..Left::default() })
}

/// Returns how a request is served that no shared limit refuses.
fn served(wait_us: u64, low: bool, margin: bool) -> Outcome {
    match (wait_us, low, margin) {
        (0, true, _) => Outcome::Deprioritised,
        (0, false, true) => Outcome::InMargin,
        (0, false, false) => Outcome::Allowed,
        _ => Outcome::Delayed { wait_us },
    }
}

/// Returns the inquiry that gives back what `inquiry` was charged.
pub fn refund(inquiry: &Inquiry) -> Inquiry {
    let Ask { spend, patience_us, .. } = inquiry.ask;
    Inquiry { ask: Ask { refund: spend, patience_us, ..Ask::default() }, ..inquiry.clone() }
}

fn refused(wait_us: u64) -> Outcome {
    Outcome::Refused { retry_us: Some(wait_us).filter(|wait_us| *wait_us != NEVER_US) }
}

/// Whether held units may be spent on a request. A request that may wait for a turn has to be in the store's queue, and only the store knows how much
/// is left for requests that matter more.
pub(super) fn may_lease(allowance: &Allowance, request: &Request<'_>) -> bool {
    allowance.sharing == Sharing::Lease
        && !matches!(allowance.on_limit, OnRefusal::Delay(_))
        && allowance.capacity() >= PORTION
        && reserved(allowance, request) == 0
        && allowance.may_hold()
}

fn patience_us(allowance: &Allowance) -> u64 {
    match allowance.on_limit {
        OnRefusal::Delay(longest) => longest.as_micros() as u64,
        OnRefusal::Refuse | OnRefusal::Deprioritise => 0,
    }
}

/// Returns the units that must be left after a request, for requests that matter more.
fn reserved(allowance: &Allowance, request: &Request<'_>) -> u64 {
    allowance.reserved(request.priority, allowance.capacity())
}

/// Whether the limits, as the store counts them, can ever have enough for a request at once.
pub fn fits(allowance: &Allowance, request: &Request<'_>, headroom: bool) -> bool {
    let room = |limit: &AllowanceLimit| {
        let in_force = limit.in_force(headroom);
        in_force.meter.capacity().saturating_sub(in_force.held_back)
    };
    allowance.limits.iter().all(|limit| room(limit) >= needed(allowance, request))
}

fn needed(allowance: &Allowance, request: &Request<'_>) -> u64 {
    request.cost.saturating_add(reserved(allowance, request))
}

/// Makes the question about one counter key.
pub(super) fn inquiry(
    counter: &CounterKey<'_>,
    request: &Request<'_>,
    cluster: &str,
    headroom: bool,
    ask: Ask,
) -> Inquiry {
    Inquiry { key: store_key(counter, request, cluster), limits: limits(counter.allowance, headroom), ask }
}

fn limits(allowance: &Allowance, headroom: bool) -> Vec<CountedLimit> {
    let counted = |limit: &AllowanceLimit| {
        let InForce { meter, held_back, margin, .. } = limit.in_force(headroom);
        CountedLimit { meter: meter.clone(), queue: limit.queue, margin, held_back }
    };
    allowance.limits.iter().map(counted).collect()
}

fn store_key(counter: &CounterKey<'_>, request: &Request<'_>, cluster: &str) -> String {
    let mut key = TextKey::default();
    // Writing cannot fail here: the counter key was made of these parts.
    let _complete = write(counter.subject, request, &mut key);
    let (first, rest) = key.split();
    format!("{cluster}:{FORM}:{{{first}}}:{}:{rest}", counter.allowance.store_name())
}

fn nearest<'r>(allowance: &'r Allowance, left: &Left, now_us: u64) -> Option<Nearest<'r>> {
    let limit = allowance.limits.get(left.nearest).or(allowance.limits.first())?;
    let (meter, capacity) = (&limit.meter, limit.meter.capacity());
    // Units that this host holds or has spent are not free at the store, however much has come there since.
    let most = capacity.saturating_sub(left.held.saturating_add(left.used));
    let free = meter.left_since(left.free, left.told_us, now_us).min(most);
    let remaining = free.saturating_add(left.held).min(capacity);
    let (reset_us, more_us) = (meter.reset_from(remaining, now_us), meter.more_from(remaining, now_us));
    Some(Nearest { allowance, limit, remaining, reset_us, more_us })
}

#[cfg(test)]
mod tests;
