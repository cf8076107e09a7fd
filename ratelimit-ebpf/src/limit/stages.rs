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

/// What the verifier checks once, as the [`Leaves`] that these functions call.
pub trait Stages: Leaves {
    /// Where a request is put: here, or in the kernel where there is more room than on the stack.
    #[inline(always)]
    fn room<'r>(&self, here: &'r mut PacketCharge) -> &'r mut PacketCharge {
        here
    }

    /// Whether a packet that is no segment and no fragment is refused for a prefix around its sender.
    fn is_crowded_out(&self, policy: &Policy, sender: &Sender, weight: Weight, now_q8: u64) -> bool {
        crowded_out::is_crowded_out(self, policy, sender, weight, now_q8)
    }

    /// Makes an entry for the source, charged for the packet.
    fn open_entry(&self, policy: &Policy, set: &LimitSet, request: &PacketCharge) -> Reason {
        opening::open(self, policy, set, request)
    }

    /// Whether what one source may have of the service would admit the packet.
    fn judge_service(&self, policy: &Policy, request: &mut PacketCharge) -> Reason {
        service::judge(self, policy, request)
    }

    /// Charges what one source may have of the service; `None` if the source needs an entry for it.
    fn charge_service(&self, policy: &Policy, request: &mut PacketCharge) -> Option<Reason> {
        service::charge(self, policy, request)
    }

    /// Makes the entry that a source needs for what it may have of the service.
    fn open_service(&self, policy: &Policy, request: &mut PacketCharge) -> Reason {
        service::open(self, policy, request)
    }

    /// Whether the limits of its user would admit the packet.
    fn judge_user(&self, policy: &Policy, request: &mut PacketCharge) -> Reason {
        user::judge(self, policy, request)
    }

    /// Charges the limits of its user.
    fn charge_user(&self, policy: &Policy, request: &mut PacketCharge) -> Reason {
        user::charge(self, policy, request)
    }

    /// Asks the windows of one scope.
    fn ask_windows(&self, policy: &Policy, request: &PacketCharge, scope: Scope, charging: bool) -> Reason {
        windows::ask(self, policy, request, scope, charging)
    }
}
