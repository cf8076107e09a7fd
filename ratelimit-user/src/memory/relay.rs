//! What the packet path uses besides its tables: other programs, and notes of which limit refused.

use ratelimit_common::abi::{Policy, Reason};
use ratelimit_ebpf::{
    frame::{Frame, Link},
    limit::{self, Leaves, PacketCharge, Scope, Stages},
    link,
    notes::{NOTES, Notes, leave},
    packet::Family,
    reply::{ReplyFrame, Wire},
    service,
    tables::{Relay, Successor, TailCallContext},
};

use super::Memory;

impl Memory {
    /// Notes down a refusal by a limit of a service.
    fn at_service(&self, reason: Reason) -> Reason {
        if !reason.admits() {
            self.refused_at_service.set(true);
        }
        reason
    }
}

impl Leaves for Memory {}

impl Stages for Memory {
    fn judge_service(&self, policy: &Policy, request: &mut PacketCharge) -> Reason {
        self.at_service(limit::judge_service(self, policy, request))
    }

    fn charge_service(&self, policy: &Policy, request: &mut PacketCharge) -> Option<Reason> {
        limit::charge_service(self, policy, request).map(|reason| self.at_service(reason))
    }

    fn open_service(&self, policy: &Policy, request: &mut PacketCharge) -> Reason {
        self.at_service(limit::open_service(self, policy, request))
    }

    fn ask_windows(&self, policy: &Policy, request: &PacketCharge, scope: Scope, charging: bool) -> Reason {
        let is_service = matches!(scope, Scope::Service);
        let reason = limit::ask_windows(self, policy, request, scope, charging);
        if is_service { self.at_service(reason) } else { reason }
    }
}

impl Relay for Memory {
    fn answers(&self) -> bool {
        self.link.get() == Link::Ethernet
    }

    fn hand_over(&self, to: Successor, context: TailCallContext) {
        if !self.replays {
            self.handed_over.borrow_mut().push(to);
            return;
        }
        match to {
            // On links whose frames are IP packets, no program replies.
            Successor::Reject if self.link.get() == Link::Ip => {}
            Successor::Mark | Successor::Reject => {
                leave(self, context);
                self.successor.set(Some(to));
            }
            // Both programs look up sockets of the host, which a capture does not have.
            Successor::Prove | Successor::Answer => self.unproven.set(self.unproven.get() + 1),
        }
    }

    fn service_at(&self, frame: &Frame<'_>, table: u32, class: u32) -> u32 {
        service::at_destination(self, frame, table, class)
    }

    fn judge_link(&self, frame: &Frame<'_>, policy: &Policy, passes: Reason) -> Reason {
        link::judge(self, frame, policy, self.interface.get(), passes)
    }
}

impl Notes for Memory {
    fn note(&self, index: usize) -> u64 {
        self.notes.borrow()[index % NOTES]
    }

    fn set_note(&self, index: usize, value: u64) {
        self.notes.borrow_mut()[index % NOTES] = value;
    }
}

/// Sends and writes nothing; reports success where a host could do it.
impl Wire for Memory {
    fn answers(&self) -> bool {
        self.link.get() == Link::Ethernet
    }

    fn reread<'f>(&self, frame: &Frame<'f>) -> Frame<'f> {
        *frame
    }

    fn send(&self, _: u64, _: &ReplyFrame) -> bool {
        true
    }

    fn mark(&self, _: usize, _: Family, _: u32) -> bool {
        true
    }
}
