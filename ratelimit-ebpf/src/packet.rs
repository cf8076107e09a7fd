//! What the later stages need to know of a frame.

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
