//! The parts of limiting that are functions of their own in the kernel and call others.

use ratelimit_common::abi::{LimitSet, Policy, Reason};

use super::{
    crowded_out,
    known::Weight,
    leaves::Leaves,
    opening,
    request::PacketCharge,
    sender::Sender,
    service, user,
    windows::{self, Scope},
};

/// The functions that the verifier checks once, besides the [`Leaves`] that they call.
pub trait Stages: Leaves {
    /// The place for a request: the caller's own, or in the kernel one with more room than the stack.
    #[inline(always)]
    fn room<'r>(&self, here: &'r mut PacketCharge) -> &'r mut PacketCharge {
        here
    }

    /// Whether a packet, neither a TCP segment nor a fragment, is refused for a prefix around its sender.
    fn is_crowded_out(&self, policy: &Policy, sender: &Sender, weight: Weight, now_q8: u64) -> bool {
        crowded_out::is_crowded_out(self, policy, sender, weight, now_q8)
    }

    /// Makes an entry for the source, charged for the packet.
    fn open_entry(&self, policy: &Policy, set: &LimitSet, request: &PacketCharge) -> Reason {
        opening::open(self, policy, set, request)
    }

    /// Whether the service's limits for each source would admit the packet.
    fn judge_service(&self, policy: &Policy, request: &mut PacketCharge) -> Reason {
        service::judge(self, policy, request)
    }

    /// Charges the service's limits for each source; `None` if the source needs an entry for that.
    fn charge_service(&self, policy: &Policy, request: &mut PacketCharge) -> Option<Reason> {
        service::charge(self, policy, request)
    }

    /// Makes the entry of the source for the service's limits.
    fn open_service(&self, policy: &Policy, request: &mut PacketCharge) -> Reason {
        service::open(self, policy, request)
    }

    /// Whether the limits of the packet's user would admit the packet.
    fn judge_user(&self, policy: &Policy, request: &mut PacketCharge) -> Reason {
        user::judge(self, policy, request)
    }

    /// Charges the limits of the packet's user.
    fn charge_user(&self, policy: &Policy, request: &mut PacketCharge) -> Reason {
        user::charge(self, policy, request)
    }

    /// Charges or judges the windows of one scope.
    fn ask_windows(&self, policy: &Policy, request: &PacketCharge, scope: Scope, charging: bool) -> Reason {
        windows::ask(self, policy, request, scope, charging)
    }
}
