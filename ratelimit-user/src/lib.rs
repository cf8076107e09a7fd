//! Everything in user space: policy, data plane, daemon and command line.
//!
//! A folder imports only folders in rows below its own (`cargo xtask lint` checks it):
//!
//! ```text
//! cli                                                       verbs, one file each
//! daemon                                                    wiring: owners with one responsibility each, and what passes between them
//! serve                                                     answers to web servers and proxies: translation
//! web   metrics   doctor   tui                              answers to browsers, to Prometheus and on a terminal; what is in the way on a host
//! control                                                   the control socket: orders and replies
//! dataplane   requests   cluster   notify   suggest         the kernel side; decisions about requests; leases of packets, blocks and members; webhooks and commands; limits for observed traffic
//! explain   attacks   replay   store                        why packets of an address are refused; attacks; what policies would have done to captures; Redis, the script, the worker
//! stats   drops   memory   lockout   headroom               what was counted; what was refused; tables in memory; who would be locked out; how busy the host is
//! compile   config   meter   capture   log   secret_file    what the maps must hold; text of policies; algorithms of requests; captures; the log; files with secrets
//! policy   failure   moment   clock   places   overlap      what the operator wants; sentences with an exit code; times as text; clocks; places for connections; what two texts have in common
//! accounts   build   certificate   hangup   stamp           users of the system; the version; certificates; readers that go away; whether a file has changed
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
