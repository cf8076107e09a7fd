//! The terminal view: draws one `StatsView` a second, and turns keys into wishes.
//!
//! ```text
//!   View, Standing -> Screen -> draw -> terminal
//!   key            -> Screen -> Wish -> whoever may ask the daemon
//! ```
//! `Screen` and `draw` are pure: no clock, no terminal, no daemon. Only `session` touches the terminal.

mod draw;
pub mod rows;
mod screen;
mod session;

pub use screen::{HostSummary, Screen, Wish};
pub use session::{WatchedHost, run};
