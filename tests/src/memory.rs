//! The maps as plain memory and the clock as a number: the packet path without a kernel.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    net::{Ipv4Addr, Ipv6Addr},
};

use ratelimit_common::{
    abi::{
        self, Bucket, Clock, Counter, DropEvent, EntryKey, Event, Lease, LimitSet, ListEntry, MAX_LIMITS,
        Policy, PrefixKey, Reason, SourceKey, Verdict,
        cell::NEGATIVE_ENTRIES,
        counter::{COUNTER_SLOTS, Fate, slot},
        destination::DestinationKey,
        lease::MAX_LEASES,
        link::{LINK_CELLS, LINK_INTERFACES},
        prefix::AGGREGATION_CELLS,
        service::{MAX_SERVICES, MAX_TOTALS, TOTAL_SLOTS},
        user::MAX_USERS,
        window::SET_WINDOWS,
    },
    limit::{prefilter, window::sliding::SUB_WINDOWS},
};
use ratelimit_ebpf::{
    frame::{Frame, Link},
    limit::{Leaves, Stages},
    link,
    packet::{Address, Family},
    pipeline,
    report::QUIET_SLOTS,
    service,
    tables::{CpuBudget, InsertError, Relay, Successor, Tables, TailCallContext},
};
use ratelimit_user::compile::{
    Desired, Destination,
    lists::{self, Lists, Prefix},
};

/// Words of a cell: its bucket, until when it is tracked, its negative entries.
const CELL_WORDS: usize = 1 + NEGATIVE_ENTRIES;
/// Words of a share: pools, then refusals.
const SHARE_WORDS: usize = size_of::<abi::Share>() / 8;

/// Words of a bucket: one for each limit, and until when its source is proven.
const BUCKET_WORDS: usize = MAX_LIMITS + 1;

/// Handles of users' buckets start here, far above those of sources.
const USERS_AT: usize = 1 << 32;

/// Tables in memory, for one CPU.
#[derive(Debug)]
pub struct Memory {
    /// The clock.
    pub now_ns: Cell<u64>,
    policy: Box<Policy>,
    users: RefCell<Vec<u64>>,
    user_limits: HashMap<u32, LimitSet>,
    destinations: Vec<Destination>,
    lists: Lists,
    /// Where each source's words start.
    sources: RefCell<HashMap<[u64; 3], usize>>,
    buckets: RefCell<Vec<u64>>,
    cells: RefCell<Vec<u64>>,
    marks: RefCell<Vec<u32>>,
    /// What may be spent of users' limits that hold on all hosts together.
    pub leases: RefCell<HashMap<u32, Lease>>,
    spent: RefCell<Vec<u64>>,
    windows: RefCell<HashMap<[u64; 3], usize>>,
    /// Of sources that have been over one.
    kept_windows: RefCell<HashMap<[u64; 3], usize>>,
    window_words: RefCell<Vec<u64>>,
    shares: RefCell<Vec<u64>>,
    totals: RefCell<Vec<u64>>,
    budgets: RefCell<[u64; 4]>,
    prefix_levels: RefCell<Vec<u64>>,
    fair: RefCell<Vec<u64>>,
    /// The words of prefixes, and which is whose.
    prefixes: RefCell<HashMap<[u64; 3], usize>>,
    prefix_words: RefCell<Vec<u64>>,
    syns: RefCell<Vec<u64>>,
    /// What frames begin with.
    pub link: Cell<Link>,
    /// What was for another program. There is none here, so the packet goes on.
    pub handed_over: RefCell<Vec<Successor>>,
    links: RefCell<Vec<u64>>,
    link_cells: RefCell<Vec<u64>>,
    /// The number of the interface that frames come in by.
    pub interface: Cell<u32>,
    quiet: RefCell<Vec<u64>>,
    /// What the daemon would have been told.
    pub told: RefCell<Vec<DropEvent>>,
    /// Whether the table refuses new sources.
    pub full: Cell<bool>,
    /// How many of the next compare-and-exchanges fail, as if another CPU had been faster.
    pub lost_races: Cell<u32>,
    /// What another CPU puts into a word right after this one has next read it.
    pub rival: Cell<Option<(Word, u64)>>,
    counters: RefCell<Vec<Counter>>,
}

