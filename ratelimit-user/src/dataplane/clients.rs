//! Reads and changes the memory of known clients, and fills the filter in front of it.
//!
//! The kernel program changes single clients, and a system call writes whole sets: what the program learns of the clients of a set between reading and writing it, some microseconds,
//! is lost. So sets are read once more right before they are written, and only if they have to be.

use std::{
    ops::Range,
    os::fd::AsFd as _,
    sync::{Mutex, MutexGuard, PoisonError},
};

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
    /// Held while a set is changed, so that two threads do not undo each other's changes.
    changing: Mutex<()>,
    /// Held while the filter is filled, so that a walk that began before clients were imported does not take them out again.
    filling: Mutex<()>,
    /// What was counted last.
    counted: Mutex<KnownClients>,
}

impl std::fmt::Debug for ClientMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientMemory").finish_non_exhaustive()
    }
}

/// How many clients are known, and what they were served.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownClients {
    /// Clients that are known. A source counts once for each service.
    pub clients: u64,
    /// How many of them the filter has.
    pub in_filter: u64,
    /// What all of them are served on average, in packets each second.
    pub packets_per_sec: f64,
    /// What clients are served on average by their [`clients::service_number`], in packets each second.
    pub by_number: Vec<f64>,
}

/// What is remembered of one client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FoundClient {
    /// Whether the client is known; otherwise it is a candidate.
    pub is_known: bool,
    /// Seconds since it was last met, exact to a step of 69 s.
    pub seconds: u64,
    /// What it was served on average, in packets each second, at this moment.
    pub packets_per_sec: f64,
    /// What it owes of its claim, in percent of what it may owe.
    pub owed_percent: u64,
}

