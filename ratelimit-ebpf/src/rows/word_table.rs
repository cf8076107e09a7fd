//! The tables that rows are in, and how many words the rows of each have.

use ratelimit_common::{
    abi::{MAX_LIMITS, Share, cell::NEGATIVE_ENTRIES, service::MAX_TOTALS},
    limit::window::sliding::SUB_WINDOWS,
};

use crate::tables::LaneWord;

/// Where the second half of a share begins, which says until when there is no more.
pub(super) const REFUSED_UNTIL: usize = Share::EMPTY.pool_q8.len();

/// A table of rows. Tables whose rows have keys come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WordTable {
    /// The table of [`super::Row::Source`].
    Source,
    /// The table of [`super::Row::Window`].
    Window,
    /// The table of [`super::Row::KeptWindow`].
    KeptWindow,
    /// The table of [`super::Row::Prefix`].
    Prefix,
    /// The table of [`super::Row::Mark`].
    Mark,
    /// The table of [`super::Row::Proven`].
    Proven,
    /// The table of [`super::Row::Cell`].
    Cell,
    /// The table of [`super::Row::PrefixCell`].
    PrefixCell,
    /// The table of [`super::Row::Fair`].
    Fair,
    /// The table of [`super::Row::Asked`].
    Asked,
    /// The table of [`super::Row::User`].
    User,
    /// The table of [`super::Row::UserWindow`].
    UserWindow,
    /// The table of [`super::Row::Spent`].
    Spent,
    /// The table of [`super::Row::Total`].
    Total,
    /// The table of [`super::Row::Share`].
    Share,
    /// The table of [`super::Row::Syn`].
    Syn,
    /// The table of [`super::Row::Budget`].
    Budget,
    /// The table of [`super::Row::Link`].
    Link,
    /// The table of [`super::Row::LinkCell`].
    LinkCell,
    /// The table of [`super::Row::Quiet`].
    Quiet,
    /// The table of [`super::Row::Lane`].
    Lane,
}

impl WordTable {
    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Source,
        Self::Window,
        Self::KeptWindow,
        Self::Prefix,
        Self::Mark,
        Self::Proven,
        Self::Cell,
        Self::PrefixCell,
        Self::Fair,
        Self::Asked,
        Self::User,
        Self::UserWindow,
        Self::Spent,
        Self::Total,
        Self::Share,
        Self::Syn,
        Self::Budget,
        Self::Link,
        Self::LinkCell,
        Self::Quiet,
        Self::Lane,
    ];
    /// How many tables there are.
    pub const COUNT: usize = Self::Lane as usize + 1;
    /// How many of them have rows with keys.
    pub const KEYED: usize = Self::Prefix as usize + 1;

    /// How many words a row has.
    pub const fn width(self) -> usize {
        match self {
            Self::Source | Self::User => MAX_LIMITS + 1,
            Self::Window | Self::KeptWindow | Self::UserWindow => SUB_WINDOWS,
            Self::Cell => 1 + NEGATIVE_ENTRIES,
            Self::PrefixCell => 4,
            Self::Spent | Self::Syn | Self::LinkCell => 2,
            Self::Total => MAX_TOTALS,
            Self::Share => 2 * REFUSED_UNTIL,
            Self::Lane => LaneWord::COUNT,
            Self::Prefix
            | Self::Mark
            | Self::Proven
            | Self::Fair
            | Self::Asked
            | Self::Budget
            | Self::Link
            | Self::Quiet => 1,
        }
    }
}
