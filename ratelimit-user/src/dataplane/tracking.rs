//! Whether a firewall follows connections on this host.
//!
//! It never sees a SYN that is answered with a cookie, nor the answer: the first packet of such a connection that it sees is the client's
//! acknowledgement. Whether it takes a connection up from there is a setting, and a matter of its rules.

use super::sysctl::last;

/// What the kernel's connection tracking does in the daemon's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracking {
    /// Connections that it follows now. Where no rule asks for it, it follows none.
    pub followed: u64,
    /// `net.netfilter.nf_conntrack_tcp_loose`: whether it takes up connections whose beginning it has not seen.
    pub loose: bool,
}

impl Tracking {
    /// As it is now; `None` if this kernel follows nothing.
    pub fn read() -> Option<Self> {
        Some(Self {
            followed: last("net/netfilter/nf_conntrack_count")?,
            loose: last("net/netfilter/nf_conntrack_tcp_loose")? != 0,
        })
    }
}