/// A client that another memory knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignClient {
    /// The hash of the client in this memory.
    pub hash: u64,
    /// Seconds since it was last met.
    pub seconds: u64,
    /// The average when it was last served, in 1/256 packets per step.
    pub average: u64,
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
        Ok(Self {
            all,
            sets,
            claimed,
            filter,
            changing: Mutex::default(),
            filling: Mutex::default(),
            counted: Mutex::default(),
        })
    }

    /// Fills the filter with the clients that were served last, as many as it has room for, and counts all that are known. Clients that were not met for thirty days are
    /// removed: three weeks later their steps would look young again.
    pub fn refresh(&self, now_ns: u64) -> Result<KnownClients, DataplaneError> {
        let _filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let now_q8 = gcra::time_q8(now_ns);
        let (mut known, mut old) = (Vec::new(), Vec::new());
        let mut averages = [0_u64; clients::SERVICE_NUMBERS];
        self.for_each(|set, client| {
            let hash = clients::hash_of(set, client.tag());
            let step = clients::step(hash, now_q8);
            if client.is_known() && !client.is_free(step) {
                known.push((client.age(step), hash));
                averages[clients::service_number(client.tag())] += client.average_at(step);
            }
            if client.is_expired(step) && old.last() != Some(&set) {
                old.push(set);
            }
        })?;
        for set in old {
            self.change_set(set, |words| {
                for word in words {
                    let client = Client(*word);
                    if client.is_expired(clients::step(clients::hash_of(set, client.tag()), now_q8)) {
                        *word = Client::NONE.0;
                    }
                }
            })?;
        }
        let (filter, in_filter) = filter(&mut known);
        batch::set_only_value(&self.filter, &filter)
            .map_err(DataplaneError::io("write the filter of known clients"))?;
        let by_number =
            averages.map(|average| average as f64 / clients::AVERAGE_OF_A_PACKET_PER_SEC).to_vec();
        let clients = known.len() as u64;
        let counted = KnownClients { clients, in_filter, packets_per_sec: by_number.iter().sum(), by_number };
        self.lock_counted().clone_from(&counted);
        Ok(counted)
    }

    /// Returns what was counted when the filter was filled last, at most a minute ago.
    pub fn counted(&self) -> KnownClients {
        self.lock_counted().clone()
    }

    fn lock_counted(&self) -> MutexGuard<'_, KnownClients> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads one set.
    pub(super) fn set(&self, set: u32) -> Result<[u64; WAYS], DataplaneError> {
        self.sets.get(&set, 0).map_err(DataplaneError::map("read known clients"))
    }

    /// Reads what the clients of one set have claimed.
    pub(super) fn claimed(&self, set: u32) -> Result<[u64; WAYS], DataplaneError> {
        self.claimed.get(&set, 0).map_err(DataplaneError::map("read what known clients have claimed"))
    }

    /// Returns what is remembered of a client.
    pub fn find(&self, hash: u64, now_ns: u64) -> Result<Option<FoundClient>, DataplaneError> {
        let (set, now_q8) = (clients::set_index(hash), gcra::time_q8(now_ns));
        let words = self.set(set)?;
        let (tag, step) = (clients::tag(hash), clients::step(hash, now_q8));
        let is_it = |word: &u64| Client(*word).is_named(tag) && !Client(*word).is_expired(step);
        let Some(way) = words.iter().position(is_it) else { return Ok(None) };
        let client = Client(words[way]);
        Ok(Some(FoundClient {
            is_known: client.is_known(),
            seconds: seconds(client.age(step)),
            packets_per_sec: client.average_at(step) as f64 / clients::AVERAGE_OF_A_PACKET_PER_SEC,
            owed_percent: clients::owed_percent(self.claimed(set)?[way], now_q8),
        }))
    }

    /// Returns the clients of some sets that are known, as another memory would import them.
    pub fn known_in(&self, sets: Range<u32>, now_ns: u64) -> Result<Vec<ForeignClient>, DataplaneError> {
        let now_q8 = gcra::time_q8(now_ns);
        let mut known = Vec::new();
        for set in sets {
            for client in self.set(set)?.map(Client).into_iter().filter(|client| client.is_known()) {
                let hash = clients::hash_of(set, client.tag());
                let step = clients::step(hash, now_q8);
                if !client.is_expired(step) {
                    let (seconds, average) = (seconds(client.age(step)), client.average_when_served(step));
                    known.push(ForeignClient { hash, seconds, average });
                }
            }
        }
        Ok(known)
    }

    /// Makes clients known, and returns how many have a place: in a set of known clients that have larger averages there is none. Of a client that is known already, the larger
    /// claim counts.
    pub fn import(&self, mut foreign: Vec<ForeignClient>, now_ns: u64) -> Result<u64, DataplaneError> {
        let now_q8 = gcra::time_q8(now_ns);
        foreign.sort_unstable();
        let mut placed = 0;
        for of_set in foreign.chunk_by(|one, other| same_set(one.hash, other.hash)) {
            self.change_set(clients::set_index(of_set[0].hash), |words| {
                placed += of_set.iter().filter(|one| place(words, one, now_q8)).count() as u64;
            })?;
        }
        Ok(placed)
    }

    /// Forgets a client, and returns whether it was remembered.
    pub fn forget(&self, hash: u64) -> Result<bool, DataplaneError> {
        let tag = clients::tag(hash);
        self.change_set(clients::set_index(hash), |words| {
            for word in words.iter_mut().filter(|word| Client(**word).is_named(tag)) {
                *word = Client::NONE.0;
            }
        })
    }

    /// Returns all clients with their sets, in the order of sets, and with their ages in the places of their steps.
    pub fn aged(&self, now_ns: u64) -> Result<Vec<(u32, Client)>, DataplaneError> {
        let now_q8 = gcra::time_q8(now_ns);
        let mut aged = Vec::new();
        self.for_each(|set, client| {
            let step = clients::step(clients::hash_of(set, client.tag()), now_q8);
            if !client.is_expired(step) {
                aged.push((set, client.aged(step)));
            }
        })?;
        Ok(aged)
    }

    /// Fills a memory that no program uses yet with clients that were [`aged`](Self::aged) some milliseconds ago. Returns how many are not forgotten.
    pub fn restore(&self, aged: &[(u32, Client)], ms: u64, now_ns: u64) -> Result<u64, DataplaneError> {
        let (now_q8, steps) = (gcra::time_q8(now_ns), clients::steps_in_ms(ms));
        let mut restored = 0;
        let mut sets = Vec::new();
        for of_set in aged.chunk_by(|one, other| one.0 == other.0) {
            let set = of_set[0].0;
            let young = of_set.iter().filter_map(|(_, client)| {
                client.since_aged(steps, clients::step(clients::hash_of(set, client.tag()), now_q8))
            });
            let mut words = [Client::NONE.0; WAYS];
            for (word, client) in words.iter_mut().zip(young) {
                *word = client.0;
                restored += 1;
            }
            sets.push((set, words));
        }
        batch::update(self.all.fd().as_fd(), &sets).map_err(DataplaneError::io("restore known clients"))?;
        Ok(restored)
    }

    /// Reads a set and writes it if it has to change. Returns whether it has.
    fn change_set(&self, set: u32, change: impl FnOnce(&mut [u64; WAYS])) -> Result<bool, DataplaneError> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.set(set)?;
        let mut words = before;
        change(&mut words);
        if words != before {
            batch::update(self.all.fd().as_fd(), &[(set, words)])
                .map_err(DataplaneError::io("change known clients"))?;
        }
        Ok(words != before)
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

