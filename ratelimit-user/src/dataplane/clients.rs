//! Reads the memory of known clients, and fills the filter in front of it.

use std::os::fd::AsFd as _;

use aya::maps::{Array, Map, MapData};
use ratelimit_common::limit::{
    clients::{self, Client, FILTER_WORDS, WAYS},
    gcra,
};

use super::{DataplaneError, batch};

/// The part of the filter's bits that may be set, in percent: of packets of unknown sources, one in a hundred passes it then.
const MOST_PERCENT: usize = 10;

/// The memory of known clients. It can be shared between threads, because reading it takes a while.
pub struct ClientMemory {
    all: MapData,
    sets: Array<MapData, [u64; WAYS]>,
    claimed: Array<MapData, [u64; WAYS]>,
    filter: MapData,
}

impl std::fmt::Debug for ClientMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientMemory").finish_non_exhaustive()
    }
}

/// How many clients are known, and what they were served.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KnownClients {
    /// Clients that are known. A source counts once for each service.
    pub clients: u64,
    /// How many of them the filter has.
    pub in_filter: u64,
    /// What all of them are served on average, in packets each second.
    pub packets_per_sec: f64,
}

impl ClientMemory {
    pub(super) fn new(
        all: MapData,
        claimed: Array<MapData, [u64; WAYS]>,
        filter: MapData,
    ) -> Result<Self, DataplaneError> {
        let failed = || DataplaneError::map("open known clients");
        let again =
            all.fd().as_fd().try_clone_to_owned().map_err(DataplaneError::io("open known clients"))?;
        let again = MapData::from_fd(again).map_err(failed())?;
        let sets = Array::try_from(Map::Array(again)).map_err(failed())?;
        Ok(Self { all, sets, claimed, filter })
    }

    /// Fills the filter with the clients that were served last, as many as it has room for, and counts all that are known.
    pub fn refresh(&self, now_ns: u64) -> Result<KnownClients, DataplaneError> {
        let now_q8 = gcra::time_q8(now_ns);
        let (mut known, mut average) = (Vec::new(), 0_u64);
        self.for_each(|set, client| {
            let hash = clients::hash_of(set, client.tag());
            let step = clients::step(hash, now_q8);
            if client.is_known() && !client.is_free(step) {
                known.push((client.age(step), hash));
                average += client.average_at(step);
            }
        })?;
        let (filter, in_filter) = filter(&mut known);
        batch::set_only_value(&self.filter, &filter)
            .map_err(DataplaneError::io("write the filter of known clients"))?;
        let packets_per_sec = average as f64 / clients::AVERAGE_OF_A_PACKET_PER_SEC;
        Ok(KnownClients { clients: known.len() as u64, in_filter, packets_per_sec })
    }

    /// Reads one set.
    pub(super) fn set(&self, set: u32) -> Result<[u64; WAYS], DataplaneError> {
        self.sets.get(&set, 0).map_err(DataplaneError::map("read known clients"))
    }

    /// Reads what the clients of one set have claimed.
    pub(super) fn claimed(&self, set: u32) -> Result<[u64; WAYS], DataplaneError> {
        self.claimed.get(&set, 0).map_err(DataplaneError::map("read what known clients have claimed"))
    }

    fn for_each(&self, mut each: impl FnMut(u32, Client)) -> Result<(), DataplaneError> {
        batch::for_each_batch(self.all.fd().as_fd(), (0_u32, [0_u64; WAYS]), 0_u32, |sets, words| {
            for (set, words) in sets.iter().zip(words) {
                words.iter().filter(|word| **word != 0).for_each(|word| each(*set, Client(*word)));
            }
        })
        .map_err(DataplaneError::io("read known clients"))
    }
}

/// The words of a filter with the clients that were served last, and how many it has. A client is its age in steps, and its hash.
fn filter(known: &mut [(u64, u64)]) -> (Vec<u64>, u64) {
    const MOST_BITS: usize = FILTER_WORDS * u64::BITS as usize * MOST_PERCENT / 100;
    known.sort_unstable();
    let mut words = vec![0_u64; FILTER_WORDS];
    let mut bits = 0;
    let mut count = 0;
    for (_, hash) in known.iter() {
        if bits >= MOST_BITS {
            break;
        }
        let word = &mut words[clients::filter_index(*hash) as usize];
        let before = word.count_ones();
        *word |= clients::filter_bits(*hash);
        bits += (word.count_ones() - before) as usize;
        count += 1;
    }
    (words, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_the_clients_that_were_served_last() {
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 << 32;
        let mut known: Vec<_> = (0..300_000).map(|n| (n / 1_000, hash(n))).collect();
        let (words, count) = filter(&mut known);
        assert!((100_000..120_000).contains(&count), "{count}");
        let is_in = |hash: u64| {
            let bits = clients::filter_bits(hash);
            words[clients::filter_index(hash) as usize] & bits == bits
        };
        assert!((0..100_000).all(|n| is_in(hash(n))));
        let newcomers = (1_000_000..1_100_000).filter(|n| is_in(hash(*n))).count();
        assert!(newcomers < 1_600, "{newcomers} of 100000 pass by chance");
    }

    #[test]
    fn a_place_and_a_name_give_the_hash_again() {
        for hash in [0, 0x1234_5678 << 32, u64::MAX >> 25 << 25] {
            assert_eq!(clients::hash_of(clients::set_index(hash), clients::tag(hash)), hash);
        }
    }
}
