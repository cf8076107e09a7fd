//! The last refused packets of the sources that were refused last.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use super::Sighting;
use crate::policy::Prefix;

/// The most sources that are remembered; the one refused longest ago is forgotten first.
const SOURCES: usize = 4096;
/// The most packets that are remembered of one source.
const PACKETS: usize = 8;

/// A bounded memory of refused packets.
#[derive(Debug, Default)]
pub struct Recent {
    sources: HashMap<Prefix, RecentPackets>,
    /// Sources in the order in which they are forgotten: by the turn of the last packet.
    order: BTreeMap<u64, Prefix>,
    turn: u64,
}

#[derive(Debug, Default)]
struct RecentPackets {
    turn: u64,
    packets: VecDeque<Arc<Sighting>>,
}

impl Recent {
    /// Remembers a packet.
    pub fn remember(&mut self, sighting: Arc<Sighting>) {
        let source = sighting.source;
        if !self.sources.contains_key(&source)
            && self.sources.len() >= SOURCES
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.sources.remove(&oldest);
        }
        self.turn += 1;
        let last = self.sources.entry(source).or_default();
        self.order.remove(&last.turn);
        self.order.insert(self.turn, source);
        last.turn = self.turn;
        if last.packets.len() == PACKETS {
            last.packets.pop_front();
        }
        last.packets.push_back(sighting);
    }

    /// The last packets of a source, newest first.
    pub fn of(&self, source: &Prefix) -> impl Iterator<Item = &Sighting> {
        self.sources.get(source).into_iter().flat_map(|last| last.packets.iter().rev().map(Arc::as_ref))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ratelimit_common::abi::{Reason, counter::Fate};

    use super::*;

    fn source(number: u32) -> Prefix {
        Prefix::masked(Ipv4Addr::from_bits(number).into(), 32)
    }

    fn packet(number: u32, time_ns: u64) -> Arc<Sighting> {
        Arc::new(Sighting {
            time_ns,
            unix_ms: 0,
            source: source(number),
            reason: Reason::LimitPackets,
            fate: Fate::Decided,
            service: None,
            port: 53,
            len: 60,
        })
    }

    fn times(recent: &Recent, number: u32) -> Vec<u64> {
        recent.of(&source(number)).map(|one| one.time_ns).collect()
    }

    #[test]
    fn the_last_packets_of_a_source_are_remembered_newest_first_and_no_more_of_them() {
        let mut recent = Recent::default();
        (1..=20).for_each(|time| recent.remember(packet(7, time)));
        recent.remember(packet(8, 21));
        assert_eq!(times(&recent, 7), [20, 19, 18, 17, 16, 15, 14, 13]);
        assert_eq!(times(&recent, 8), [21]);
        assert_eq!(times(&recent, 9), [0; 0]);
    }

    #[test]
    fn the_source_that_was_refused_longest_ago_is_forgotten_first() {
        let mut recent = Recent::default();
        let most = SOURCES as u32;
        (0..most).for_each(|number| recent.remember(packet(number, 1)));
        recent.remember(packet(0, 2));
        recent.remember(packet(most, 3));
        assert_eq!(times(&recent, 0), [2, 1], "it was refused again");
        assert_eq!(times(&recent, 1), [0; 0]);
        assert_eq!(times(&recent, 2), [1]);
        assert_eq!(times(&recent, most), [3]);
    }

    #[test]
    fn a_million_sources_take_no_more_room_than_there_is() {
        let mut recent = Recent::default();
        (0..1_000_000).for_each(|number| recent.remember(packet(number % 500_000, u64::from(number))));
        assert_eq!((recent.sources.len(), recent.order.len()), (SOURCES, SOURCES));
        assert!(recent.sources.values().all(|last| last.packets.len() <= PACKETS));
        assert_eq!(times(&recent, 499_999), [999_999]);
    }
}
