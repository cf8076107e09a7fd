//! One packet's question to the limits.

use ratelimit_common::{
    abi::{Limit, MAX_LIMITS, Meter, Policy, SourceKey},
    limit::gcra::{self, MAX_AMOUNT},
};

use super::sender::Sender;
use crate::packet::{Family, Packet, Transport};

/// What a packet asks for, from whom, and when. Plain numbers, because it is handed by address to functions that the
/// verifier checks one by one: see [`super::Stages`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Request {
    /// The source.
    pub(super) key: SourceKey,
    /// Where it belongs in the gate.
    pub(super) hash: u64,
    /// When.
    pub(super) now_q8: u64,
    /// Length of the frame.
    pub(super) len: u64,
    /// What the packet costs under each limit of its source; 0 where the limit does not apply to it.
    pub(super) charges_q8: [u64; MAX_LIMITS],
    /// The service that it is for, as the table of ports has it.
    pub(super) service: u32,
    /// Which ladder it is on: 0 for IPv4, 1 for IPv6.
    pub(super) family: u32,
}

impl Request {
    /// Weighs a packet under every limit of its source, once.
    ///
    /// Without a branch: what a limit counts is looked up and multiplied, so the verifier has one way through here and not one for
    /// every combination of meters.
    #[inline(always)]
    pub(super) fn new(
        policy: &Policy,
        packet: &Packet,
        sender: Sender,
        len: u64,
        now_q8: u64,
        service: u32,
    ) -> Self {
        let len = if len > MAX_AMOUNT { MAX_AMOUNT } else { len };
        let syns = (packet.transport == Transport::TcpSyn) as u64;
        let amounts = [1, len, syns, packet.fragment as u64];
        const { assert!(Meter::Packets as u32 == 0 && Meter::Bytes as u32 == 1) };
        const { assert!(Meter::Syns as u32 == 2 && Meter::Fragments as u32 == 3) };
        let mut charges_q8 = [0; MAX_LIMITS];
        for (charge, limit) in charges_q8.iter_mut().zip(&policy.source.limits) {
            // A slot without a limit has a price of 0.
            *charge = gcra::bounded_charge_q8(limit, amounts[limit.meter as usize & (amounts.len() - 1)]);
        }
        let family = match packet.source.family {
            Family::V4 => 0,
            Family::V6 => 1,
        };
        Self { key: sender.key, hash: sender.hash, now_q8, len, charges_q8, service, family }
    }

    /// A limit of the source and what the packet costs under it; `None` if the limit does not apply.
    #[inline(always)]
    pub(super) fn charge<'p>(&self, policy: &'p Policy, index: usize) -> Option<(&'p Limit, u64)> {
        match self.charges_q8[index] {
            0 => None,
            charge => Some((&policy.source.limits[index], charge)),
        }
    }

    /// What the packet costs under the limit that it costs most: enough for a shared word to answer for all of them. 0 if none
    /// applies.
    #[inline(always)]
    pub(super) fn dearest_q8(&self) -> u64 {
        let [a, b, c, d] = self.charges_q8;
        a.max(b).max(c.max(d))
    }
}
