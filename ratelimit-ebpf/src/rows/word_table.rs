//! The tables of rows, and the number of words in a row of each.

use ratelimit_common::{
    abi::{MAX_LIMITS, Share, cell::NEGATIVE_ENTRIES, service::MAX_TOTALS},
    limit::{clients::WAYS, window::sliding::SUB_WINDOWS},
};

use crate::tables::LaneWord;

/// The first word of the second half of a share: until when there is no more.
pub(super) const REFUSED_UNTIL: usize = Share::EMPTY.pool_q8.len();

/// A table of rows. Tables whose rows have keys come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WordTable {
    /// Buckets of sources: [`super::Row::Source`].
    Source,
    /// Windows of sources: [`super::Row::Window`].
    Window,
    /// Windows that have refused their source: [`super::Row::KeptWindow`].
    KeptWindow,
    /// Buckets of tracked prefixes: [`super::Row::Prefix`].
    Prefix,
    /// Until when prefilter cells are tracked: [`super::Row::Mark`].
    Mark,
    /// Marks of prefilter cells with a proven source: [`super::Row::Proven`].
    Proven,
    /// Prefilter cells: [`super::Row::Cell`].
    Cell,
    /// Cells of prefix aggregation: [`super::Row::PrefixCell`].
    PrefixCell,
    /// Debts beyond fair shares: [`super::Row::Fair`].
    Fair,
    /// Marks of sources that were asked for a connection: [`super::Row::Asked`].
    Asked,
    /// Buckets of challenges: [`super::Row::Challenged`].
    Challenged,
    /// Buckets of users: [`super::Row::User`].
    User,
    /// Windows of users: [`super::Row::UserWindow`].
    UserWindow,
    /// What was spent of leases: [`super::Row::Spent`].
    Spent,
    /// Shared buckets of totals: [`super::Row::Total`].
    Total,
    /// Known clients: [`super::Row::Clients`].
    Clients,
    /// What known clients have claimed: [`super::Row::Claimed`].
    Claimed,
    /// The filter in front of known clients: [`super::Row::ClientFilter`].
    ClientFilter,
    /// What CPUs hold of totals: [`super::Row::Share`].
    Share,
    /// SYN buckets of services: [`super::Row::Syn`].
    Syn,
    /// Buckets of per-CPU budgets: [`super::Row::Budget`].
    Budget,
    /// Shared buckets of interfaces' caps: [`super::Row::Link`].
    Link,
    /// Cells of neighbours: [`super::Row::LinkCell`].
    LinkCell,
    /// Times of drop events about sources: [`super::Row::Quiet`].
    Quiet,
    /// Words of CPUs for the express lane: [`super::Row::Lane`].
    Lane,
}

impl WordTable {
    /// All tables, in the order of their discriminants.
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
        Self::Challenged,
        Self::User,
        Self::UserWindow,
        Self::Spent,
        Self::Total,
        Self::Clients,
        Self::Claimed,
        Self::ClientFilter,
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
    /// How many tables have rows with keys.
    pub const KEYED: usize = Self::Prefix as usize + 1;

    /// How many words a row of the table has.
    pub const fn width(self) -> usize {
        match self {
            Self::Source | Self::User => MAX_LIMITS + 1,
            Self::Window | Self::KeptWindow | Self::UserWindow => SUB_WINDOWS,
            Self::Cell => 1 + NEGATIVE_ENTRIES,
            Self::PrefixCell => 4,
            Self::Spent | Self::Syn | Self::LinkCell => 2,
            Self::Total => 2 * MAX_TOTALS + 1,
            Self::Clients | Self::Claimed => WAYS,
            Self::Share => 2 * REFUSED_UNTIL,
            Self::Lane => LaneWord::COUNT,
            Self::Prefix
            | Self::Mark
            | Self::Proven
            | Self::Fair
            | Self::Asked
            | Self::Challenged
            | Self::ClientFilter
            | Self::Budget
            | Self::Link
            | Self::Quiet => 1,
        }
    }
}
