//! Leases that are renewed while they last: whoever asks is answered from what is held, and the store is told in its own time.

use super::{
    claims::Claims,
    key::Hash,
    leases::Leases,
    request::Request,
    shared::{held_back, limits, may_lease, store_key},
};
use crate::cluster::{
    account::{Ask, Told},
    inquiry::Inquiry,
};

/// A lease that is being renewed.
#[derive(Clone, Debug)]
pub struct Renewal {
    hash: Hash,
    /// What to ask the store.
    pub inquiry: Inquiry,
    /// When that was decided.
    sent_us: u64,
}

/// Renews those leases of a request that do not last for long. Each has to be settled, with an answer or without.
pub fn due(
    claims: &Claims<'_>,
    request: &Request<'_>,
    leases: &Leases,
    cluster: &str,
    headroom: bool,
    now_us: u64,
) -> Vec<Renewal> {
    let leased = claims.iter().filter(|claim| may_lease(claim.allowance, request));
    let renewals = leased.filter_map(|claim| {
        let allowance = claim.allowance;
        let (lease, life_us) = leases.with_known(claim.hash, |lease| {
            lease.renew(allowance.capacity(), now_us).map(|said| (said, lease.life_us()))
        })??;
        let ask = Ask { lease, life_us, reserved: held_back(allowance, headroom), ..Ask::default() };
        let inquiry =
            Inquiry { key: store_key(claim, request, cluster), limits: limits(allowance, headroom), ask };
        Some(Renewal { hash: claim.hash, inquiry, sent_us: now_us })
    });
    renewals.collect()
}

impl Renewal {
    /// Takes in what the store said, if it said anything.
    pub fn settle(&self, told: Option<&Told>, leases: &Leases, now_us: u64) {
        let said = &self.inquiry.ask.lease;
        leases.with_known(self.hash, |lease| match told {
            Some(told) => lease.answer(said, told, self.sent_us, now_us),
            None => lease.failed(said),
        });
    }
}
