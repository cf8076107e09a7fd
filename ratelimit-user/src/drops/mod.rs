//! Single refused packets: drop events, their readers, and the memory of the last ones.
//!
//! ```text
//!   ring buffer -> Sighting -> Recent -> explain
//!   copies of frames -> RefusedFrame -> Filter -> watch
//! ```
//!
//! The kernel program reports only some packets (`docs/explain.md`), and everything here has a bound: the packets that are remembered, and how far a slow reader
//! can be behind.

mod filter;
mod frame;
mod recent;
mod sighting;

pub use filter::Filter;
pub use frame::RefusedFrame;
pub use recent::Recent;
pub use sighting::{Dropped, Sighting, Telling};
