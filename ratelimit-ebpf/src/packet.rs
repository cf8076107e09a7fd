//! What the later stages need to know of a frame.

use ratelimit_common::abi::service::{Protocol, port_slot};

/// A source address, as its bytes lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4.
    V4(u32),
    /// IPv6: bytes 0 to 7, bytes 8 to 15.
    V6(u64, u64),
}

/// An IP packet that was understood down to its transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who sent it, or claims to.
    pub source: Address,
    /// What it carries.
    pub transport: Transport,
    /// Destination port; 0 without one.
    pub port: u16,
}

impl Packet {
    /// Where the service it is for is looked up, if it has a port.
    #[inline(always)]
    pub fn port_slot(&self) -> Option<u32> {
        match self.transport {
            Transport::Tcp | Transport::TcpSyn => Some(port_slot(Protocol::Tcp, self.port)),
            Transport::Udp => Some(port_slot(Protocol::Udp, self.port)),
            Transport::Icmpv6(_) | Transport::Fragment | Transport::Other => None,
        }
    }
}

/// What an IP packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP that opens a connection: SYN set, ACK clear.
    TcpSyn,
    /// Any other TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMPv6 of this type.
    Icmpv6(u8),
    /// A fragment without the transport header. What stands where ports would be is payload.
    Fragment,
    /// Everything else: IPv4 ICMP, tunnels, ESP, nothing at all.
    Other,
}
