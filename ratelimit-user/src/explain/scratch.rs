//! Tables for the packet path with one packet that nobody sent: reads come from the record, writes go to memory.

use std::{cell::RefCell, rc::Rc};

use foldhash::HashMap;

use ratelimit_common::{
    abi::{
        Clock, Lease, LimitSet, ListEntry, Policy, Reason, Share,
        cell::NEGATIVE_ENTRIES,
        service::HOST_TOTAL,
        window::{MAX_WINDOWS, SET_WINDOWS},
    },
    limit::gcra::time_q8,
};
use ratelimit_ebpf::{
    frame::Frame,
    limit::{Leaves, Stages, refusal_of},
    packet::{Address, Packet},
    pipeline,
    rows::{Row, RowWords, Rows, words},
    tables::{InsertError, Relay, Successor, TailCallContext},
};

use super::{
    record::{NEW_SOURCES, ReadRecord},
    remembered::Remembered,
};

/// The first word of the second half of a share: until when the total is spent.
const REFUSED_UNTIL: usize = Share::EMPTY.pool_q8.len();

/// One word of a row.
pub(super) type ScratchWord = (Row, usize);

/// All words of a row, with their places.
pub(super) fn all_words(row: Row) -> impl Iterator<Item = ScratchWord> {
    (0..RowWords::default().len()).map(move |place| (row, place))
}

/// What is lifted: causes that are made to refuse nothing, so that other causes show.
#[derive(Clone, Debug, Default)]
pub(super) struct Lifted {
    block: bool,
    /// Words with fixed values, which refuse nothing.
    words: HashMap<ScratchWord, u64>,
    /// The words of one limit, if all other words that can refuse packets are lifted.
    alone: Option<Vec<ScratchWord>>,
}

impl Lifted {
    /// Lifts everything but the limit with these words.
    pub(super) fn all_but(words: Vec<ScratchWord>) -> Self {
        Self { block: true, alone: Some(words), ..Self::default() }
    }

    /// Everything that this or the other lifts.
    pub(super) fn and(&self, other: &Self) -> Self {
        let words = self.words.iter().chain(&other.words).map(|(word, value)| (*word, *value));
        Self { block: self.block || other.block, words: words.collect(), alone: None }
    }
}

/// The tables as packets find and leave them.
pub(super) struct ScratchTables<'r, R: Remembered> {
    record: &'r ReadRecord<'r, R>,
    listed: Option<ListEntry>,
    now_ns: u64,
    lifted: Rc<Lifted>,
    /// The rows that the packets so far have used, as they left them.
    rows: RefCell<HashMap<Row, Option<RowWords>>>,
}

impl<'r, R: Remembered> ScratchTables<'r, R> {
    /// The tables as they were read, except for what is lifted.
    pub(super) fn new(record: &'r ReadRecord<'r, R>, lifted: Rc<Lifted>) -> Self {
        let listed = record.listed.map(|entry| ListEntry {
            blocked_until_ns: if lifted.block { 0 } else { entry.blocked_until_ns },
            ..entry
        });
        Self { record, listed, now_ns: record.now_ns, lifted, rows: RefCell::default() }
    }

    /// The tables as a CPU with this share of a total finds them.
    pub(super) fn with_share(self, total: u32, share: &Share) -> Self {
        let words = words(&[&share.pool_q8, &share.refused_until_q8]);
        self.rows.borrow_mut().insert(Row::Share(total), Some(words));
        self
    }

    /// The tables at a later moment, if no packet comes until then.
    pub(super) fn after_ms(&self, ms: u64) -> Self {
        Self {
            record: self.record,
            listed: self.listed,
            now_ns: self.now_ns.saturating_add(ms.saturating_mul(1_000_000)),
            lifted: Rc::clone(&self.lifted),
            rows: self.rows.clone(),
        }
    }

    /// The decision of the packet path about a packet.
    pub(super) fn judge(&self, packet: Packet, len: u64) -> Reason {
        pipeline::judge(self, self, self.record.policy, packet, len)
    }

    /// Lifts everything that has been read so far and refuses for a reason; `None` if nothing could be lifted.
    pub(super) fn lift(&self, reason: Reason) -> Option<Rc<Lifted>> {
        let mut lifted = Lifted::clone(&self.lifted);
        let now_q8 = time_q8(self.now_ns);
        lifted.block |= reason == Reason::Blocked;
        for word in self.rows.borrow().keys().flat_map(|row| all_words(*row)) {
            if let Some((_, value)) =
                self.relief(word, now_q8).filter(|(reasons, _)| reasons.contains(&reason))
            {
                lifted.words.insert(word, value);
            }
        }
        let more = lifted.block != self.lifted.block || lifted.words.len() > self.lifted.words.len();
        more.then(|| Rc::new(lifted))
    }