/// Seconds in so many steps, rounded up: an importer that divides them finds the same number of steps.
fn seconds(steps: u64) -> u64 {
    (steps * clients::STEP_NS).div_ceil(1_000_000_000)
}

fn same_set(one: u64, other: u64) -> bool {
    clients::set_index(one) == clients::set_index(other)
}

/// Gives a client from another memory its place among the clients of its set, if there is one.
fn place(words: &mut [u64; WAYS], foreign: &ForeignClient, now_q8: u64) -> bool {
    let step = clients::step(foreign.hash, now_q8);
    let met = step.wrapping_sub(foreign.seconds * 1_000_000_000 / clients::STEP_NS);
    let imported = Client::imported(clients::tag(foreign.hash), met, foreign.average);
    let is_known = |client: Client| client.is_known() && !client.is_expired(step);
    if let Some(word) = words.iter_mut().find(|word| Client(**word).is_named(imported.tag())) {
        let there = Client(*word);
        if !is_known(there) || there.average_at(step) < imported.average_at(step) {
            *word = imported.0;
        }
        return true;
    }
    // A free place is worth less than a candidate's.
    let worth = |word: u64| match Client(word) {
        client if is_known(client) => 2 + client.average(),
        client => u64::from(!client.is_free(step)),
    };
    match words.iter_mut().min_by_key(|word| worth(**word)) {
        Some(word) if worth(*word) < 2 + imported.average() => {
            *word = imported.0;
            true
        }
        _ => false,
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

    const NOW_Q8: u64 = 99 << 52;

    /// The word of a client of the first set: known, or a candidate.
    fn word(tag: u64, average: u64, is_known: bool) -> u64 {
        let step = clients::step(clients::hash_of(0, tag), NOW_Q8);
        if is_known { Client::imported(tag, step, average).0 } else { Client::first(tag, step, 1, 0).0 }
    }

    #[test]
    fn an_imported_client_takes_the_cheapest_place() {
        let foreign = |average| ForeignClient { hash: clients::hash_of(0, 9), seconds: 700, average };
        let imported = |average: u64| {
            let step = clients::step(clients::hash_of(0, 9), NOW_Q8);
            Client::imported(9, step.wrapping_sub(10), average).0
        };
        let full: [u64; WAYS] = std::array::from_fn(|way| word(way as u64, 100 + way as u64, true));
        for (what, before, average, at) in [
            ("a free place", [full[0], word(1, 0, false), 0, full[3], 0, 0, 0, 0], 0, Some(2)),
            (
                "a candidate's",
                [full[0], full[1], word(2, 0, false), full[3], full[4], full[5], full[6], full[7]],
                0,
                Some(2),
            ),
            ("the smallest average's", full, 101, Some(0)),
            ("of one that is as large", full, 100, None),
            ("its own, as a candidate", [word(9, 0, false), 0, 0, 0, 0, 0, 0, 0], 5, Some(0)),
            ("its own, with a smaller claim", [0, word(9, 50, true), 0, 0, 0, 0, 0, 0], 60, Some(1)),
        ] {
            let mut words = before;
            assert_eq!(place(&mut words, &foreign(average), NOW_Q8), at.is_some(), "{what}");
            let mut expected = before;
            if let Some(at) = at {
                expected[at] = imported(average);
            }
            assert_eq!(words, expected, "{what}");
        }
        let mut words = [0, word(9, 50, true), 0, 0, 0, 0, 0, 0];
        let before = words;
        assert!(place(&mut words, &foreign(50), NOW_Q8), "it has a place");
        assert_eq!(words, before, "of the same average, the younger one has the larger claim");
    }

    #[test]
    fn a_place_and_a_name_give_the_hash_again() {
        for hash in [0, 0x1234_5678 << 32, u64::MAX >> 25 << 25] {
            assert_eq!(clients::hash_of(clients::set_index(hash), clients::tag(hash)), hash);
        }
    }
}
