//! Everything in user space: policy, data plane, daemon and command line.
//!
//! No folder knows one above it:
//!
//! ```text
//! cli                                    verbs
//! daemon            doctor               wiring; what is in the way on a host
//! serve   web   control   metrics   tui  answers: to web servers and proxies, to browsers, to operators, to Prometheus, on a terminal
//! requests          cluster              decisions about requests; limits of packets and blocks that hold on all hosts
//! store             notify               Redis, webhooks and commands: the ways out to others
//! suggest                                limits for observed traffic
//! replay                                 what policies would have done to captures
//! meter   dataplane  stats  explain  drops  attacks  headroom  lockout  capture  memory
//! compile                                what the maps must hold
//! config                                 text
//! policy                                 what the operator wants
//! ```
//! Only `dataplane` talks to the kernel, only `store` to Redis, only `notify` to webhooks; `lockout` and `headroom` look into `/proc`.

mod accounts;
pub mod attacks;
pub mod build;
pub mod capture;
mod certificate;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod compile;
pub mod config;
pub mod control;
pub mod daemon;
pub mod dataplane;
pub mod doctor;
#[cfg(test)]
mod documentation;
pub mod drops;
pub mod explain;
pub mod failure;
mod hangup;
pub mod headroom;
pub mod lockout;
mod log;
pub mod memory;
pub mod meter;
pub mod metrics;
mod moment;
pub mod notify;
mod overlap;
pub mod places;
pub mod policy;
pub mod replay;
pub mod requests;
mod secret_file;
pub mod serve;
mod stamp;
pub mod stats;
pub mod store;
pub mod suggest;
pub mod tui;
pub mod web;
