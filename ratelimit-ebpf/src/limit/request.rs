//! The charge of one packet: what it costs under each limit.

use ratelimit_common::{
    abi::{
        EntryKey, Limit, LimitSet, MAX_LIMITS, Meter, Policy, Reason, SourceKey, limit::COUNTS_BYTES,
        service::Party,
    },
    limit::{
        clients::ReservePressure,
        fair::PROVEN_Q8,
        gcra::{self, MAX_AMOUNT},
        prefilter,
    },
};

use super::sender::Sender;
use crate::{
    forget::forget,
    packet::{Packet, Transport},
    report::Refused,
    tables::TailCallContext,
};

/// What a packet costs, of whom, and when. Plain numbers, because it is passed by address to functions that the
/// verifier checks one by one: see [`super::Stages`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PacketCharge {
    /// The source of the packet.
    pub(super) key: SourceKey,
    /// The keyed hash of source and group in the prefilter.
    pub(super) hash: u64,
    /// The time of the packet, as a time word.
    pub(super) now_q8: u64,
    /// The charge under each limit of the current set, in 1/256 ns; 0 if the limit does not apply to the packet.
    pub(super) charges_q8: [u64; MAX_LIMITS],
    /// The charge under the dearest limit, in 1/256 ns: enough for a shared word to stand for all limits. 0 if none applies.
    dearest_q8: u64,
    /// Length of the frame in bytes, at most [`MAX_AMOUNT`].
    pub(super) len: u32,
    /// The group of the current limits: 0 for those of every source, or the number of a service.
    pub(super) group: u16,
    /// The number of the packet's service, as in the table of ports.
    pub(super) service: u16,
    /// The number of the user that the source belongs to, as in the lists.
    pub(super) user: u16,
    /// The address family, for prefix aggregation: 0 for IPv4, 1 for IPv6.
    pub(super) family: u8,
    /// 1 if the packet has shown a connection.
    pub(super) proven: u8,
    /// Destination port; 0 if the packet has none.
    pub(super) port: u16,
    /// 1 if the packet opens a connection.
    pub(super) syns: u8,
    /// 1 if the packet is a fragment.
    pub(super) fragments: u8,
    /// How hard the reserves of totals press, once the packet has found their ordinary part spent.
    pub(super) pressure: ReservePressure,
}

impl PacketCharge {
    /// An empty charge, to be filled in.
    pub(super) const NONE: Self = Self {
        key: SourceKey { hi: 0, lo: 0 },
        hash: 0,
        now_q8: 0,
        charges_q8: [0; MAX_LIMITS],
        dearest_q8: 0,
        len: 0,
        group: 0,
        service: 0,
        user: 0,
        family: 0,
        proven: 0,
        port: 0,
        syns: 0,
        fragments: 0,
        pressure: ReservePressure::NONE,
    };

