//! Single refused packets: what the kernel program told of them, who is told, and what is remembered.
//!
//! ```text
//!   ring buffer -> Sighting -> Recent -> explain
//!                           -> broadcast -> Filter -> watch
//!   samples -> RefusedFrame -> Filter -> watch --pcap
//! ```
//!
//! The kernel program tells of some packets only (`docs/explain.md`), and everything here has an end: what is remembered, and what a slow reader
//! can be behind.

mod filter;
mod frame;
mod recent;
mod sighting;

pub use filter::Filter;
pub use frame::RefusedFrame;
pub use recent::Recent;
pub use sighting::{Dropped, Sighting, Telling};
