//! Everything that crosses the kernel boundary, one file per map.
//!
//! A change to any of these types changes its fingerprint, and the build fails until
//! [`ABI_VERSION`] has moved with it: the daemon relies on the version to tell pinned maps it can adopt
//! from pinned maps it must replace.

mod layout;

pub mod bucket;
pub mod counter;
pub mod list;
pub mod names;
pub mod policy;
pub mod reason;

pub use bucket::{Bucket, SourceKey};
pub use counter::Counter;
pub use list::ListEntry;
pub use policy::{Limit, MAX_LIMITS, Meter, Policy};
pub use reason::{Reason, Verdict};

/// Version of the map layouts. Part of the pin path, so a daemon never opens maps it misreads.
pub const ABI_VERSION: u32 = 1;

/// The layouts that [`ABI_VERSION`] stands for.
const RECORDED_FINGERPRINT: usize = 924_103_331_563_589_509;

const FINGERPRINT: usize = layout::fold(&[
    SourceKey::LAYOUT,
    Bucket::LAYOUT,
    Counter::LAYOUT,
    ListEntry::LAYOUT,
    Limit::LAYOUT,
    Policy::LAYOUT,
    Reason::LAYOUT,
]) as usize;

// A mismatch here means: a type that crosses the kernel boundary changed. Raise ABI_VERSION, then record the
// fingerprint that the compiler names. (Array lengths, because that error shows both numbers.)
const _: [(); RECORDED_FINGERPRINT] = [(); FINGERPRINT];