/// The place of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Of a source.
    Bucket(usize),
    /// Of a cell.
    Cell(usize),
    /// Of a share.
    Share(usize),
    /// Of a service.
    Total(usize),
    /// Of a user.
    User(usize),
    /// Of a per-CPU budget.
    Budget(usize),
    /// Of a cell of prefix aggregation.
    PrefixLevel(usize),
    /// Of fair shares.
    Fair(usize),
    /// Of a prefix.
    Prefix(usize),
    /// Of a window.
    Window(usize),
    /// Of what was spent from leases.
    Spent(usize),
    /// Of a service's SYNs.
    Syns(usize),
    /// Of an interface.
    Link(usize),
    /// Of a neighbour: its name, or its bucket.
    LinkCell(usize),
    /// Of the sources of a slot.
    Quiet(usize),
}

impl Memory {
    /// Empty tables under a policy.
    pub fn new(desired: &Desired, lists: Lists) -> Self {
        Self {
            now_ns: Cell::new(1_000_000_000),
            policy: desired.policy.clone(),
            users: RefCell::new(vec![0; MAX_USERS * BUCKET_WORDS]),
            user_limits: desired.users.iter().copied().collect(),
            destinations: desired.destinations.clone(),
            lists: lists::with_users(lists, desired.user_prefixes()),
            sources: RefCell::default(),
            buckets: RefCell::default(),
            cells: RefCell::new(vec![0; prefilter::CELLS as usize * CELL_WORDS]),
            marks: RefCell::new(vec![0; prefilter::CELLS as usize]),
            leases: RefCell::default(),
            spent: RefCell::new(vec![0; MAX_LEASES * 2]),
            windows: RefCell::default(),
            kept_windows: RefCell::default(),
            // Those of users come first.
            window_words: RefCell::new(vec![0; MAX_USERS * SET_WINDOWS * SUB_WINDOWS]),
            shares: RefCell::new(vec![0; TOTAL_SLOTS * SHARE_WORDS]),
            totals: RefCell::new(vec![0; TOTAL_SLOTS * MAX_TOTALS]),
            budgets: RefCell::default(),
            prefix_levels: RefCell::new(vec![0; AGGREGATION_CELLS * 2]),
            fair: RefCell::new(vec![0; prefilter::CELLS as usize * 2]),
            prefixes: RefCell::default(),
            prefix_words: RefCell::default(),
            syns: RefCell::new(vec![0; MAX_SERVICES * 2]),
            link: Cell::new(Link::Ethernet),
            handed_over: RefCell::default(),
            links: RefCell::new(vec![0; LINK_INTERFACES as usize]),
            link_cells: RefCell::new(vec![0; LINK_CELLS as usize * 2]),
            interface: Cell::new(1),
            quiet: RefCell::new(vec![0; QUIET_SLOTS as usize]),
            told: RefCell::default(),
            full: Cell::new(false),
            lost_races: Cell::new(0),
            rival: Cell::new(None),
            counters: RefCell::new(vec![Counter { packets: 0, bytes: 0 }; COUNTER_SLOTS as usize]),
        }
    }

    /// Puts another policy in force. What was spent stays.
    pub fn enforce(&mut self, desired: &Desired) {
        self.policy = desired.policy.clone();
        self.user_limits = desired.users.iter().copied().collect();
        self.destinations = desired.destinations.clone();
    }

    /// Runs one frame through the packet path.
    pub fn run(&self, frame: &[u8]) -> Verdict {
        pipeline::process(&Frame::new(self.link.get(), frame), self, self)
    }

    /// All counters, all services together, without what had another fate than the reason's own.
    pub fn counters(&self) -> Vec<(Reason, Counter)> {
        Reason::ALL.iter().map(|reason| (*reason, self.sum(*reason, Fate::Decided))).collect()
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
        self.sources.borrow().len()
    }

