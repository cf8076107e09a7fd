//! What the later stages need to know of a frame.

use ratelimit_common::abi::{
    SourceKey,
    service::{Protocol, port_slot},
};

/// A source address.
///
/// A struct whose fields all have a value, rather than an enum: the compiler may copy the unset payload of an enum, and the
/// verifier refuses to see an unset register read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its family.
    pub family: Family,
    /// All its bits, as a key would have them.
    pub key: SourceKey,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Address {
    /// An IPv4 address, native load.
    #[inline(always)]
    pub const fn v4(addr: u32) -> Self {
        Self { family: Family::V4, key: SourceKey::from_v4(addr) }
    }

    /// An IPv6 address: bytes 0 to 7, bytes 8 to 15, native loads.
    #[inline(always)]
    pub const fn v6(hi: u64, lo: u64) -> Self {
        Self { family: Family::V6, key: SourceKey { hi, lo } }
    }

    /// An IPv4 address as it lies in memory.
    #[inline(always)]
    pub const fn v4_word(&self) -> u32 {
        let b = self.key.lo.to_ne_bytes();
        u32::from_ne_bytes([b[4], b[5], b[6], b[7]])
    }
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
    /// Where the IP header starts.
    pub network_at: usize,
    /// Where the transport header starts, if there is one.
    pub transport_at: usize,
    /// Bytes from there on that belong to the packet.
    pub transport_len: usize,
    /// Whether it is a piece of a larger packet.
    pub fragment: bool,
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
