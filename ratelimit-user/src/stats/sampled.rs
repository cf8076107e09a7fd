//! A sampled frame: its counter, source and ports.

use std::net::IpAddr;

use ratelimit_common::abi::{
    Reason, Verdict,
    counter::{Fate, REASON_SLOTS, SERVICE_SLOTS},
    sample::{ACTION_PASS, ACTION_REPLY, SampleHeader},
};
use ratelimit_ebpf::{
    frame::{Frame, Link},
    packet::{Address, Family, Transport},
    parse,
};

/// One sampled frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// When the frame was sampled: nanoseconds of the kernel's monotonic clock.
    pub time_ns: u64,
    /// The source that sent the frame; `None` if the frame is not IP.
    pub source: Option<IpAddr>,
    /// Destination port; 0 if the frame has none.
    pub port: u16,
    /// Source port; 0 if the frame has none.
    pub source_port: u16,
    /// Whether the ports are those of UDP.
    pub is_udp: bool,
    /// 0, or one more than the index of a service.
    pub service: u32,
    /// The reason that the frame ended with.
    pub reason: Reason,
    /// The fate of the frame.
    pub fate: Fate,
    /// The verdict on the frame.
    pub verdict: Verdict,
    /// Length of the frame in bytes.
    pub len: u32,
    /// How many frames the sample stands for.
    pub weight: u64,
}

impl Sampled {
    /// The sample with this header and these first bytes of the frame.
    pub fn of(header: SampleHeader, frame: &[u8]) -> Self {
        let fate = Fate::ALL[(header.slot % SERVICE_SLOTS / REASON_SLOTS) as usize];
        // A rejected packet counts as dropped, because its sender was not served.
        let verdict = match header.action {
            ACTION_PASS => Verdict::Pass,
            ACTION_REPLY if fate != Fate::Rejected => Verdict::Reply,
            _ => Verdict::Drop,
        };
        let link = if header.link == 0 { Link::Ethernet } else { Link::Ip };
        let frame = Frame::with_len(link, frame, u64::from(header.len));
        // A reply has been written over the frame, so its destination is the source of the packet.
        let (source, packet) = match header.action {
            ACTION_REPLY => (parse::destination(&frame), None),
            _ => (parse::source(&frame), parse::parse(&frame).ok()),
        };
        let port = packet.map_or(0, |packet| packet.port);
        // UDP and TCP headers have the source port before the destination port.
        let with_port = packet.filter(|packet| packet.port_slot().is_some());
        let source_port =
            with_port.and_then(|packet| Some(frame.view::<2>(packet.transport_at)?.u16_be::<0>()));
        Self {
            time_ns: header.time_ns,
            source: source.map(address),
            port,
            source_port: source_port.unwrap_or(0),
            is_udp: packet.is_some_and(|packet| packet.transport == Transport::UDP),
            service: header.slot / SERVICE_SLOTS,
            reason: Reason::from_code(header.slot % REASON_SLOTS),
            fate,
            verdict,
            len: header.len,
            weight: header.weight(),
        }
    }
}

/// The ends of a packet, for somebody who looks at single packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketEnds {
    /// The number of the IP protocol.
    pub protocol: u8,
    /// The address that the packet was sent to.
    pub destination: IpAddr,
    /// Source port, if the packet has one.
    pub source_port: Option<u16>,
    /// Destination port, if the packet has one.
    pub port: Option<u16>,
}

impl PacketEnds {
    /// The ends of a packet by its copy. A refusal has been written over a packet that was rejected: then they are read from the refusal.
    pub fn of(header: &SampleHeader, bytes: &[u8]) -> Option<Self> {
        let link = if header.link == 0 { Link::Ethernet } else { Link::Ip };
        let frame = Frame::with_len(link, bytes, u64::from(header.len));
        let ends = Self::parse(&frame)?;
        if header.action != ACTION_REPLY {
            return Some(ends.0);
        }
        let (reply, behind) = ends;
        if [ICMP, ICMPV6].contains(&reply.protocol) {
            // An ICMP error has the beginning of the packet that it is about.
            let about = Frame::with_len(Link::Ip, bytes.get(behind + ICMP_HEADER..)?, u64::from(u16::MAX));
            return Self::parse(&about).map(|(packet, _)| packet);
        }
        let destination = address(parse::source(&frame)?);
        Some(Self { destination, source_port: reply.port, port: reply.source_port, ..reply })
    }