    /// Prefixes that have an entry.
    pub fn prefixes(&self) -> usize {
        self.prefixes.borrow().len()
    }

    /// Forgets a source, as the kernel does when the table is full.
    pub fn evict(&self, key: SourceKey) {
        self.sources.borrow_mut().remove(&[key.hi, key.lo, 0]);
    }

    /// Forgets the windows of all sources that newcomers can displace.
    pub fn evict_windows(&self) {
        self.windows.borrow_mut().clear();
    }

    /// What is in a word.
    fn read(&self, word: Word) -> u64 {
        match word {
            Word::Bucket(at) => self.buckets.borrow()[at],
            Word::Cell(at) => self.cells.borrow()[at],
            Word::Share(at) => self.shares.borrow()[at],
            Word::Total(at) => self.totals.borrow()[at],
            Word::User(at) => self.users.borrow()[at],
            Word::Budget(at) => self.budgets.borrow()[at],
            Word::PrefixLevel(at) => self.prefix_levels.borrow()[at],
            Word::Fair(at) => self.fair.borrow()[at],
            Word::Link(at) => self.links.borrow()[at],
            Word::LinkCell(at) => self.link_cells.borrow()[at],
            Word::Prefix(at) => self.prefix_words.borrow()[at],
            Word::Syns(at) => self.syns.borrow()[at],
            Word::Window(at) => self.window_words.borrow()[at],
            Word::Quiet(at) => self.quiet.borrow()[at],
            Word::Spent(at) => self.spent.borrow()[at],
        }
    }
}

impl Tables for Memory {
    type Word = Word;
    type Bucket = usize;
    type Cell = usize;
    type PrefixLevelCell = usize;
    type FairCell = usize;
    type Window = usize;
    type Share = usize;

    fn now_ns(&self, _: Clock) -> u64 {
        self.now_ns.get()
    }

    fn policy(&self) -> Option<&Policy> {
        Some(&self.policy)
    }

    fn destined(&self, _: u32, key: &DestinationKey) -> Option<u32> {
        let around = |one: &&Destination| {
            let octets = one.bits as usize / 8;
            let differ = key[octets..].first().zip(one.key[octets..].first()).map_or(0, |(a, b)| a ^ b);
            key[..octets] == one.key[..octets] && differ.leading_zeros() >= one.bits % 8
        };
        self.destinations.iter().filter(around).max_by_key(|one| one.bits).map(|one| one.service)
    }