    /// Fills in the charge under the limits of every source.
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        policy: &Policy,
        packet: &Packet,
        Sender { key, hash, .. }: Sender,
        len: u64,
        now_q8: u64,
    ) {
        // Set field by field: a whole struct would be put together on the stack first.
        self.key = key;
        self.hash = hash;
        self.now_q8 = now_q8;
        self.len = if len > MAX_AMOUNT { MAX_AMOUNT as u32 } else { len as u32 };
        self.group = 0;
        self.service = packet.service;
        self.user = packet.user;
        self.family = packet.source.family as u8;
        self.proven = 0;
        self.port = packet.port;
        self.syns = (packet.transport == Transport::TCP_SYN) as u8;
        self.fragments = packet.fragment as u8;
        self.pressure = ReservePressure::NONE;
        self.weigh(&policy.source.set);
    }

    /// Charges the packet as one that opens `syns` connections. A SYN that is answered with a cookie does not reach a service, and the
    /// acknowledgement of the answer pays for the connection.
    #[inline(always)]
    pub(super) fn opens(&mut self, policy: &Policy, syns: u8) {
        self.syns = syns;
        self.weigh(&policy.source.set);
    }

    /// Charges the packet under a service's limits for each source while `ask` runs. Changed in place: the stack is small.
    #[inline(always)]
    pub(super) fn as_service<R>(
        &mut self,
        policy: &Policy,
        set: &LimitSet,
        ask: impl FnOnce(&Self) -> R,
    ) -> R {
        let hash = self.hash;
        self.group = self.service;
        self.hash = prefilter::group_hash(hash, self.service as u64, policy.prefilter.secret);
        self.weigh(set);
        let answer = ask(self);
        self.group = 0;
        self.hash = hash;
        self.weigh(&policy.source.set);
        answer
    }

    /// Charges the packet under its user's limits while `ask` runs.
    #[inline(always)]
    pub(super) fn as_user<R>(
        &mut self,
        policy: &Policy,
        set: &LimitSet,
        ask: impl FnOnce(&mut Self) -> R,
    ) -> R {
        self.weigh(set);
        let answer = ask(self);
        self.weigh(&policy.source.set);
        answer
    }

    /// Computes the charges under a set. Without a branch, so the verifier has one path through here and not one for every combination of
    /// meters; and without a table of amounts, for which the stack is too small.
    #[inline(always)]
    fn weigh(&mut self, set: &LimitSet) {
        let ones = 1 << Meter::Packets as u32
            | (self.syns as u64) << Meter::Syns as u32
            | (self.fragments as u64) << Meter::Fragments as u32;
        for (charge, limit) in self.charges_q8.iter_mut().zip(&set.limits) {
            // The sign bit, copied to all bits: a comparison would be a branch.
            let bytes = (limit.frac_bits as i32 >> 31) as i64 as u64;
            const { assert!(COUNTS_BYTES == 1 << 31) };
            let amount = (ones >> (limit.meter & 3) & 1) | (self.len as u64 & bytes);
            // A slot without a limit has a price of 0.
            *charge = gcra::bounded_charge_q8(limit, amount);
        }
        let [a, b, c, d] = self.charges_q8;
        // Forgotten: otherwise the verifier would keep apart which limit is the dearest.
        self.dearest_q8 = forget(a.max(b).max(c.max(d)), self.now_q8);
    }

    /// The packet's amount in a meter; 0 if limits in that meter do not apply to it.
    #[inline(always)]
    pub(super) fn amount(&self, meter: u32) -> u64 {
        if meter == Meter::Packets as u32 {
            1
        } else if meter == Meter::Bytes as u32 {
            self.len as u64
        } else if meter == Meter::Syns as u32 {
            self.syns as u64
        } else {
            self.fragments as u64
        }
    }

    /// A limit and the packet's charge under it; `None` if the limit does not apply.
    #[inline(always)]
    pub(super) fn charge<'p>(&self, set: &'p LimitSet, index: usize) -> Option<(&'p Limit, u64)> {
        match self.charges_q8[index] {
            0 => None,
            charge => Some((&set.limits[index], charge)),
        }
    }

    /// The charge under the dearest limit, in 1/256 ns.
    #[inline(always)]
    pub(super) fn dearest_q8(&self) -> u64 {
        self.dearest_q8
    }

    /// The limits of the packet's service for each source.
    #[inline(always)]
    pub(super) fn per_source<'p>(&self, policy: &'p Policy) -> Option<&'p LimitSet> {
        let (_, service) = policy.service(self.service as u32)?;
        Some(&service.per_source)
    }

    /// The tail-call context for the next program.
    #[inline(always)]
    pub(super) fn context(&self, otherwise: Reason) -> TailCallContext {
        TailCallContext { otherwise, service: self.service as u32, user: self.user }
    }

    /// The party that the packet draws on the total of its service as: only those that come first have the reserve.
    #[inline(always)]
    pub(super) fn draws_at_service(&self, party: Party) -> Party {
        self.draws(party, self.pressure.precedes_at_service())
    }

    /// The party that the packet draws on the total of the host as.
    #[inline(always)]
    pub(super) fn draws_at_host(&self, party: Party) -> Party {
        self.draws(party, self.pressure.precedes_at_host())
    }

    #[inline(always)]
    fn draws(&self, party: Party, precedes: u64) -> Party {
        // Without branches, which the verifier would follow: proven sources stay, and of the others those that come first count as tracked.
        let is_proven = party as u64 >> 1;
        let drawn = is_proven << 1 | precedes & (is_proven ^ 1);
        Party::from_code(forget(drawn, self.now_q8) as u32)
    }

    /// The packet as a refusal, for a drop event.
    #[inline(always)]
    pub(super) fn refused(&self, reason: Reason) -> Refused {
        Refused::new(reason, self.family as u16, self.port, self.service, self.len)
    }

    /// Until when the source counts as proven, as a time word; 0 if the packet shows nothing.
    #[inline(always)]
    pub(super) fn proven_until_q8(&self) -> u64 {
        if self.proven == 0 { 0 } else { self.now_q8.wrapping_add(PROVEN_Q8) }
    }

    /// The key of the source's entry for the current group.
    #[inline(always)]
    pub(super) fn entry(&self) -> EntryKey {
        EntryKey { hi: self.key.hi, lo: self.key.lo, group: self.group as u64 }
    }
}
