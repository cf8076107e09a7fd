//! The maps as plain memory and the clock as a number: the packet path without a kernel.
//!
//! `ratelimit replay` runs captures over these tables, and the tests of the packet path run beside the kernel with them. They are the tables of one
//! CPU. The tables of a replay have room for as many sources as the policy's, and evict the one that was not seen for the longest; those of
//! tests have no bound.

mod recency;
mod relay;
mod tables;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
};

use foldhash::HashMap;
use ratelimit_common::{
    abi::{
        Counter, DropEvent, Lease, LimitSet, ListEntry, Policy, Reason, SourceKey, Verdict,
        counter::{COUNTER_SLOTS, Fate, REASON_SLOTS, slot},
        lease::MAX_LEASES,
        link::{LINK_CELLS, LINK_INTERFACES},
        prefix::{AGGREGATION_CELLS, MAX_PREFIXES},
        service::{MAX_SERVICES, TOTAL_SLOTS},
        user::MAX_USERS,
        window::SET_WINDOWS,
    },
    limit::{clients, prefilter},
};
use ratelimit_ebpf::{
    express,
    frame::{Frame, Link},
    mark,
    notes::NOTES,
    pipeline, reject,
    report::QUIET_SLOTS,
    rows::{Row, Rows as _, WordTable},
    tables::{CpuBudget, Successor},
};

use crate::compile::{
    Desired, Destination,
    lists::{self, Lists, Prefix},
};
use recency::RecencyTable;

/// Tables in memory, for one CPU.
#[derive(Debug)]
pub struct Memory {
    /// The precise clock in nanoseconds.
    pub now_ns: Cell<u64>,
    /// Nanoseconds that the coarse clock is behind the precise one.
    pub lag_ns: Cell<u64>,
    policy: Box<Policy>,
    /// The express lane's copy of the policy.
    lane_policy: Box<Policy>,
    /// The words of each table.
    words: [RefCell<Vec<u64>>; WordTable::COUNT],
    /// The row of each key, in the tables whose rows have keys.
    keys: [RefCell<RecencyTable>; WordTable::KEYED],
    user_limits: HashMap<u32, LimitSet>,
    destinations: Vec<Destination>,
    lists: HashMap<Prefix, ListEntry>,
    /// The lengths of listed prefixes of each family, longest first.
    listed_lens: [Vec<u8>; 2],
    /// Leases: what may be spent of users' limits that hold on all hosts together.
    pub leases: RefCell<HashMap<u32, Lease>>,
    /// The kind of link that frames come in by.
    pub link: Cell<Link>,
    /// Tail calls to other programs. None of these programs exists here, so the packet path goes on.
    pub handed_over: RefCell<Vec<Successor>>,
    /// The number of the interface that frames come in by.
    pub interface: Cell<u32>,
    /// Whether frames go through the express lane first.
    pub express: Cell<bool>,
    /// Frames that the express lane dropped.
    pub lane_drops: Cell<u64>,
    /// Drop events that the daemon would have received.
    pub told: RefCell<Vec<DropEvent>>,
    /// Whether the tables refuse new rows.
    pub full: Cell<bool>,
    /// How many of the next compare-and-exchanges fail, as if another CPU had been faster.
    pub lost_races: Cell<u32>,
    /// A value that another CPU writes into a word right after this CPU reads it next.
    pub rival: Cell<Option<(MemoryWord, u64)>>,
    counters: RefCell<Vec<Counter>>,
    /// Whether programs that mark and reject packets are run, and no drop events are kept.
    replays: bool,
    /// The program that the packet was tail-called into.
    successor: Cell<Option<Successor>>,
    notes: RefCell<[u64; NOTES]>,
    /// The counter of the last frame.
    counted: Cell<u32>,
    /// Whether a limit of a service for each source refused the last frame.
    refused_at_service: Cell<bool>,
    /// Segments that a host would have looked up among its connections.
    unproven: Cell<u64>,
    /// The words and counters that packets have written, for tables that can be emptied.
    written: Option<RefCell<Written>>,
}

/// Words and counters that may not be zero any more; some are there twice.
#[derive(Debug, Default)]
struct Written {
    words: Vec<MemoryWord>,
    counters: Vec<u32>,
}

/// The place of one word in its table.
pub type MemoryWord = (WordTable, usize);

