//! Leases that are renewed while they last: whoever asks is answered from what is held, and the store is told in its own time.

use super::{
    counter_keys::CounterKeys,
    key::Hash,
    leases::RequestLeases,
    request::Request,
    shared::{inquiry, may_lease},
};
use crate::store::{
    ask::{Ask, Told},
    inquiry::Inquiry,
};

/// A lease that is being renewed.
#[derive(Clone, Debug)]
pub struct Renewal {
    hash: Hash,
    /// What to ask the store.
    pub inquiry: Inquiry,
}

/// Renews those leases of a request that do not last for long. Each has to be settled, with an answer or without.
pub fn due(
    counters: &CounterKeys<'_>,
    request: &Request<'_>,
    leases: &RequestLeases,
    cluster: &str,
    headroom: bool,
    now_us: u64,
) -> Vec<Renewal> {
    let leased = counters.iter().filter(|counter| may_lease(counter.allowance, request));
    let renewals = leased.filter_map(|counter| {
        let allowance = counter.allowance;
        let (lease, life_us) = leases.with_known(counter.hash, |lease| {
            lease.renew(allowance.capacity(), now_us).map(|said| (said, lease.life_us()))
        })??;
        let ask = Ask { lease, life_us, ..Ask::default() };
        Some(Renewal { hash: counter.hash, inquiry: inquiry(counter, request, cluster, headroom, ask) })
    });
    renewals.collect()
}

impl Renewal {
    /// Takes in what the store said.
    pub fn answered(&self, told: &Told, leases: &RequestLeases, now_us: u64) {
        leases.with_known(self.hash, |lease| lease.answer(&self.inquiry.ask.lease, told, now_us));
    }

    /// Takes in that it said nothing.
    pub fn failed(&self, leases: &RequestLeases) {
        leases.with_known(self.hash, |lease| lease.failed(&self.inquiry.ask.lease));
    }
}
