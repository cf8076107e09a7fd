//! Marks a packet as less important: writes another DSCP class into its IP header, for the queues behind this host.

use core::mem::offset_of;

use network_types::ip::Ipv4Hdr;
use ratelimit_common::abi::{Verdict, counter::Fate};

use crate::{
    frame::{Canvas, Frame},
    notes::{parse_again, take},
    packet::Family,
    reply::Wire,
    tables::Tables,
    verdict::count,
};

/// The bits of the DSCP class in the first two bytes of an IPv4 header, as a number.
const CLASS_V4: u16 = 0x00fc;
const CLASS_V6: u16 = 0x0fc0;
/// Offset of the checksum in an IPv4 header.
const CHECKSUM_AT: usize = offset_of!(Ipv4Hdr, check);

/// Marks a packet that a limit refused, lets it pass and counts it. A packet that cannot be marked is dropped.
#[inline(always)]
pub fn mark<T: Tables, W: Wire>(frame: &Frame<'_>, tables: &T, wire: &W) -> Verdict {
    let context = take(wire);
    let (fate, verdict) = match remark(frame, tables, wire, context.service) {
        Some(()) => (Fate::Marked, Verdict::Pass),
        None => (Fate::Decided, Verdict::Drop),
    };
    count(tables, context.service, context.otherwise, fate, frame.len());
    verdict
}

#[inline(always)]
fn remark<T: Tables, W: Wire>(frame: &Frame<'_>, tables: &T, wire: &W, number: u32) -> Option<()> {
    let packet = parse_again(frame, wire).ok()?;
    let (_, service) = tables.policy()?.service(number)?;
    wire.mark(packet.network_at, packet.source.family, u32::from(service.dscp)).then_some(())
}

/// Writes the class into the header at `at`. The two bits for congestion notification beside it stay.
#[inline(always)]
pub fn paint(canvas: &mut Canvas<'_>, at: usize, family: Family, dscp: u32) -> Option<()> {
    let (mask, class) = match family {
        Family::V4 => (CLASS_V4, (dscp as u16) << 2),
        Family::V6 => (CLASS_V6, (dscp as u16) << 6),
    };
    let [before] = canvas.get::<u16, 1>(at)?;
    let after = ((u16::from_be(before) & !mask) | (class & mask)).to_be();
    canvas.put::<u16, 1>(at, |_| after)?;
    match family {
        Family::V4 => {
            let [check] = canvas.get::<u16, 1>(at + CHECKSUM_AT)?;
            let check = adjusted(check, before, after);
            canvas.put::<u16, 1>(at + CHECKSUM_AT, |_| check)
        }
        // An IPv6 header has no checksum, and no other checksum covers this part of it.
        Family::V6 => Some(()),
    }
}

/// A checksum adjusted for a change of one of the words that it covers (RFC 1624, equation 3).
#[inline(always)]
fn adjusted(check: u16, before: u16, after: u16) -> u16 {
    let sum = u32::from(!check) + u32::from(!before) + u32::from(after);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    fn painted(bytes: &[u8], family: Family, dscp: u32) -> std::vec::Vec<u8> {
        let mut bytes = bytes.to_vec();
        paint(&mut Canvas::new(&mut bytes), 0, family, dscp).unwrap();
        bytes
    }

    /// The one's complement sum of a whole header: all ones if its checksum is right.
    fn sum(header: &[u8]) -> u16 {
        let mut sum: u32 =
            header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn an_ipv4_header_keeps_a_right_checksum_and_its_congestion_bits_whatever_the_class() {
        for before in 0..=255_u8 {
            let mut header =
                [0x45, before, 0, 60, 0x1c, 0x46, 0x40, 0, 64, 6, 0, 0, 172, 16, 10, 99, 172, 16, 10, 12];
            let check = !sum(&header);
            header[10..12].copy_from_slice(&check.to_be_bytes());
            for dscp in 0..64 {
                let after = painted(&header, Family::V4, dscp);
                assert_eq!(after[1], (dscp as u8) << 2 | before & 3);
                assert_eq!(sum(&after), 0xffff, "{before} to {dscp}");
                assert_eq!(after[12..], header[12..]);
            }
        }
    }

    #[test]
    fn a_carry_of_the_carry_is_added_too() {
        assert_eq!(adjusted(3, 0x4500, 0x4504), 0xfffe);
    }

    #[test]
    fn an_ipv6_header_keeps_version_congestion_bits_and_flow_label() {
        let header = [0x6b, 0xbf, 0xed, 0xcb, 0, 8, 17, 64];
        let after = painted(&header, Family::V6, 8);
        assert_eq!(after[0] >> 4, 6);
        assert_eq!(u16::from_be_bytes([after[0], after[1]]) >> 6 & 63, 8);
        assert_eq!(after[1] >> 4 & 3, header[1] >> 4 & 3, "congestion bits");
        assert_eq!(after[1] & 15, header[1] & 15, "flow label");
        assert_eq!(after[2..], header[2..]);
    }
}
