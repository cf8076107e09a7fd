//! Packets that the kernel has merged (GRO) or not yet split (TSO): takes them apart into the packets on the wire.

use ratelimit_ebpf::{
    frame::{Frame, Link},
    packet::{Family, Packet},
    parse,
};

use super::LinkType;

/// Packets that one merged packet is split into at most.
const MOST: u64 = 1_024;
/// Numbers of IP protocols.
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Bytes of headers that are copied from a merged packet.
const HEADERS: usize = 256;

/// The packets that a merged packet consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The headers that each packet has, with the lengths of a full packet in them.
    pub bytes: Vec<u8>,
    /// Length in bytes of each packet but the last.
    pub len: u64,
    /// How many packets there are.
    pub count: u64,
}

/// Takes apart a merged packet whose parts carry `part` bytes each; `None` if it is one packet.
pub fn take_apart(link_type: LinkType, bytes: &[u8], part: u16) -> Option<Joined> {
    let link = if link_type == LinkType::Ip { Link::Ip } else { Link::Ethernet };
    let packet = parse::parse(&Frame::new(link, bytes)).ok()?;
    let headers = packet.transport_at + transport_header(&packet, bytes)?;
    let carried = bytes.len().checked_sub(headers)? as u64;
    let part = u64::from(part);
    if part == 0 || carried <= part {
        return None;
    }
    let mut copied = bytes[..bytes.len().min(HEADERS)].to_vec();
    let (at, counted_from) = match packet.source.family {
        Family::V4 => (packet.network_at + 2, packet.network_at),
        Family::V6 => (packet.network_at + 4, packet.network_at + 40),
    };
    let said = u16::try_from(headers as u64 + part - counted_from as u64).ok()?;
    copied.get_mut(at..at + 2)?.copy_from_slice(&said.to_be_bytes());
    Some(Joined { bytes: copied, len: headers as u64 + part, count: carried.div_ceil(part).min(MOST) })
}

fn transport_header(packet: &Packet, bytes: &[u8]) -> Option<usize> {
    if packet.protocol == UDP {
        return Some(8);
    }
    // The upper half of this byte is the header length in words of four bytes.
    let words = bytes.get(packet.transport_at + 12)? >> 4;
    (packet.protocol == TCP && words >= 5).then(|| usize::from(words) * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP packet from 203.0.113.7 with 12 bytes of options, in an Ethernet frame, carrying `carried` bytes.
    fn tcp(carried: usize) -> Vec<u8> {
        let total = (20 + 32 + carried) as u16;
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        bytes.extend(total.to_be_bytes());
        bytes.extend([
            0, 0, 0, 0, 64, 6, 0, 0, 203, 0, 113, 7, 198, 51, 100, 1, 0, 9, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0,
            0x80, 0x10,
        ]);
        bytes.resize(14 + usize::from(total), 0);
        bytes
    }

    #[test]
    fn a_joined_packet_is_as_many_as_were_on_the_wire_and_each_is_one_that_can_be_parsed() {
        let joined = take_apart(LinkType::Ethernet, &tcp(10 * 1_448 + 1), 1_448).unwrap();
        assert_eq!((joined.count, joined.len), (11, 14 + 20 + 32 + 1_448));
        let one = Frame::with_len(Link::Ethernet, &joined.bytes, joined.len);
        let parsed = parse::parse(&one).unwrap();
        assert_eq!((parsed.port, parsed.transport_len), (80, 32 + 1_448));
        assert_eq!(take_apart(LinkType::Ethernet, &tcp(1_448), 1_448), None, "one by itself");
        assert_eq!(take_apart(LinkType::Ethernet, &tcp(9_000), 0), None, "not joined");
        assert_eq!(take_apart(LinkType::Ethernet, &tcp(60_000), 1).unwrap().count, MOST);
        assert_eq!(take_apart(LinkType::Ethernet, &[0; 20], 9), None);
    }
}