    /// The ends of a frame, and where its transport header begins.
    fn parse(frame: &Frame<'_>) -> Option<(Self, usize)> {
        let packet = parse::parse(frame).ok()?;
        let has_ports = packet.port_slot().is_some();
        let source_port = || Some(frame.view::<2>(packet.transport_at)?.u16_be::<0>());
        let ends = Self {
            protocol: packet.protocol,
            destination: address(parse::destination(frame)?),
            source_port: has_ports.then(source_port).flatten(),
            port: has_ports.then_some(packet.port),
        };
        Some((ends, packet.transport_at))
    }
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Bytes before the packet that an ICMP error is about.
const ICMP_HEADER: usize = 8;

fn address(address: Address) -> IpAddr {
    let octets = address.key.octets();
    match address.family {
        Family::V4 => IpAddr::from([octets[12], octets[13], octets[14], octets[15]]),
        Family::V6 => IpAddr::from(octets),
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::counter::slot;

    use super::*;

    /// A UDP packet from 203.0.113.7:9 to 198.51.100.1:53.
    const UDP: [u8; 42] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 203, 0, 113, 7,
        198, 51, 100, 1, 0, 9, 0, 53, 0, 8, 0, 0,
    ];

    const DROP: u32 = 1;

    fn header(action: u32, link: u32) -> SampleHeader {
        let slot = slot(3, Reason::LimitPackets, Fate::Rejected);
        SampleHeader { time_ns: 5, slot, len: 60, interface: 2, shift: 4, action, link }
    }

    #[test]
    fn numbers_become_a_source_a_port_a_reason_and_a_weight() {
        let sampled = Sampled::of(header(DROP, 0), &UDP);
        assert_eq!(
            sampled,
            Sampled {
                time_ns: 5,
                source: Some([203, 0, 113, 7].into()),
                port: 53,
                source_port: 9,
                is_udp: true,
                service: 3,
                reason: Reason::LimitPackets,
                fate: Fate::Rejected,
                verdict: Verdict::Drop,
                len: 60,
                weight: 16,
            }
        );
        let tunnelled = Sampled::of(header(DROP, 1), &UDP[14..]);
        assert_eq!((tunnelled.source, tunnelled.port), (sampled.source, 53));
    }

    #[test]
    fn the_ends_of_a_packet_are_read_also_from_its_refusal() {
        let ends = PacketEnds {
            protocol: 17,
            destination: [198, 51, 100, 1].into(),
            source_port: Some(9),
            port: Some(53),
        };
        assert_eq!(PacketEnds::of(&header(DROP, 0), &UDP), Some(ends));
        // An ICMP error from 198.51.100.1 about the packet.
        let mut error = UDP[..14].to_vec();
        error.extend([
            0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 198, 51, 100, 1, 203, 0, 113, 7, 3, 3, 0, 0, 0, 0, 0, 0,
        ]);
        error.extend(&UDP[14..]);
        assert_eq!(PacketEnds::of(&SampleHeader { len: 70, ..header(ACTION_REPLY, 0) }, &error), Some(ends));
        // A reset from 198.51.100.1:53 to port 9.
        let mut reset = UDP[..14].to_vec();
        reset.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 198, 51, 100, 1, 203, 0, 113, 7, 0, 53, 0, 9]);
        reset.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 4, 0, 0, 0, 0, 0, 0]);
        let reset = PacketEnds::of(&SampleHeader { len: 54, ..header(ACTION_REPLY, 0) }, &reset);
        assert_eq!(reset, Some(PacketEnds { protocol: 6, ..ends }));
    }

    #[test]
    fn an_answer_is_counted_for_whom_it_goes_to_and_what_is_not_ip_for_nobody() {
        let answered = Sampled::of(header(ACTION_REPLY, 0), &UDP);
        assert_eq!((answered.source, answered.port), (Some([198, 51, 100, 1].into()), 0));
        assert_eq!(answered.verdict, Verdict::Drop, "it was rejected");
        let mut arp = UDP;
        arp[13] = 6;
        assert_eq!(Sampled::of(header(ACTION_PASS, 0), &arp).source, None);
        assert_eq!(Sampled::of(header(ACTION_PASS, 0), &[]).source, None, "an empty copy is no panic");
    }
}
