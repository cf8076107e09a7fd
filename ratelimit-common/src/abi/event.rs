//! Things that happen beside verdicts, counted per CPU.

/// Something worth counting that is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Event {
    /// A source was entered into the table: its cell could not vouch for it any more.
    Promoted,
    /// A prefix around sources got a bucket of its own.
    PrefixPromoted,
    /// The daemon would have been told of a refused packet, and there was no room to.
    ReportLost,
}

impl Event {
    /// All events, by discriminant.
    pub const ALL: &'static [Self] = &[Self::Promoted, Self::PrefixPromoted, Self::ReportLost];
}

/// Number of events: the size of their map.
pub const EVENT_COUNT: usize = Event::ALL.len();
