//! Leases that are renewed while they last: requests are served from held units, and the store is asked in the background.

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

/// Begins to renew those leases of a request that end soon or have little left. Each renewal has to be settled by `answered` or `failed`.
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
    /// Passes the answer of the store to the lease.
    pub fn answered(&self, told: &Told, leases: &RequestLeases, now_us: u64) {
        leases.with_known(self.hash, |lease| lease.answer(&self.inquiry.ask.lease, told, now_us));
    }

    /// Tells the lease that the store did not answer.
    pub fn failed(&self, leases: &RequestLeases) {
        leases.with_known(self.hash, |lease| lease.failed(&self.inquiry.ask.lease));
    }
}
