//! The maths of limits: pure functions of state, parameters, time and cost.

pub mod aggregation;
pub mod clients;
pub mod fair;
pub mod gcra;
pub mod lease;
pub mod prefilter;
pub mod sip_hash;
pub mod squeezed;
pub mod window;

// The kernel reads numbers; words and their checks stay on the host.
#[cfg(not(target_arch = "bpf"))]
pub mod level;
#[cfg(not(target_arch = "bpf"))]
pub mod lifetime;
#[cfg(not(target_arch = "bpf"))]
pub mod manner;
#[cfg(not(target_arch = "bpf"))]
mod quote;
#[cfg(not(target_arch = "bpf"))]
pub mod rate;
#[cfg(not(target_arch = "bpf"))]
pub mod text;
#[cfg(not(target_arch = "bpf"))]
pub mod units;
