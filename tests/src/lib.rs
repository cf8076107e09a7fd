//! The test harness: frames as bytes, the loaded program, namespaces with daemons in them.
//!
//! Suites are in `tests/`. Those that load programs or make namespaces need root and fail without it: a suite that
//! skips is a suite that nobody notices is off.

pub mod answer;
pub mod bpffs;
pub mod browser;
pub mod cgroup;
pub mod clients;
pub mod cookie_site;
pub mod cpus;
pub mod daemon;
pub mod envoy;
pub mod fleet;
pub mod frames;
pub mod fuzz;
pub mod grpc;
pub mod loaded;
pub mod netns;
pub mod policies;
pub mod record;
pub mod redis;
pub mod remembered;
pub mod resp;
pub mod running_time;
pub mod seeds;
pub mod service;
pub mod simulation;
pub mod soak;
pub mod stack;
pub mod tracing;
pub mod traffic;
pub mod tun;

pub use ratelimit_user::memory;
