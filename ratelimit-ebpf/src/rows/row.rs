//! One row: its table, its place there, and its words.

use super::WordTable;

/// The words of one row. Unused words are zero.
pub type RowWords = [u64; 8];

/// Joins the parts of a row.
pub fn words(parts: &[&[u64]]) -> RowWords {
    let mut words = RowWords::default();
    for (word, part) in words.iter_mut().zip(parts.iter().copied().flatten()) {
        *word = *part;
    }
    words
}

/// The key of a row: an [`EntryKey`](ratelimit_common::abi::EntryKey) or a [`PrefixKey`](ratelimit_common::abi::PrefixKey).
pub type RowKey = [u64; 3];

/// One row of one table. A number is an index in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Row {
    /// A source's buckets, then the time until which it is proven.
    Source(RowKey),
    /// The state of a window of a source.
    Window(RowKey),
    /// The state of a window that has refused its source.
    KeptWindow(RowKey),
    /// The bucket of a prefix.
    Prefix(RowKey),
    /// Until when a cell of the prefilter is tracked, as a time word.
    Mark(u32),
    /// The mark of a cell of the prefilter that has a proven source.
    Proven(u32),
    /// A cell of the prefilter: its bucket, then its negative cache.
    Cell(u32),
    /// A cell of prefix aggregation: its bucket, until when it is tracked, a negative entry, and a note about a prefix that squeezes.
    PrefixCell(u32),
    /// The debt of the sources of a prefilter cell beyond their fair shares.
    Fair(u32),
    /// The mark of the source of a prefilter cell that was last asked for a connection.
    Asked(u32),
    /// The bucket of challenges to the networks of a cell.
    Challenged(u32),
    /// A user's buckets.
    User(u32),
    /// The state of a window of a user.
    UserWindow(u32),
    /// Units spent of a user's lease, then units needed beyond it.
    Spent(u32),
    /// The buckets of the total of a service or of the host, then those of the part that known clients may have before others.
    Total(u32),
    /// A set of known clients.
    Clients(u32),
    /// What the clients of a set have claimed.
    Claimed(u32),
    /// A word of the filter in front of known clients.
    ClientFilter(u32),
    /// What one CPU holds of a total, then until when there is no more.
    Share(u32),
    /// A service's bucket of SYNs, then until when SYNs are answered with cookies.
    Syn(u32),
    /// The bucket of one of a CPU's budgets, see [`CpuBudget`](crate::tables::CpuBudget).
    Budget(u32),
    /// The shared bucket of an interface's cap on frames without a source.
    Link(u32),
    /// A neighbour of an interface: its name, then its bucket.
    LinkCell(u32),
    /// Until when the sources of a slot are not reported to the daemon again.
    Quiet(u32),
    /// The words of a CPU for the express lane, see [`LaneWord`](crate::tables::LaneWord).
    Lane,
}

impl Row {
    /// The table of the row, and its place there.
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
            Self::Challenged(index) => (WordTable::Challenged, Index(index)),
            Self::User(index) => (WordTable::User, Index(index)),
            Self::UserWindow(index) => (WordTable::UserWindow, Index(index)),
            Self::Spent(index) => (WordTable::Spent, Index(index)),
            Self::Total(index) => (WordTable::Total, Index(index)),
            Self::Clients(index) => (WordTable::Clients, Index(index)),
            Self::Claimed(index) => (WordTable::Claimed, Index(index)),
            Self::ClientFilter(index) => (WordTable::ClientFilter, Index(index)),
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

/// The place of a row in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowPlace {
    /// The row of a key, wherever the table has put it.
    Key(RowKey),
    /// The row at an index of an array.
    Index(u32),
}
