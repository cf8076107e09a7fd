//! The facts about a host that a compiled policy depends on.

use crate::policy::Reserve;

/// Facts about one host. All but the window scale, the translated services and the headroom stay as long as the daemon runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// CPUs that the program can run on.
    pub cpus: u32,
    /// How far the coarse clock can lag, in nanoseconds.
    pub tick_ns: u64,
    /// Secret of the prefilter's hash: random, and kept as long as the maps are.
    pub secret: [u64; 2],
    /// Whether the kernel took the programs for SYN cookies.
    pub cookies: bool,
    /// Names of services whose SYNs must not be answered with cookies, because the host translates their destination.
    pub translated: Vec<String>,
    /// The window scale that the kernel offers; `None` if the kernel could not recover the options that a SYN cookie promises.
    pub window_scale: Option<u8>,
    /// Whether the host has headroom, which elastic limits depend on.
    pub headroom: bool,
    /// What this host may spend of the limits of users without a lease; `None` without a cluster, when it may spend all of them.
    pub reserve: Option<Reserve>,
}
