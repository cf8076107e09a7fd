//! The daemon: wires the pieces together and keeps them running.

mod host;
mod layouts;
mod log;
mod service;
mod start;
mod state_dir;

pub use host::Options;
pub use service::run;
