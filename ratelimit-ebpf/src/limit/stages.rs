//! The parts of limiting that are functions of their own in the kernel.

use ratelimit_common::abi::{LimitSet, Policy, Reason, SourceKey, WindowLimit, service::Party};

use super::{
    crowd, entry, further, host, refusal,
    request::Request,
    syns,
    window::{self, Ask, Scope},
};
use crate::{
    report::{self, Refused},
    tables::Tables,
};

/// What the verifier checks once, instead of once for every way that leads there.
///
/// As they stand here these are plain calls, and that is how the host runs them. The kernel program puts each behind a
/// function that takes addresses of plain data and returns a number: the verifier then assumes nothing about the caller,
/// and nothing of what happens inside multiplies what it has to look at outside.
pub trait Stages: Tables + Sized {
    /// Whether an entry would admit the packet.
    fn judge_entry(
        &self,
        policy: &Policy,
        set: &LimitSet,
        request: &Request,
        bucket: Self::Bucket,
    ) -> Reason {
        entry::judge(self, policy, set, request, bucket)
    }

    /// Charges an entry for a packet that it would admit.
    fn charge_entry(&self, set: &LimitSet, request: &Request, bucket: Self::Bucket) -> Reason {
        match entry::charge(self, set, request, bucket) {
            Reason::Conforming if set.has_soft() => entry::charge_margins(set, |index| {
                entry::charge_soft(self, set, request, bucket, index as usize)
            }),
            reason => reason,
        }
    }

    /// Makes an entry for the source, charged for the packet.
    fn open_entry(&self, policy: &Policy, set: &LimitSet, request: &Request) -> Reason {
        entry::open(self, policy, set, request)
    }

    /// Charges what the packet shares with others.
    fn charge_crowd(&self, policy: &Policy, request: &Request, party: Party) -> Reason {
        crowd::charge(self, policy, request, party)
    }

    /// Whether this CPU has enough of the host's total for a packet.
    fn stock_host(&self, policy: &Policy, len: u64, now_q8: u64, party: Party) -> bool {
        host::stock(self, policy, len, now_q8, party)
    }

    /// Spends it.
    fn spend_host(&self, policy: &Policy, len: u64, party: Party) {
        host::spend(self, policy, len, party);
    }

    /// Whether what one source may have of the service would admit the packet.
    fn judge_service(&self, policy: &Policy, request: &mut Request) -> Reason {
        further::judge_service(self, policy, request)
    }

    /// Charges that; `None` if the source needs an entry for it.
    fn charge_service(&self, policy: &Policy, request: &mut Request) -> Option<Reason> {
        further::charge_service(self, policy, request)
    }

    /// Makes that entry.
    fn open_service(&self, policy: &Policy, request: &mut Request) -> Reason {
        further::open_service(self, policy, request)
    }

    /// Whether the limits of its user would admit the packet.
    fn judge_user(&self, policy: &Policy, request: &mut Request) -> Reason {
        further::judge_user(self, policy, request)
    }

    /// Charges them.
    fn charge_user(&self, policy: &Policy, request: &mut Request) -> Reason {
        further::charge_user(self, policy, request)
    }

    /// Counts a SYN, and says whether a cookie is the answer to it.
    fn count_syn(&self, policy: &Policy, request: &Request) -> bool {
        syns::count(self, policy, request)
    }

    /// Asks the windows of one scope.
    fn ask_windows(&self, policy: &Policy, request: &Request, scope: Scope, charging: bool) -> Reason {
        window::ask_scope(self, policy, request, scope, charging)
    }

    /// Asks one window.
    fn ask_window(&self, limit: &WindowLimit, state: Self::Window, ask: &Ask) -> Reason {
        window::ask(self, limit, state, ask)
    }

    /// Tells the daemon of a packet that a limit refused, if it is time to.
    fn report(&self, policy: &Policy, request: &Request, reason: Reason) {
        refusal::report(self, policy, request, reason);
    }

    /// The same for a packet that no limit was asked about.
    fn report_unasked(&self, policy: &Policy, source: SourceKey, refused: Refused, now_q8: u64) {
        report::report(self, policy, source, refused, now_q8);
    }
}