    /// The reasons for which a word can refuse packets, and the value with which it refuses nothing. `full` is a moment at which buckets are full.
    fn relief(&self, (row, place): ScratchWord, full: u64) -> Option<([Reason; 2], u64)> {
        let one = |reason: Reason, value: u64| Some(([reason; 2], value));
        match (row, place) {
            (Row::User(_), _) => one(Reason::LimitUser, full),
            (Row::UserWindow(_), _) => one(Reason::LimitUser, 0),
            (Row::Prefix(_), _) | (Row::PrefixCell(_), 0) => one(Reason::LimitPrefix, full),
            (Row::Fair(_), 0) => one(Reason::LimitPrefix, 0),
            (Row::Budget(NEW_SOURCES), 0) => one(Reason::NewSourceBudget, full),
            // A share large enough for any packet.
            (Row::Share(HOST_TOTAL), ..REFUSED_UNTIL) => one(Reason::HostTotal, u64::MAX / 2),
            (Row::Share(_), ..REFUSED_UNTIL) => one(Reason::ServiceTotal, u64::MAX / 2),
            (Row::Source([_, _, group]), _) => {
                one(refusal_of(self.set(group).limits.get(place)?.meter), full)
            }
            (Row::Window([_, _, name]), _) => {
                let number = self.set(name & 0xffff).windows[(name >> 16) as usize & (SET_WINDOWS - 1)];
                let window = &self.record.policy.windows[usize::from(number.saturating_sub(1)) % MAX_WINDOWS];
                one(refusal_of(u32::from(window.meter)), 0)
            }
            (Row::Cell(_), 1..=NEGATIVE_ENTRIES) => Some(([Reason::LimitPackets, Reason::LimitBytes], 0)),
            _ => None,
        }
    }

    /// The value of a word, if it is lifted.
    fn lifted(&self, word: ScratchWord) -> Option<u64> {
        match &self.lifted.alone {
            None => self.lifted.words.get(&word).copied(),
            Some(kept) if kept.contains(&word) => None,
            Some(_) => self.relief(word, time_q8(self.now_ns)).map(|(_, value)| value),
        }
    }

    /// The limits of a group: those of every source, or those of a service for each source.
    fn set(&self, group: u64) -> &LimitSet {
        let policy = self.record.policy;
        policy.service(group as u32).map_or(&policy.source.set, |(_, service)| &service.per_source)
    }

    fn row(&self, row: Row) -> Option<Row> {
        let mut rows = self.rows.borrow_mut();
        rows.entry(row).or_insert_with(|| self.record.row(row)).map(|_| row)
    }
}

impl<R: Remembered> Rows for ScratchTables<'_, R> {
    type Word = ScratchWord;

    fn find(&self, row: Row) -> Option<ScratchWord> {
        match row {
            // A window is one row, in whichever of the two tables it is; here it is in the other one.
            Row::KeptWindow(_) => None,
            // Every packet here has a source, no daemon hears of it, and `explain` shows the decision of the limiter, which the express
            // lane only repeats.
            Row::Link(_) | Row::LinkCell(_) | Row::Quiet(_) | Row::Lane => None,
            Row::Budget(budget) if budget != NEW_SOURCES => None,
            _ => self.row(row).map(|row| (row, 0)),
        }
    }

    fn along((row, first): ScratchWord, place: usize) -> ScratchWord {
        (row, first + place)
    }

    fn read(&self, word: ScratchWord) -> u64 {
        if let Some(value) = self.lifted(word) {
            return value;
        }
        let rows = self.rows.borrow();
        rows.get(&word.0).copied().flatten().map_or(0, |words| words[word.1])
    }

    fn write(&self, (row, place): ScratchWord, new: u64) {
        if let Some(Some(words)) = self.rows.borrow_mut().get_mut(&row) {
            words[place] = new;
        }
    }

    fn make(&self, row: Row, words: RowWords) -> Result<(), InsertError> {
        if matches!(row, Row::KeptWindow(_)) || self.row(row).is_some() {
            return Err(InsertError::Exists);
        }
        self.rows.borrow_mut().insert(row, Some(words));
        Ok(())
    }

    /// Nothing to forget: only the table of kept windows forgets rows.
    fn forget(&self, _: Row) {}

    fn clock_ns(&self, _: Clock) -> u64 {
        self.now_ns
    }

    fn in_force(&self) -> &Policy {
        self.record.policy
    }

    fn list_entry(&self, _: Address) -> Option<&ListEntry> {
        self.listed.as_ref()
    }

    fn limits_of_user(&self, _: u32, _: u32) -> Option<&LimitSet> {
        Some(&self.record.user_limits)
    }

    fn lease_at(&self, place: u32) -> Lease {
        self.record.lease(place)
    }
}

impl<R: Remembered> Leaves for ScratchTables<'_, R> {}

impl<R: Remembered> Stages for ScratchTables<'_, R> {}

/// There are no other programs to hand packets to.
impl<R: Remembered> Relay for ScratchTables<'_, R> {
    fn answers(&self) -> bool {
        false
    }

    fn hand_over(&self, _: Successor, _: TailCallContext) {}

    fn service_at(&self, _: &Frame<'_>, _: u32, class: u32) -> u32 {
        class
    }

    fn judge_link(&self, _: &Frame<'_>, _: &Policy, passes: Reason) -> Reason {
        passes
    }
}
