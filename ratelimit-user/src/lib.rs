//! Everything in user space: policy, data plane, daemon and command line.
//!
//! Direction: `cli` and `daemon` know everybody, nobody knows them; `config`, `policy`, `compile`, `drops` and `explain` are pure but for
//! reading one file; only `dataplane` talks to the kernel, and `lockout` and `headroom` look into `/proc`.

pub mod build;
mod certificate;
pub mod cli;
pub mod cluster;
pub mod compile;
pub mod config;
pub mod daemon;
pub mod dataplane;
pub mod decide;
pub mod drops;
pub mod explain;
pub mod failure;
pub mod headroom;
pub mod lockout;
mod log;
pub mod metrics;
mod overlap;
pub mod policy;
pub mod serve;
mod stamp;
pub mod stats;