/// Rows that a table has from the start: those of arrays.
const fn rows(table: WordTable) -> usize {
    match table {
        WordTable::Source | WordTable::Window | WordTable::KeptWindow | WordTable::Prefix => 0,
        WordTable::Mark
        | WordTable::Proven
        | WordTable::Cell
        | WordTable::Fair
        | WordTable::Asked
        | WordTable::Challenged => prefilter::CELLS as usize,
        WordTable::PrefixCell => AGGREGATION_CELLS,
        WordTable::User => MAX_USERS,
        WordTable::UserWindow => MAX_USERS * SET_WINDOWS,
        WordTable::Spent => MAX_LEASES,
        WordTable::Total | WordTable::Share => TOTAL_SLOTS,
        WordTable::Clients | WordTable::Claimed => clients::SETS as usize,
        WordTable::ClientFilter => clients::FILTER_WORDS,
        WordTable::Syn => MAX_SERVICES,
        WordTable::Budget => CpuBudget::Challenges as usize + 1,
        WordTable::Link => LINK_INTERFACES as usize,
        WordTable::LinkCell => LINK_CELLS as usize,
        WordTable::Quiet => QUIET_SLOTS as usize,
        WordTable::Lane => 1,
    }
}

fn lane_policy(policy: &Policy) -> Box<Policy> {
    let mut copy = Box::new(*policy);
    copy.leave_lenient_to_limiter();
    copy
}

impl Memory {
    /// Empty tables under a policy, without a bound, which keep drop events and tail calls.
    pub fn new(desired: &Desired, lists: Lists) -> Self {
        Self::bounded(desired, lists, u32::MAX)
    }

    /// Empty tables under a policy for a replay: with room for `sources` sources, and with the programs that mark and reject packets.
    pub fn for_replay(desired: &Desired, sources: u32) -> Self {
        Self { replays: true, ..Self::bounded(desired, Lists::new(), sources) }
    }

    fn bounded(desired: &Desired, lists: Lists, sources: u32) -> Self {
        let lists = lists::with_users(lists, desired.user_prefixes());
        let lens = |is_v4: bool| -> Vec<u8> {
            let lens: BTreeSet<u8> =
                lists.keys().filter(|prefix| prefix.is_v4() == is_v4).map(Prefix::len).collect();
            lens.into_iter().rev().collect()
        };
        let prefixes = if sources == u32::MAX { sources } else { MAX_PREFIXES as u32 };
        Self {
            now_ns: Cell::new(1_000_000_000),
            lag_ns: Cell::new(0),
            policy: desired.policy.clone(),
            lane_policy: lane_policy(&desired.policy),
            words: WordTable::ALL.map(|table| RefCell::new(vec![0; rows(table) * table.width()])),
            keys: std::array::from_fn(|table| {
                let bound = if table == WordTable::Prefix as usize { prefixes } else { sources };
                RefCell::new(RecencyTable::new(bound))
            }),
            user_limits: desired.users.iter().copied().collect(),
            destinations: desired.destinations.clone(),
            listed_lens: [lens(true), lens(false)],
            lists: lists.into_iter().collect(),
            leases: RefCell::default(),
            link: Cell::new(Link::Ethernet),
            handed_over: RefCell::default(),
            interface: Cell::new(1),
            express: Cell::new(false),
            lane_drops: Cell::new(0),
            told: RefCell::default(),
            full: Cell::new(false),
            lost_races: Cell::new(0),
            rival: Cell::new(None),
            counters: RefCell::new(vec![Counter { packets: 0, bytes: 0 }; COUNTER_SLOTS as usize]),
            replays: false,
            successor: Cell::new(None),
            notes: RefCell::new([0; NOTES]),
            counted: Cell::new(0),
            refused_at_service: Cell::new(false),
            unproven: Cell::new(0),
            written: None,
        }
    }

    /// Tables like those of [`Memory::new`] that can be emptied at the cost of what was written: making a table of 65 536 cells costs more than
    /// judging a packet.
    pub fn reusable(desired: &Desired, lists: Lists) -> Self {
        Self { written: Some(RefCell::default()), ..Self::new(desired, lists) }
    }

