//! Events: what is counted per CPU besides the reasons of frames.

/// An event that is counted per CPU and is not a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Event {
    /// A source got an entry in the table, because its cell could not vouch for it any more.
    Promoted,
    /// A prefix around sources got an entry, with a bucket of its own.
    PrefixPromoted,
    /// A drop event was lost, because the ring buffer was full.
    ReportLost,
    /// A packet of a known client had a part of a spent total before others.
    KnownAdmitted,
    /// A packet of a known client was beyond its claim and its share of a spent total.
    KnownRefused,
}

impl Event {
    /// All events, by discriminant.
    pub const ALL: &'static [Self] =
        &[Self::Promoted, Self::PrefixPromoted, Self::ReportLost, Self::KnownAdmitted, Self::KnownRefused];
}

/// Number of events: the size of the map of events.
pub const EVENT_COUNT: usize = Event::ALL.len();
