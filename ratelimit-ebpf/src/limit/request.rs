//! One packet's question to the limits.

use ratelimit_common::{
    abi::{EntryKey, Limit, LimitSet, MAX_LIMITS, Meter, Policy, Reason, SourceKey, limit::COUNTS_BYTES},
    limit::{
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

/// What a packet asks for, from whom, and when. Plain numbers, because it is handed by address to functions that the
/// verifier checks one by one: see [`super::Stages`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PacketCharge {
    /// The source of the packet.
    pub(super) key: SourceKey,
    /// Where source and group belong in the prefilter.
    pub(super) hash: u64,
    /// The time of the packet.
    pub(super) now_q8: u64,
    /// What the packet costs under each limit that is asked; 0 where the limit does not apply to it.
    pub(super) charges_q8: [u64; MAX_LIMITS],
    /// What it costs under the limit that it costs most: enough for a shared word to answer for all of them. 0 if none applies.
    dearest_q8: u64,
    /// Length of the frame, or [`MAX_AMOUNT`] if that is less.
    pub(super) len: u32,
    /// Which limits of the source are asked: 0 for those of every source, or the number of a service.
    pub(super) group: u16,
    /// The service that it is for, as the table of ports has it.
    pub(super) service: u16,
    /// The user that its source belongs to, as the lists have it.
    pub(super) user: u16,
    /// Address family, which prefix aggregation goes by: 0 for IPv4, 1 for IPv6.
    pub(super) family: u8,
    /// 1 if it has shown a connection.
    pub(super) proven: u8,
    /// Destination port; 0 without one.
    port: u16,
    /// 1 if it opens a connection.
    pub(super) syns: u8,
    /// 1 if it is a piece of a larger packet.
    pub(super) fragments: u8,
}

impl PacketCharge {
    /// Room for a question.
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
    };

    /// Asks for what every source may have.
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        policy: &Policy,
        packet: &Packet,
        Sender { key, hash, .. }: Sender,
        len: u64,
        now_q8: u64,
    ) {
        // Field by field: as a whole it would be put together on the stack first.
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
        self.weigh(&policy.source.set);
    }

    /// Weighs the packet as one that opens so many connections. What is answered with a cookie does not reach a service, and the
    /// acknowledgement of the answer pays for the connection.
    #[inline(always)]
    pub(super) fn opens(&mut self, policy: &Policy, syns: u8) {
        self.syns = syns;
        self.weigh(&policy.source.set);
    }

    /// Lets the packet ask for what its source may have of a service, while `ask` runs. In place: the stack is small.
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

    /// Lets the packet ask for what its user may have, while `ask` runs.
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

    /// Weighs the packet under limits. Without a branch, so the verifier has one way through here and not one for every combination of
    /// meters; and without a table of amounts, for which the stack is too small.
    #[inline(always)]
    fn weigh(&mut self, set: &LimitSet) {
        let ones = 1 << Meter::Packets as u32
            | (self.syns as u64) << Meter::Syns as u32
            | (self.fragments as u64) << Meter::Fragments as u32;
        for (charge, limit) in self.charges_q8.iter_mut().zip(&set.limits) {
            // The sign bit, all over: a comparison would be a branch.
            let bytes = (limit.frac_bits as i32 >> 31) as i64 as u64;
            const { assert!(COUNTS_BYTES == 1 << 31) };
            let amount = (ones >> (limit.meter & 3) & 1) | (self.len as u64 & bytes);
            // A slot without a limit has a price of 0.
            *charge = gcra::bounded_charge_q8(limit, amount);
        }
        let [a, b, c, d] = self.charges_q8;
        // Forgotten: the verifier would keep apart which limit is the dearest.
        self.dearest_q8 = forget(a.max(b).max(c.max(d)), self.now_q8);
    }

    /// What the packet counts as; 0 if a limit of that meter is not for it.
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

    /// A limit and what the packet costs under it; `None` if the limit does not apply.
    #[inline(always)]
    pub(super) fn charge<'p>(&self, set: &'p LimitSet, index: usize) -> Option<(&'p Limit, u64)> {
        match self.charges_q8[index] {
            0 => None,
            charge => Some((&set.limits[index], charge)),
        }
    }

    /// What the packet costs under the limit that it costs most.
    #[inline(always)]
    pub(super) fn dearest_q8(&self) -> u64 {
        self.dearest_q8
    }

    /// What one source may have of the service that the packet is for.
    #[inline(always)]
    pub(super) fn per_source<'p>(&self, policy: &'p Policy) -> Option<&'p LimitSet> {
        let (_, service) = policy.service(self.service as u32)?;
        Some(&service.per_source)
    }

    /// What the next program gets to know.
    #[inline(always)]
    pub(super) fn context(&self, otherwise: Reason) -> TailCallContext {
        TailCallContext { otherwise, service: self.service as u32, user: self.user }
    }

    /// The packet as a refusal, for the report to the daemon.
    #[inline(always)]
    pub(super) fn refused(&self, reason: Reason) -> Refused {
        Refused::new(reason, self.family as u16, self.port, self.service, self.len)
    }

    /// Until when its source counts as proven; 0 if it has nothing to show.
    #[inline(always)]
    pub(super) fn proven_until_q8(&self) -> u64 {
        if self.proven == 0 { 0 } else { self.now_q8.wrapping_add(PROVEN_Q8) }
    }

    /// Whose entry it is.
    #[inline(always)]
    pub(super) fn entry(&self) -> EntryKey {
        EntryKey { hi: self.key.hi, lo: self.key.lo, group: self.group as u64 }
    }
}
