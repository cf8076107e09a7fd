//! One row: which table it is in, where in that table, and which words it has.

use super::WordTable;

/// The words of one row. The words behind its last one are zero.
pub type RowWords = [u64; 8];

/// Parts of a row, one behind the other.
pub fn words(parts: &[&[u64]]) -> RowWords {
    let mut words = RowWords::default();
    for (word, part) in words.iter_mut().zip(parts.iter().copied().flatten()) {
        *word = *part;
    }
    words
}

/// What a row with a key is found by: an [`EntryKey`](ratelimit_common::abi::EntryKey) or a [`PrefixKey`](ratelimit_common::abi::PrefixKey).
pub type RowKey = [u64; 3];

/// One row of one table. A number is the place in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Row {
    /// A source's buckets, then until when it is proven.
    Source(RowKey),
    /// What a source has used of a window.
    Window(RowKey),
    /// What a source has used of a window that it has been over.
    KeptWindow(RowKey),
    /// The bucket of a prefix.
    Prefix(RowKey),
    /// Until when a cell of the prefilter is tracked, as a time word.
    Mark(u32),
    /// Until when some source of a cell of the prefilter is proven.
    Proven(u32),
    /// A cell of the prefilter: its bucket, then its negative cache.
    Cell(u32),
    /// A cell of prefix aggregation: its bucket, until when it is tracked, its negative entry, then how hard a prefix squeezes.
    PrefixCell(u32),
    /// What the sources of a cell of the prefilter had beyond their fair shares.
    Fair(u32),
    /// Which source of a cell of the prefilter was last asked for a connection.
    Asked(u32),
    /// A user's buckets.
    User(u32),
    /// What a user has used of a window.
    UserWindow(u32),
    /// What was spent of a user's lease, and what was asked for beyond the lease.
    Spent(u32),
    /// The buckets of the total of a service or of the host.
    Total(u32),
    /// What one CPU has taken from a total, then until when there is no more.
    Share(u32),
    /// A service's bucket of SYNs, then until when SYNs are answered with cookies.
    Syn(u32),
    /// The bucket of one of a CPU's budgets, see [`CpuBudget`](crate::tables::CpuBudget).
    Budget(u32),
    /// The bucket of an interface, for frames without a source.
    Link(u32),
    /// A neighbour of an interface: its name, then its bucket.
    LinkCell(u32),
    /// Until when the daemon is not told again of the sources of a slot.
    Quiet(u32),
    /// What a CPU keeps for the express lane, see [`LaneWord`](crate::tables::LaneWord).
    Lane,
}

impl Row {
    /// The table of the row, and where in it the row is.
    #[inline]
    pub const fn place(self) -> (WordTable, RowPlace) {
        use RowPlace::{Index, Key};
        match self {
            Self::Source(key) => (WordTable::Source, Key(key)),
            Self::Window(key) => (WordTable::Window, Key(key)),
            Self::KeptWindow(key) => (WordTable::KeptWindow, Key(key)),
            Self::Prefix(key) => (WordTable::Prefix, Key(key)),
            Self::Mark(index) => (WordTable::Mark, Index(index)),
            Self::Proven(index) => (WordTable::Proven, Index(index)),
            Self::Cell(index) => (WordTable::Cell, Index(index)),
            Self::PrefixCell(index) => (WordTable::PrefixCell, Index(index)),
            Self::Fair(index) => (WordTable::Fair, Index(index)),
            Self::Asked(index) => (WordTable::Asked, Index(index)),
            Self::User(index) => (WordTable::User, Index(index)),
            Self::UserWindow(index) => (WordTable::UserWindow, Index(index)),
            Self::Spent(index) => (WordTable::Spent, Index(index)),
            Self::Total(index) => (WordTable::Total, Index(index)),
            Self::Share(index) => (WordTable::Share, Index(index)),
            Self::Syn(index) => (WordTable::Syn, Index(index)),
            Self::Budget(index) => (WordTable::Budget, Index(index)),
            Self::Link(index) => (WordTable::Link, Index(index)),
            Self::LinkCell(index) => (WordTable::LinkCell, Index(index)),
            Self::Quiet(index) => (WordTable::Quiet, Index(index)),
            Self::Lane => (WordTable::Lane, Index(0)),
        }
    }
}

/// Where a row of a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowPlace {
    /// Wherever the table has put this key, if it has.
    Key(RowKey),
    /// At this place of an array.
    Index(u32),
}
