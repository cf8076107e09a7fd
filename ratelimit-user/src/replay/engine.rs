//! Replays one policy on the packets of a capture.

use std::collections::BTreeMap;

use ratelimit_common::abi::{Counter, Reason, Verdict};
use ratelimit_ebpf::{frame::Frame, limit::Sender, packet::Address, parse};

use super::{
    FACTS,
    cause::Cause,
    series::{Bin, Series},
    source_tally::{SourceId, SourceTally},
};
use crate::{
    capture::Arrival,
    compile::{self, Desired},
    memory::Memory,
    policy::Policy,
};

/// The most sources that a report tells apart.
const MAX_SOURCES: u32 = 1 << 18;

/// A policy that is being replayed.
#[derive(Debug)]
pub struct Replay {
    policy: Policy,
    desired: Desired,
    memory: Memory,
    causes: BTreeMap<Cause, Counter>,
    series: Series,
    sources: SourceTally,
    first_ns: Option<u64>,
    /// When the first and the last refused packet arrived, in nanoseconds since 1970.
    refused: Option<(u64, u64)>,
    cut: u64,
}

impl Replay {
    /// A replay of a policy with nothing spent, on a host with [`FACTS`].
    pub fn new(policy: &Policy) -> Self {
        Self::of(policy, compile::desired(policy, &FACTS, 1, None))
    }

    /// A replay of a policy that was compiled for a host already.
    pub fn of(policy: &Policy, desired: Desired) -> Self {
        let sources = policy.source().table_entries();
        Self {
            policy: policy.clone(),
            memory: Memory::for_replay(&desired, sources),
            desired,
            causes: BTreeMap::new(),
            series: Series::default(),
            sources: SourceTally::new(sources.min(MAX_SOURCES) as usize),
            first_ns: None,
            refused: None,
            cut: 0,
        }
    }

    /// Runs a frame through the packet path at a time of the replay's clock, and counts it.
    pub fn arrive(&mut self, arrival: &Arrival<'_>, now_ns: u64) -> Cause {
        let Arrival { unix_ns, frame, is_cut, .. } = arrival;
        self.memory.link.set(frame.link());
        self.memory.now_ns.set(now_ns);
        let verdict = self.memory.judge(frame);
        let cause = Cause::of(self.memory.counted(), self.memory.refused_at_service());
        debug_assert_eq!(verdict, cause.verdict(), "{cause:?}");
        let len = frame.len();
        self.cut += u64::from(*is_cut && cause.reason == Reason::Truncated);
        let counter = self.causes.entry(cause).or_insert(Counter { packets: 0, bytes: 0 });
        counter.packets += 1;
        counter.bytes += len;
        let passed = u64::from(verdict == Verdict::Pass);
        let bin = Bin {
            offered_packets: 1,
            offered_bytes: len,
            passed_packets: passed,
            passed_bytes: passed * len,
            refused_packets: u64::from(cause.refuses()),
        };
        let first_ns = *self.first_ns.get_or_insert(*unix_ns);
        self.series.add(unix_ns.saturating_sub(first_ns) / 1_000_000_000, &bin);
        if cause.refuses() {
            let (first, _) = *self.refused.get_or_insert((*unix_ns, *unix_ns));
            self.refused = Some((first, *unix_ns));
        }
        if let Some(source) = self.source(frame) {
            self.sources.add(source, cause, len);
        }
        cause
    }

    /// The source of a frame, by the policy's prefix lengths.
    fn source(&self, frame: &Frame<'_>) -> Option<SourceId> {
        let address: Address = parse::source(frame)?;
        Some(SourceId::new(Sender::key_of(self.memory.in_force(), address), address.family))
    }

    /// The policy that is replayed.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The compiled policy.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// Packets and bytes by cause.
    pub fn causes(&self) -> &BTreeMap<Cause, Counter> {
        &self.causes
    }

    /// Packets over time.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Packets by source.
    pub fn sources(&self) -> &SourceTally {
        &self.sources
    }

    /// When the first packet arrived, in nanoseconds since 1970.
    pub fn first_ns(&self) -> Option<u64> {
        self.first_ns
    }

    /// When the first and the last refused packet arrived, in nanoseconds since 1970.
    pub fn refused(&self) -> Option<(u64, u64)> {
        self.refused
    }

    /// Packets that end inside a header, because only a part of them was captured.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Refused segments that a host would have looked up among its connections first.
    pub fn unproven(&self) -> u64 {
        self.memory.unproven()
    }
}
