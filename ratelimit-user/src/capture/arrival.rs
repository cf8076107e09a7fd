//! Turns captured packets into frames as an interface would have handed them to the packet path.

use ratelimit_ebpf::frame::{Frame, Link};

use super::{Captured, LinkType};

/// Length in bytes of the header that Linux writes for interfaces of all kinds, in its two forms.
const COOKED: usize = 16;
const COOKED2: usize = 20;
/// The packet type of a packet that the host sent itself.
const SENT: u16 = 4;
/// Device types whose frames begin with an Ethernet header: Ethernet, and the loopback device.
const WITH_ETHERNET: [u16; 2] = [1, 772];
const ETHERNET: usize = 14;

/// A frame that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// When the frame arrived, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The frame for the packet path.
    pub frame: Frame<'a>,
    /// The bytes of the frame that are in the file.
    pub bytes: &'a [u8],
    /// Whether the file has only a part of the frame.
    pub is_cut: bool,
}

/// Why a captured packet is not an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The host sent the packet: limits never see it.
    Outgoing,
    /// The captured bytes end inside the link header.
    NoHeader,
}

/// Turns captured packets into arrivals.
#[derive(Debug, Default)]
pub struct ArrivalMaker {
    /// A frame with an Ethernet header made from what is known of it, if the header was not captured.
    rebuilt: Vec<u8>,
}

/// The fields of a cooked packet's header.
struct CookedHeader {
    kind: u16,
    device: u16,
    protocol: u16,
    address: [u8; 6],
    len: usize,
}

impl ArrivalMaker {
    /// The arrival of a captured packet, or why there is none.
    pub fn of<'a>(&'a mut self, captured: &Captured<'a>) -> Result<Arrival<'a>, Absent> {
        let Captured { unix_ns, link_type, bytes, len, is_outgoing, .. } = *captured;
        if is_outgoing {
            return Err(Absent::Outgoing);
        }
        let is_cut = len > bytes.len() as u64;
        let (link, bytes, len) = match link_type {
            LinkType::Ethernet => (Link::Ethernet, bytes, len),
            LinkType::Ip => (Link::Ip, bytes, len),
            LinkType::Cooked | LinkType::Cooked2 => {
                let header = cooked(link_type, bytes).ok_or(Absent::NoHeader)?;
                if header.kind == SENT {
                    return Err(Absent::Outgoing);
                }
                self.uncooked(&header, &bytes[header.len..], len - header.len as u64)
            }
        };
        Ok(Arrival { unix_ns, frame: Frame::with_len(link, bytes, len), bytes, is_cut })
    }

    /// The frame behind a cooked packet. On Ethernet its header is made again, without the destination, which was not captured.
    fn uncooked<'a>(&'a mut self, header: &CookedHeader, rest: &'a [u8], len: u64) -> (Link, &'a [u8], u64) {
        if !WITH_ETHERNET.contains(&header.device) {
            return (Link::Ip, rest, len);
        }
        self.rebuilt.clear();
        self.rebuilt.extend([0; 6]);
        self.rebuilt.extend(header.address);
        self.rebuilt.extend(header.protocol.to_be_bytes());
        self.rebuilt.extend(rest);
        (Link::Ethernet, &self.rebuilt, len + ETHERNET as u64)
    }
}

fn cooked(link_type: LinkType, bytes: &[u8]) -> Option<CookedHeader> {
    let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    if link_type == LinkType::Cooked {
        let address = bytes.get(..COOKED)?[6..12].try_into().ok()?;
        Some(CookedHeader { kind: half(0), device: half(2), protocol: half(14), address, len: COOKED })
    } else {
        let address = bytes.get(..COOKED2)?[12..18].try_into().ok()?;
        let kind = u16::from(bytes[10]);
        Some(CookedHeader { kind, device: half(8), protocol: half(0), address, len: COOKED2 })
    }
}
