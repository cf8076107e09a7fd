//! Compares two policies on one capture: packets that one refuses and the other does not.

use foldhash::HashMap;
use ratelimit_ebpf::{frame::Frame, limit::Sender, packet::Family, parse};
use serde::Serialize;

use super::{cause::Cause, engine::Replay, source_tally::SourceId};

/// The most sources that are told apart.
const MAX_SOURCES: usize = 1 << 18;
/// Sources that are listed for each of the two policies.
const LISTED: usize = 10;

/// Packets of one source that arrived, and that each of two policies refused.
#[derive(Clone, Copy, Debug, Default)]
struct PairCount {
    offered: u64,
    refused: [u64; 2],
}

/// Two policies that are replayed on the same packets.
#[derive(Debug, Default)]
pub struct PolicyComparison {
    sources: HashMap<SourceId, PairCount>,
    /// Packets of sources that there was no room for.
    left_out: u64,
    /// Packets that only the first policy refused, only the second, and both.
    packets: [u64; 3],
}

/// What differs between two policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Differences {
    /// Packets that only the policy refused.
    pub refused_by_policy_only_packets: u64,
    /// Packets that only the other refused.
    pub refused_by_against_only_packets: u64,
    /// Packets that both refused.
    pub refused_by_both_packets: u64,
    /// How many sources had packets that only the policy refused.
    pub refused_by_policy_only_sources: u64,
    /// How many sources had packets that only the other policy refused.
    pub refused_by_against_only_sources: u64,
    /// The sources with the most packets that only the policy refused.
    pub refused_by_policy_only: Vec<OneSided>,
    /// The sources with the most packets that only the other policy refused.
    pub refused_by_against_only: Vec<OneSided>,
    /// Packets of sources that there was no room for.
    pub left_out_packets: u64,
}

/// A source with packets that one policy refuses and the other does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OneSided {
    /// The source: an address, or the prefix of a source.
    pub source: String,
    /// Packets that arrived.
    pub offered_packets: u64,
    /// Packets that only one policy refused.
    pub refused_packets: u64,
}

impl PolicyComparison {
    /// Counts a frame and its two causes.
    pub fn add(&mut self, replays: [&Replay; 2], frame: &Frame<'_>, causes: [Cause; 2]) {
        let refused = causes.map(|cause| cause.refuses());
        match refused {
            [true, false] => self.packets[0] += 1,
            [false, true] => self.packets[1] += 1,
            [true, true] => self.packets[2] += 1,
            [false, false] => {}
        }
        let Some(address) = parse::source(frame) else { return };
        // Sources are told apart by the policy with the longer prefixes.
        let finer = |replay: &&Replay| {
            let source = replay.policy().source();
            let is_v4 = matches!(address.family, Family::V4);
            if is_v4 { source.ipv4_prefix() } else { source.ipv6_prefix() }
        };
        let [first, second] = replays;
        let replay = if finer(&second) > finer(&first) { second } else { first };
        let source = SourceId::new(Sender::key_of(&replay.desired().policy, address), address.family);
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(&source) {
            self.left_out += 1;
            return;
        }
        let pair = self.sources.entry(source).or_default();
        pair.offered += 1;
        for (sum, refused) in pair.refused.iter_mut().zip(refused) {
            *sum += u64::from(refused);
        }
    }

    /// The differences between the two replays.
    pub fn differences(&self, replays: [&Replay; 2]) -> Differences {
        let only = |one: usize| {
            let mut rows: Vec<(SourceId, PairCount)> = self
                .sources
                .iter()
                .filter(|(_, pair)| pair.refused[one] > 0 && pair.refused[1 - one] == 0)
                .map(|(source, pair)| (*source, *pair))
                .collect();
            rows.sort_unstable_by_key(|(source, pair)| (u64::MAX - pair.refused[one], source.address()));
            let shown = rows.iter().take(LISTED).map(|(source, pair)| OneSided {
                source: replays[one].shown(*source),
                offered_packets: pair.offered,
                refused_packets: pair.refused[one],
            });
            (rows.len() as u64, shown.collect())
        };
        let ((policy_sources, policy), (against_sources, against)) = (only(0), only(1));
        Differences {
            refused_by_policy_only_packets: self.packets[0],
            refused_by_against_only_packets: self.packets[1],
            refused_by_both_packets: self.packets[2],
            refused_by_policy_only_sources: policy_sources,
            refused_by_against_only_sources: against_sources,
            refused_by_policy_only: policy,
            refused_by_against_only: against,
            left_out_packets: self.left_out,
        }
    }
}