    /// Forgets everything that packets have written to [`Memory::reusable`] tables. Clocks, policy, lists, leases and test settings stay.
    pub fn empty(&self) {
        let written = self.written.as_ref().expect("tables that were made to be emptied");
        let Written { mut words, mut counters } = written.take();
        for word in words.drain(..) {
            self.write(word, 0);
        }
        for slot in counters.drain(..) {
            self.counters.borrow_mut()[slot as usize] = Counter { packets: 0, bytes: 0 };
        }
        // Writing zeros added to the lists, so the drained lists replace them, with their memory.
        written.replace(Written { words, counters });
        for (keys, words) in self.keys.iter().zip(&self.words) {
            keys.borrow_mut().clear();
            words.borrow_mut().clear();
        }
        self.told.borrow_mut().clear();
        self.handed_over.borrow_mut().clear();
        self.successor.set(None);
        self.lane_drops.set(0);
        self.counted.set(0);
        self.refused_at_service.set(false);
        self.unproven.set(0);
        self.notes.replace([0; NOTES]);
    }

    /// Puts another policy in force. Everything that was spent stays.
    pub fn enforce(&mut self, desired: &Desired) {
        self.policy = desired.policy.clone();
        self.lane_policy = lane_policy(&desired.policy);
        self.user_limits = desired.users.iter().copied().collect();
        self.destinations = desired.destinations.clone();
        let width = WordTable::UserWindow.width();
        let mut words = self.words[WordTable::UserWindow as usize].borrow_mut();
        for window in &desired.new_user_windows {
            words[*window as usize * width..][..width].fill(0);
        }
    }

    /// Runs one frame through the packet path.
    pub fn run(&self, frame: &[u8]) -> Verdict {
        self.judge(&Frame::new(self.link.get(), frame))
    }

    /// Runs one frame through the packet path, and through the program that it is tail-called into.
    pub fn judge(&self, frame: &Frame<'_>) -> Verdict {
        self.refused_at_service.set(false);
        if let Some(verdict) = express::drop_known(frame, self) {
            self.lane_drops.set(self.lane_drops.get() + 1);
            return verdict;
        }
        let verdict = pipeline::process(frame, self, self);
        match self.successor.take() {
            Some(Successor::Mark) => mark::mark(frame, self, self),
            Some(Successor::Reject) => reject::reject(frame, self, self),
            _ => verdict,
        }
    }

    /// The counter of the last frame, for its service, reason and fate; see [`slot`].
    pub fn counted(&self) -> u32 {
        self.counted.get()
    }

    /// Whether a limit of a service for each source refused the last frame.
    pub fn refused_at_service(&self) -> bool {
        self.refused_at_service.get()
    }

    /// Segments of untracked sources that were refused here, and that a host would have looked up among its connections first.
    pub fn unproven(&self) -> u64 {
        self.unproven.get()
    }

    /// The policy in force.
    pub fn in_force(&self) -> &Policy {
        &self.policy
    }

    /// The counters of all reasons over all services, for frames with the fate `Decided`.
    pub fn counters(&self) -> Vec<(Reason, Counter)> {
        Reason::ALL.iter().map(|reason| (*reason, self.sum(*reason, Fate::Decided))).collect()
    }

    /// Frames with the fate `Decided` that [`Memory::reusable`] tables have counted since they were emptied.
    pub fn decided(&self) -> usize {
        let written = self.written.as_ref().expect("tables that were made to be emptied").borrow();
        let of_fate = |slot: &&u32| *slot / REASON_SLOTS % Fate::ALL.len() as u32 == Fate::Decided as u32;
        written.counters.iter().filter(of_fate).count()
    }

    /// One counter; service 0 stands for no service.
    pub fn counter(&self, service: u32, reason: Reason, fate: Fate) -> Counter {
        self.counters.borrow()[slot(service, reason, fate) as usize]
    }

    /// A counter of a reason and fate, added up over all services.
    pub fn sum(&self, reason: Reason, fate: Fate) -> Counter {
        let counters = self.counters.borrow();
        let services =
            (0..=MAX_SERVICES as u32).map(|service| counters[slot(service, reason, fate) as usize]);
        services.fold(Counter { packets: 0, bytes: 0 }, |sum, one| Counter {
            packets: sum.packets + one.packets,
            bytes: sum.bytes + one.bytes,
        })
    }

    /// How many sources have an entry.
    pub fn sources(&self) -> usize {
        self.keys[WordTable::Source as usize].borrow().len()
    }

    /// How many prefixes have an entry.
    pub fn prefixes(&self) -> usize {
        self.keys[WordTable::Prefix as usize].borrow().len()
    }

    /// Evicts a source, as the kernel does when the table is full.
    pub fn evict(&self, key: SourceKey) {
        self.forget(Row::Source([key.hi, key.lo, 0]));
    }

    /// Evicts the windows of all sources, except kept ones.
    pub fn evict_windows(&self) {
        self.keys[WordTable::Window as usize].borrow_mut().clear();
    }
}
