//! The parts of limiting that are functions of their own in the kernel and call no other such function.

use ratelimit_common::abi::{LimitSet, Policy, Reason, WindowLimit, service::Party};

use super::{
    asked_first, clients, crowd, crowded, entry,
    known::{self, Weight},
    negative_cache,
    precedence::{self, Precedence},
    refused,
    request::PacketCharge,
    sender::Sender,
    syns, total,
    window::{self, WindowCharge},
};
use crate::{report::Refused, tables::Tables};

/// The functions that the verifier checks once, instead of once for every path that leads there.
///
/// The default methods are plain calls, which is how the host runs them. The kernel program puts each behind a
/// function that takes addresses of plain data and returns a number: the verifier then assumes nothing about the caller,
/// and nothing that happens inside multiplies what it has to check outside.
///
/// All functions along a chain of calls share a stack of 512 bytes. A leaf calls no other function, so a chain has at most three members: a
/// program, one of the [`Stages`](super::Stages), a leaf.
pub trait Leaves: Tables + Sized {
    /// Whether an entry would admit the packet.
    fn judge_entry(
        &self,
        policy: &Policy,
        set: &LimitSet,
        request: &PacketCharge,
        bucket: Self::Bucket,
    ) -> Reason {
        entry::judge(self, policy, set, request, bucket)
    }

    /// The reason to refuse a packet for what is known before any limit is asked.
    fn known_refusal(&self, policy: &Policy, sender: &Sender, weight: Weight, now_q8: u64) -> Option<Reason> {
        known::known_refusal(self, policy, sender, weight, now_q8)
    }

    /// Charges the limits of an entry that are not soft, for a packet that it would admit.
    fn charge_entry(&self, set: &LimitSet, request: &PacketCharge, bucket: Self::Bucket) -> Reason {
        entry::charge(self, set, request, bucket)
    }

    /// Charges one soft limit of an entry.
    fn charge_soft(
        &self,
        set: &LimitSet,
        request: &PacketCharge,
        bucket: Self::Bucket,
        index: u32,
    ) -> Reason {
        entry::charge_soft(self, set, request, bucket, index)
    }

    /// Charges all limits of an entry, for a packet that it would admit. Not a function of its own: it calls two that are.
    #[inline(always)]
    fn charge_limits(&self, set: &LimitSet, request: &PacketCharge, bucket: Self::Bucket) -> Reason {
        match self.charge_entry(set, request, bucket) {
            Reason::Conforming if set.has_soft() => {
                entry::charge_margins(set, |index| self.charge_soft(set, request, bucket, index))
            }
            reason => reason,
        }
    }

    /// Charges or judges one window.
    fn ask_window(&self, limit: &WindowLimit, state: Self::Window, ask: &WindowCharge) -> Reason {
        window::ask(self, limit, state, ask)
    }

    /// Charges the limits that the packet shares with others.
    fn charge_crowd(&self, policy: &Policy, request: &PacketCharge, party: Party) -> Reason {
        crowd::charge(self, policy, request, party)
    }

    /// Whether this CPU has enough of the host's total for a packet.
    fn stock_host(&self, policy: &Policy, len: u64, now_q8: u64, party: Party) -> bool {
        total::stock_host(self, policy, len, now_q8, party)
    }

    /// Spends what a packet costs of the host's total.
    fn spend_host(&self, policy: &Policy, len: u64, party: Party) {
        total::spend_host(self, policy, len, party);
    }

    /// The reason of a total that was spent a moment ago, if the packet may be of a known client.
    fn spent_lately(&self, policy: &Policy, request: &PacketCharge) -> Reason {
        precedence::spent_lately(self, policy, request)
    }

    /// Notes in a request how hard the reserves of its totals press; false if the packet has no precedence anyway.
    fn press(&self, policy: &Policy, request: &mut PacketCharge, party: Party) -> bool {
        precedence::press(self, policy, request, party)
    }

    /// The precedence of a packet that found the ordinary part of a total spent.
    fn take_precedence(&self, policy: &Policy, request: &PacketCharge, party: Party) -> Precedence {
        precedence::take_precedence(self, policy, request, party)
    }

    /// Charges the reserves of a packet's totals.
    fn charge_reserve(&self, policy: &Policy, request: &PacketCharge, precedence: Precedence) {
        precedence::charge_reserve(self, policy, request, precedence);
    }

    /// The reason of a total that has nothing left for others; `None` if the source may be a known client of the service.
    fn unless_known(
        &self,
        policy: &Policy,
        service: u32,
        hash: u64,
        now_ns: u64,
        reason: Reason,
    ) -> Option<Reason> {
        clients::unless_known(self, policy, service, hash, now_ns, reason)
    }

    /// Learns from a packet that was served.
    fn learn(&self, policy: &Policy, request: &PacketCharge) {
        clients::learn(self, policy, request);
    }

    /// Makes a source known to a service.
    fn introduce(&self, policy: &Policy, service: u32, hash: u64, now_q8: u64) {
        clients::introduce(self, policy, service, hash, now_q8);
    }

    /// Counts a SYN, and returns whether a cookie is the answer to it.
    fn count_syn(&self, policy: &Policy, request: &PacketCharge) -> bool {
        syns::count(self, policy, request)
    }

    /// The widest aggregation level at which a prefix around a source is known to refuse it, or [`NO_LEVEL`](super::NO_LEVEL). `hi` and `lo`
    /// are the source's key.
    fn crowded_level(&self, policy: &Policy, hi: u64, lo: u64, hash: u64, now_q8: u64) -> u32 {
        crowded::level(self, policy, hi, lo, hash, now_q8)
    }

    /// Whether an IPv4 prefix of the level with this first cell is known to refuse a source of a hash.
    fn is_crowded_out_at(
        &self,
        policy: &Policy,
        first_cell: u32,
        prefix: u32,
        hash: u64,
        now_q8: u64,
    ) -> bool {
        crowded::is_crowded_out_at(self, policy, first_cell, prefix, hash, now_q8)
    }

    /// Clears the bit of this hash's cell for the first look, if nothing is remembered of the cell's sources any more.
    fn tidy(&self, hash: u64, now_q8: u64) {
        negative_cache::tidy(self, hash, now_q8);
    }

    /// Remembers that a source of this hash is proven.
    fn remember_proven(&self, hash: u64, now_q8: u64) {
        asked_first::remember_proven(self, hash, now_q8);
    }

    /// Remembers that a shared limit refused the source while it kept to its own limits.
    fn remember_shared(&self, policy: &Policy, request: &PacketCharge) {
        negative_cache::remember_shared(self, policy, request);
    }

    /// Forgets that a shared limit refused the source while it kept to its own limits.
    fn forget_shared(&self, policy: &Policy, request: &PacketCharge) {
        negative_cache::forget_shared(self, policy, request);
    }

    /// Sends the daemon a drop event for a packet that a limit refused, if one is due.
    fn report(&self, policy: &Policy, request: &PacketCharge, reason: Reason) {
        refused::report(self, policy, request, reason);
    }

    /// Sends the daemon a drop event for a packet that was refused before any limit, if one is due. `hi` and `lo` are the source's key: functions of the kernel
    /// program take numbers.
    fn report_unasked(&self, policy: &Policy, hi: u64, lo: u64, refused: Refused, now_q8: u64) {
        refused::report_source(self, policy, hi, lo, refused, now_q8);
    }
}
