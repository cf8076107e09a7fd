//! The maps as plain memory and the clock as a number: the packet path without a kernel.
//!
//! `ratelimit replay` runs captures over these tables, and the tests of the packet path run beside the kernel with them. They are the tables of one
//! CPU. A replay's tables have room for as many sources as the policy's, and let go of the one that was not seen for the longest; those of
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
    limit::prefilter,
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
    /// The precise clock.
    pub now_ns: Cell<u64>,
    /// How far the coarse clock is behind it.
    pub lag_ns: Cell<u64>,
    policy: Box<Policy>,
    /// What the express lane goes by.
    lane_policy: Box<Policy>,
    /// The words of each table.
    words: [RefCell<Vec<u64>>; WordTable::COUNT],
    /// Which row each key has, in the tables whose rows have keys.
    keys: [RefCell<RecencyTable>; WordTable::KEYED],
    user_limits: HashMap<u32, LimitSet>,
    destinations: Vec<Destination>,
    lists: HashMap<Prefix, ListEntry>,
    /// Lengths of listed prefixes of each family, the longest first.
    listed_lens: [Vec<u8>; 2],
    /// What may be spent of users' limits that hold on all hosts together.
    pub leases: RefCell<HashMap<u32, Lease>>,
    /// What frames begin with.
    pub link: Cell<Link>,
    /// What was for another program. There is none here, so the packet goes on.
    pub handed_over: RefCell<Vec<Successor>>,
    /// The number of the interface that frames come in by.
    pub interface: Cell<u32>,
    /// Whether frames go through the express lane first.
    pub express: Cell<bool>,
    /// Frames that the express lane dropped.
    pub lane_drops: Cell<u64>,
    /// What the daemon would have been told.
    pub told: RefCell<Vec<DropEvent>>,
    /// Whether the table refuses new sources.
    pub full: Cell<bool>,
    /// How many of the next compare-and-exchanges fail, as if another CPU had been faster.
    pub lost_races: Cell<u32>,
    /// What another CPU puts into a word right after this one has next read it.
    pub rival: Cell<Option<(MemoryWord, u64)>>,
    counters: RefCell<Vec<Counter>>,
    /// Whether packets that are handed to another program are judged by that program, and nobody is told of anything.
    replays: bool,
    /// The program that the packet was handed to.
    successor: Cell<Option<Successor>>,
    notes: RefCell<[u64; NOTES]>,
    /// The counter that the last frame was counted in.
    counted: Cell<u32>,
    /// Whether what a source may have of a service refused the last frame.
    refused_at_service: Cell<bool>,
    /// Segments that would have been looked up among the host's connections.
    unproven: Cell<u64>,
    /// What packets have written, if the tables are emptied for the next ones.
    written: Option<RefCell<Written>>,
}

/// Words and counters that are not zero any more, some of them twice.
#[derive(Debug, Default)]
struct Written {
    words: Vec<MemoryWord>,
    counters: Vec<u32>,
}

/// The place of one word in its table.
pub type MemoryWord = (WordTable, usize);

/// Rows that a table begins with: those of arrays.
const fn rows(table: WordTable) -> usize {
    match table {
        WordTable::Source | WordTable::Window | WordTable::KeptWindow | WordTable::Prefix => 0,
        WordTable::Mark | WordTable::Proven | WordTable::Cell | WordTable::Fair | WordTable::Asked => {
            prefilter::CELLS as usize
        }
        WordTable::PrefixCell => AGGREGATION_CELLS,
        WordTable::User => MAX_USERS,
        WordTable::UserWindow => MAX_USERS * SET_WINDOWS,
        WordTable::Spent => MAX_LEASES,
        WordTable::Total | WordTable::Share => TOTAL_SLOTS,
        WordTable::Syn => MAX_SERVICES,
        WordTable::Budget => CpuBudget::Reports as usize + 1,
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
    /// Empty tables under a policy, without a bound, which remember what they told and handed over.
    pub fn new(desired: &Desired, lists: Lists) -> Self {
        Self::bounded(desired, lists, u32::MAX)
    }

    /// Empty tables under a policy for a replay: with room for so many sources, and with the programs that marked and rejected packets end in.
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

    /// Tables as [`Memory::new`] makes them, which can be emptied at the price of what was written: a table of 65 536 cells costs more to make than
    /// a packet to judge.
    pub fn reusable(desired: &Desired, lists: Lists) -> Self {
        Self { written: Some(RefCell::default()), ..Self::new(desired, lists) }
    }

    /// Forgets what packets have left in [`Memory::reusable`] tables. Clocks, policy, lists, leases and what a test has set stay.
    pub fn empty(&self) {
        let written = self.written.as_ref().expect("tables that were made to be emptied");
        let Written { mut words, mut counters } = written.take();
        for word in words.drain(..) {
            self.write(word, 0);
        }
        for slot in counters.drain(..) {
            self.counters.borrow_mut()[slot as usize] = Counter { packets: 0, bytes: 0 };
        }
        // Zeros were written down too; the room is used again.
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

    /// Puts another policy in force. What was spent stays.
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

    /// Runs one frame through the packet path, and through the program that it ends in.
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

    /// Where the last frame was counted: which service, reason and fate, see [`slot`].
    pub fn counted(&self) -> u32 {
        self.counted.get()
    }

    /// Whether the last frame was refused by what one source may have of its service.
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

    /// All counters, all services together, without what had another fate than the reason's own.
    pub fn counters(&self) -> Vec<(Reason, Counter)> {
        Reason::ALL.iter().map(|reason| (*reason, self.sum(*reason, Fate::Decided))).collect()
    }

    /// Frames that [`Memory::reusable`] tables have counted since they were empty, without what had another fate than the reason's own.
    pub fn decided(&self) -> usize {
        let written = self.written.as_ref().expect("tables that were made to be emptied").borrow();
        let of_fate = |slot: &&u32| *slot / REASON_SLOTS % Fate::ALL.len() as u32 == Fate::Decided as u32;
        written.counters.iter().filter(of_fate).count()
    }

    /// One counter; service 0 is none.
    pub fn counter(&self, service: u32, reason: Reason, fate: Fate) -> Counter {
        self.counters.borrow()[slot(service, reason, fate) as usize]
    }

    /// What a reason counted, all services together.
    pub fn sum(&self, reason: Reason, fate: Fate) -> Counter {
        let counters = self.counters.borrow();
        let services =
            (0..=MAX_SERVICES as u32).map(|service| counters[slot(service, reason, fate) as usize]);
        services.fold(Counter { packets: 0, bytes: 0 }, |sum, one| Counter {
            packets: sum.packets + one.packets,
            bytes: sum.bytes + one.bytes,
        })
    }

    /// Sources that have an entry.
    pub fn sources(&self) -> usize {
        self.keys[WordTable::Source as usize].borrow().len()
    }

    /// Prefixes that have an entry.
    pub fn prefixes(&self) -> usize {
        self.keys[WordTable::Prefix as usize].borrow().len()
    }

    /// Forgets a source, as the kernel does when the table is full.
    pub fn evict(&self, key: SourceKey) {
        self.forget(Row::Source([key.hi, key.lo, 0]));
    }

    /// Forgets the windows of all sources that newcomers can displace.
    pub fn evict_windows(&self) {
        self.keys[WordTable::Window as usize].borrow_mut().clear();
    }
}