    fn listed(&self, address: Address) -> Option<&ListEntry> {
        let octets = address.key.octets();
        let (address, longest) = match address.family {
            Family::V4 => (Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]).into(), 32),
            Family::V6 => (Ipv6Addr::from(octets).into(), 128),
        };
        (0..=longest).rev().find_map(|len| self.lists.get(&Prefix::masked(address, len)))
    }

    fn bucket(&self, key: &EntryKey) -> Option<usize> {
        self.sources.borrow().get(&[key.hi, key.lo, key.group]).copied()
    }

    fn bucket_word(&self, bucket: usize, index: usize) -> Word {
        if bucket >= USERS_AT { Word::User(bucket - USERS_AT + index) } else { Word::Bucket(bucket + index) }
    }

    fn proven_until(&self, bucket: usize) -> Word {
        self.bucket_word(bucket, MAX_LIMITS)
    }

    fn user(&self, index: u32) -> Option<usize> {
        Some(USERS_AT + index as usize * BUCKET_WORDS)
    }

    fn user_limits(&self, _: u32, index: u32) -> Option<&LimitSet> {
        Some(self.user_limits.get(&index).unwrap_or(&LimitSet::NONE))
    }

    fn insert(&self, key: &EntryKey, bucket: &Bucket) -> Result<(), InsertError> {
        let key = [key.hi, key.lo, key.group];
        let mut sources = self.sources.borrow_mut();
        if sources.contains_key(&key) {
            return Err(InsertError::Exists);
        }
        if self.full.get() {
            return Err(InsertError::Full);
        }
        let mut buckets = self.buckets.borrow_mut();
        sources.insert(key, buckets.len());
        buckets.extend(bucket.tat_q8);
        buckets.push(bucket.proven_until_q8);
        Ok(())
    }

    fn lease(&self, place: u32) -> Option<Lease> {
        Some(self.leases.borrow().get(&place).copied().unwrap_or(Lease::NONE))
    }

    fn lease_used(&self, place: u32) -> Option<Word> {
        Some(Word::Spent(place as usize * 2))
    }

    fn lease_unmet(&self, place: u32) -> Option<Word> {
        Some(Word::Spent(place as usize * 2 + 1))
    }

    fn window(&self, key: &EntryKey) -> Option<usize> {
        self.windows.borrow().get(&[key.hi, key.lo, key.group]).copied()
    }

    fn insert_window(&self, key: &EntryKey) -> Result<(), InsertError> {
        let mut words = self.window_words.borrow_mut();
        let mut windows = self.windows.borrow_mut();
        let key = [key.hi, key.lo, key.group];
        if windows.contains_key(&key) {
            return Err(InsertError::Exists);
        }
        windows.insert(key, words.len());
        words.extend([0; SUB_WINDOWS]);
        Ok(())
    }

    fn kept_window(&self, key: &EntryKey) -> Option<usize> {
        self.kept_windows.borrow().get(&[key.hi, key.lo, key.group]).copied()
    }

    fn keep_window(&self, key: &EntryKey, state: usize) {
        let key = [key.hi, key.lo, key.group];
        self.windows.borrow_mut().remove(&key);
        self.kept_windows.borrow_mut().entry(key).or_insert(state);
    }

    fn user_window(&self, index: u32) -> Option<usize> {
        Some(index as usize * SUB_WINDOWS)
    }

    fn window_word(&self, state: usize, slot: usize) -> Word {
        Word::Window(state + slot)
    }

    fn budget(&self, budget: CpuBudget) -> Option<Word> {
        Some(Word::Budget(budget as usize))
    }

    fn tracked_until(&self, cell: u32) -> u64 {
        prefilter::marked_until_q8(self.marks.borrow()[cell as usize])
    }

    fn track_until(&self, cell: u32, until_q8: u64) {
        self.marks.borrow_mut()[cell as usize] = prefilter::mark(until_q8);
    }

    fn cell(&self, index: u32) -> Option<usize> {
        Some(index as usize * CELL_WORDS)
    }

    fn cell_tat(&self, cell: usize) -> Word {
        Word::Cell(cell)
    }

    fn cell_negative_entry(&self, cell: usize, slot: usize) -> Word {
        Word::Cell(cell + 1 + slot)
    }

    fn prefix_level_cell(&self, index: u32) -> Option<usize> {
        Some(index as usize * 2)
    }

    fn prefix_level_tat(&self, cell: usize) -> Word {
        Word::PrefixLevel(cell)
    }

    fn prefix_level_tracked_until(&self, cell: usize) -> Word {
        Word::PrefixLevel(cell + 1)
    }

    fn prefix(&self, key: &PrefixKey) -> Option<Word> {
        self.prefixes.borrow().get(&[key.hi, key.lo, key.prefix_level]).copied().map(Word::Prefix)
    }

    fn insert_prefix(&self, key: &PrefixKey, tat_q8: u64) -> Result<(), InsertError> {
        let mut prefixes = self.prefixes.borrow_mut();
        let key = [key.hi, key.lo, key.prefix_level];
        if prefixes.contains_key(&key) {
            return Err(InsertError::Exists);
        }
        let mut words = self.prefix_words.borrow_mut();
        prefixes.insert(key, words.len());
        words.push(tat_q8);
        Ok(())
    }

    fn fair_cell(&self, index: u32) -> Option<usize> {
        Some(index as usize * 2)
    }

    fn fair_share(&self, cell: usize) -> Word {
        Word::Fair(cell)
    }

    fn fair_asked(&self, cell: usize) -> Word {
        Word::Fair(cell + 1)
    }

    fn total(&self, service: u32, index: usize) -> Option<Word> {
        Some(Word::Total(service as usize * MAX_TOTALS + index))
    }

    fn share(&self, service: u32) -> Option<usize> {
        Some(service as usize * SHARE_WORDS)
    }

    fn share_pool(&self, share: usize, place: usize) -> Word {
        Word::Share(share + place)
    }

    fn share_refused_until(&self, share: usize, place: usize) -> Word {
        Word::Share(share + SHARE_WORDS / 2 + place)
    }

    fn link(&self, interface: u32) -> Option<Word> {
        Some(Word::Link(interface as usize))
    }

    fn link_cell(&self, index: u32) -> Option<(Word, Word)> {
        let at = index as usize * 2;
        (index < LINK_CELLS).then_some((Word::LinkCell(at), Word::LinkCell(at + 1)))
    }

    fn syn_meter(&self, service: u32) -> Option<Word> {
        Some(Word::Syns(service as usize * 2))
    }

    fn cookies_until(&self, service: u32) -> Option<Word> {
        Some(Word::Syns(service as usize * 2 + 1))
    }

    fn load(&self, word: Word) -> u64 {
        let seen = self.read(word);
        if let Some((_, new)) = self.rival.get().filter(|(at, _)| *at == word) {
            self.rival.set(None);
            self.store(word, new);
        }
        seen
    }

    fn store(&self, word: Word, new: u64) {
        match word {
            Word::Bucket(at) => self.buckets.borrow_mut()[at] = new,
            Word::Cell(at) => self.cells.borrow_mut()[at] = new,
            Word::Share(at) => self.shares.borrow_mut()[at] = new,
            Word::Total(at) => self.totals.borrow_mut()[at] = new,
            Word::User(at) => self.users.borrow_mut()[at] = new,
            Word::Budget(at) => self.budgets.borrow_mut()[at] = new,
            Word::PrefixLevel(at) => self.prefix_levels.borrow_mut()[at] = new,
            Word::Fair(at) => self.fair.borrow_mut()[at] = new,
            Word::Prefix(at) => self.prefix_words.borrow_mut()[at] = new,
            Word::Syns(at) => self.syns.borrow_mut()[at] = new,
            Word::Window(at) => self.window_words.borrow_mut()[at] = new,
            Word::Link(at) => self.links.borrow_mut()[at] = new,
            Word::LinkCell(at) => self.link_cells.borrow_mut()[at] = new,
            Word::Quiet(at) => self.quiet.borrow_mut()[at] = new,
            Word::Spent(at) => self.spent.borrow_mut()[at] = new,
        }
    }

    fn add(&self, word: Word, amount: u64) {
        self.store(word, self.load(word).wrapping_add(amount));
    }

    fn compare_exchange(&self, word: Word, seen: u64, new: u64) -> bool {
        if self.lost_races.get() > 0 {
            self.lost_races.set(self.lost_races.get() - 1);
            return false;
        }
        let same = self.load(word) == seen;
        if same {
            self.store(word, new);
        }
        same
    }

    fn quiet_until(&self, slot: u32) -> Option<Word> {
        Some(Word::Quiet(slot as usize))
    }

    fn tell(&self, event: DropEvent) -> bool {
        self.told.borrow_mut().push(event);
        true
    }

    fn note(&self, _: Event) {}

    fn count(&self, slot: u32, len: u64) {
        let counter = &mut self.counters.borrow_mut()[slot as usize];
        counter.packets += 1;
        counter.bytes += len;
    }
}

impl Leaves for Memory {}

impl Stages for Memory {}

impl Relay for Memory {
    fn answers(&self) -> bool {
        self.link.get() == Link::Ethernet
    }

    fn hand_over(&self, to: Successor, _: TailCallContext) {
        self.handed_over.borrow_mut().push(to);
    }

    fn service_at(&self, frame: &Frame<'_>, table: u32, class: u32) -> u32 {
        service::at_destination(self, frame, table, class)
    }

    fn judge_link(&self, frame: &Frame<'_>, policy: &Policy, passes: Reason) -> Reason {
        link::judge(self, frame, policy, self.interface.get(), passes)
    }
}
