//! Packets by source, for a bounded number of sources.
//!
//! When there is no more room, the lighter half of the sources is dropped. A source that comes back after that counts from 0, so the numbers of a source
//! may be too low by at most those of the heaviest dropped source: `missing_packets` is that number, and 0 if no source was dropped.

use std::net::IpAddr;

use foldhash::HashMap;
use ratelimit_common::abi::{SourceKey, Verdict};
use ratelimit_ebpf::packet::{Address, Family};

use super::cause::Cause;

/// Causes that are told apart for one source; packets of further causes count for the last one.
const MAX_CAUSES: usize = 8;

/// A source: its address, cut to the prefix of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId {
    hi: u64,
    lo: u64,
    is_v4: bool,
}

impl SourceId {
    /// The source of an address that is already cut to its prefix.
    pub fn new(key: SourceKey, family: Family) -> Self {
        Self { hi: key.hi, lo: key.lo, is_v4: matches!(family, Family::V4) }
    }

    /// The source of a whole address.
    pub fn of(address: Address) -> Self {
        Self::new(address.key, address.family)
    }

    /// The address of the source.
    pub fn address(&self) -> IpAddr {
        let octets = SourceKey { hi: self.hi, lo: self.lo }.octets();
        match self.is_v4 {
            true => IpAddr::from([octets[12], octets[13], octets[14], octets[15]]),
            false => IpAddr::from(octets),
        }
    }
}

/// The packets of one source by what happened to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceCount {
    /// Packets that arrived.
    pub offered_packets: u64,
    /// Bytes of the packets that arrived.
    pub offered_bytes: u64,
    /// Packets that were handed on.
    pub passed_packets: u64,
    /// Packets that were refused, whatever their fate.
    pub refused_packets: u64,
    /// Packets by cause.
    pub causes: Vec<(Cause, u64)>,
}

impl SourceCount {
    fn add(&mut self, cause: Cause, bytes: u64) {
        self.offered_packets += 1;
        self.offered_bytes += bytes;
        self.passed_packets += u64::from(cause.verdict() == Verdict::Pass);
        self.refused_packets += u64::from(cause.refuses());
        let full = self.causes.len() >= MAX_CAUSES;
        match self.causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, packets)) => *packets += 1,
            None if full => self.causes[MAX_CAUSES - 1].1 += 1,
            None => self.causes.push((cause, 1)),
        }
    }

    /// The most frequent cause that satisfies a condition.
    pub fn main_cause(&self, among: impl Fn(&Cause) -> bool) -> Option<Cause> {
        self.causes
            .iter()
            .filter(|(cause, _)| among(cause))
            .max_by_key(|(_, packets)| *packets)
            .map(|(cause, _)| *cause)
    }
}

/// The packets of all sources.
#[derive(Clone, Debug)]
pub struct SourceTally {
    bound: usize,
    sources: HashMap<SourceId, SourceCount>,
    gone: u64,
    missing_packets: u64,
}

impl SourceTally {
    /// A tally with room for `bound` sources.
    pub fn new(bound: usize) -> Self {
        Self { bound: bound.max(2), sources: HashMap::default(), gone: 0, missing_packets: 0 }
    }

    /// Adds a packet.
    pub fn add(&mut self, source: SourceId, cause: Cause, bytes: u64) {
        if self.sources.len() >= self.bound && !self.sources.contains_key(&source) {
            self.let_go();
        }
        self.sources.entry(source).or_default().add(cause, bytes);
    }

    /// Drops the lighter half of the sources.
    fn let_go(&mut self) {
        let mut packets: Vec<u64> = self.sources.values().map(|count| count.offered_packets).collect();
        let half = packets.len() / 2;
        let (_, heaviest, _) = packets.select_nth_unstable(half.saturating_sub(1));
        let heaviest = *heaviest;
        let mut left = half.max(1);
        self.sources.retain(|_, count| {
            let goes = left > 0 && count.offered_packets <= heaviest;
            left -= usize::from(goes);
            !goes
        });
        self.gone += (half.max(1) - left) as u64;
        self.missing_packets += heaviest;
    }

    /// All sources that are still in the tally.
    pub fn iter(&self) -> impl Iterator<Item = (&SourceId, &SourceCount)> {
        self.sources.iter()
    }

    /// The sources with the most packets, heaviest first; of equals the lower address first.
    pub fn largest(&self, count: usize) -> Vec<(SourceId, &SourceCount)> {
        let mut all: Vec<_> = self.sources.iter().map(|(source, count)| (*source, count)).collect();
        all.sort_unstable_by_key(|(source, count)| (u64::MAX - count.offered_packets, source.address()));
        all.truncate(count);
        all
    }

    /// How many sources there were; too many if some came back after they were dropped.
    pub fn seen(&self) -> u64 {
        self.sources.len() as u64 + self.gone
    }

    /// By how many packets the numbers of a source may be too low.
    pub fn missing_packets(&self) -> u64 {
        self.missing_packets
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::{
        Reason,
        counter::{Fate, slot},
    };

    use super::*;

    fn source(number: u32) -> SourceId {
        SourceId::of(Address::v4(number.to_be()))
    }

    fn cause(reason: Reason) -> Cause {
        Cause::of(slot(0, reason, Fate::Decided), false)
    }

    #[test]
    fn heavy_sources_stay_when_there_is_no_room_and_what_may_be_missing_is_said() {
        let mut tally = SourceTally::new(100);
        for round in 0..1_000_u32 {
            // Three heavy sources among a thousand that send one packet each.
            for heavy in 1..=3 {
                tally.add(source(heavy), cause(Reason::LimitPackets), 60);
            }
            tally.add(source(1_000 + round), cause(Reason::Conforming), 60);
        }
        let largest = tally.largest(3);
        assert_eq!(largest.iter().map(|(source, _)| *source).collect::<Vec<_>>(), [1, 2, 3].map(source));
        for (_, count) in largest {
            assert_eq!((count.offered_packets, count.passed_packets, count.refused_packets), (1000, 0, 1000));
        }
        assert!(tally.iter().count() <= 100);
        assert_eq!(tally.seen(), 1003);
        assert!(tally.missing_packets() > 0 && tally.missing_packets() < 30, "{}", tally.missing_packets());
    }

    #[test]
    fn the_cause_of_a_source_is_that_of_most_of_its_packets() {
        let mut count = SourceCount::default();
        for reason in [
            Reason::Conforming,
            Reason::Conforming,
            Reason::LimitSyns,
            Reason::LimitBytes,
            Reason::LimitBytes,
        ] {
            count.add(cause(reason), 60);
        }
        assert_eq!(count.main_cause(Cause::refuses), Some(cause(Reason::LimitBytes)));
        assert_eq!(
            count.main_cause(|_| true).map(|cause| cause.refuses()),
            Some(true),
            "of equals the later"
        );
    }
}
