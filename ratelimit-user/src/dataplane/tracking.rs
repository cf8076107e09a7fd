//! Reads whether a firewall tracks connections on this host.
//!
//! Connection tracking never sees a SYN that is answered with a cookie, nor the answer: the first packet of such a connection that it sees is
//! the client's acknowledgement. A setting, and the rules of the firewall, decide whether it accepts a connection from there on.

use super::sysctl::last;

/// The state of the kernel's connection tracking in the daemon's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracking {
    /// Connections that are tracked now. If no rule of the firewall asks for tracking, there are none.
    pub followed: u64,
    /// `net.netfilter.nf_conntrack_tcp_loose`: whether connections are accepted whose beginning was not seen.
    pub loose: bool,
}

impl Tracking {
    /// Reads the state as it is now; `None` if this kernel does not track connections.
    pub fn read() -> Option<Self> {
        Some(Self {
            followed: last("net/netfilter/nf_conntrack_count")?,
            loose: last("net/netfilter/nf_conntrack_tcp_loose")? != 0,
        })
    }
}
