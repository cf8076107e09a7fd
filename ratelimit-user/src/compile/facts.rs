//! What a compiled policy must know of the host it is for.

use crate::policy::Reserve;

/// Facts about one host. All but the window scale and the headroom hold as long as the daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// CPUs that the program can run on.
    pub cpus: u32,
    /// How far the coarse clock can lag.
    pub tick_ns: u64,
    /// Secret of the prefilter's hash: random, and kept as long as the maps are.
    pub secret: [u64; 2],
    /// Whether the kernel took the programs for SYN cookies.
    pub cookies: bool,
    /// The window scale that the kernel offers; `None` if it would not find options again that a SYN cookie has promised.
    pub window_scale: Option<u8>,
    /// Whether the host has headroom, which elastic limits depend on.
    pub headroom: bool,
    /// What this host may have of the limits of users without a lease; `None` if it is alone and has all of them.
    pub reserve: Option<Reserve>,
}
