//! Everything that crosses the kernel boundary, one file for each map.
//!
//! A change to any of these types changes the fingerprint, and the build fails until
//! [`ABI_VERSION`] has changed too: by the version the daemon tells pinned maps that it can adopt
//! from pinned maps that it must replace.

mod layout;

pub mod bucket;
pub mod cell;
pub mod counter;
pub mod destination;
pub mod drop_event;
pub mod event;
pub mod lease;
pub mod limit;
pub mod link;
pub mod list;
pub mod listener;
pub mod names;
pub mod policy;
pub mod prefix;
pub mod reason;
pub mod sample;
pub mod service;
pub mod switches;
pub mod user;
pub mod window;

pub use bucket::{Bucket, EntryKey, SourceKey};
pub use cell::Cell;
pub use counter::Counter;
pub use drop_event::DropEvent;
pub use event::Event;
pub use lease::{Lease, Spent};
pub use limit::{Limit, LimitSet, MAX_LIMITS, Meter};
pub use link::{LinkCell, LinkLimits};
pub use list::ListEntry;
pub use policy::{Aggregation, Clock, Mode, Policy, Prefilter, PrefixLevel, SourceLimits, Squeeze};
pub use prefix::{PrefixKey, PrefixLevelCell};
pub use reason::{Reason, Verdict};
pub use service::{OnLimit, Service, Share, SynState, Total, TotalState};
pub use switches::Switches;
pub use window::{WindowLimit, WindowState};

/// Version of the map layouts. It is part of the pin path, so a daemon never opens maps with another layout.
pub const ABI_VERSION: u32 = 12;

/// The fingerprint of the layouts of [`ABI_VERSION`].
const RECORDED_FINGERPRINT: usize = 6892683148304079352;

const FINGERPRINT: usize = layout::fold(&[
    SourceKey::LAYOUT,
    EntryKey::LAYOUT,
    Bucket::LAYOUT,
    Counter::LAYOUT,
    DropEvent::LAYOUT,
    ListEntry::LAYOUT,
    Lease::LAYOUT,
    LinkCell::LAYOUT,
    LinkLimits::LAYOUT,
    Spent::LAYOUT,
    Cell::LAYOUT,
    Limit::LAYOUT,
    LimitSet::LAYOUT,
    SourceLimits::LAYOUT,
    Prefilter::LAYOUT,
    Aggregation::LAYOUT,
    PrefixLevel::LAYOUT,
    Squeeze::LAYOUT,
    Policy::LAYOUT,
    PrefixKey::LAYOUT,
    PrefixLevelCell::LAYOUT,
    Service::LAYOUT,
    Total::LAYOUT,
    TotalState::LAYOUT,
    Share::LAYOUT,
    SynState::LAYOUT,
    Switches::LAYOUT,
    WindowLimit::LAYOUT,
    WindowState::LAYOUT,
    Reason::LAYOUT,
]) as usize;

// A mismatch here means: a type that crosses the kernel boundary changed. Raise ABI_VERSION, then record the
// fingerprint that the compiler names. (Array lengths, because that error shows both numbers.)
const _: [(); RECORDED_FINGERPRINT] = [(); FINGERPRINT];
