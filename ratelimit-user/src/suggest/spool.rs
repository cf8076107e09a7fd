//! Keeps packets for a second pass: from a pipe or an interface they come only once.

use ratelimit_ebpf::frame::{Frame, Link};

use crate::capture::Arrival;

/// Bytes of each packet that are kept: enough for every header that the packet path follows in practice.
const KEPT: usize = 128;
/// The most packets and the most bytes in the spool.
const MAX_PACKETS: usize = 2_000_000;
const MAX_BYTES: usize = 128 << 20;

/// A packet in the spool.
#[derive(Clone, Copy, Debug)]
struct SpooledPacket {
    unix_ns: u64,
    start: u32,
    len: u32,
    kept: u8,
    is_ip: bool,
}

/// A bounded number of packets in memory.
#[derive(Debug, Default)]
pub struct Spool {
    bytes: Vec<u8>,
    packets: Vec<SpooledPacket>,
}

/// The error for a spool without room for another packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolFull;

impl Spool {
    /// Keeps an arrival.
    pub fn keep(&mut self, arrival: &Arrival<'_>) -> Result<(), SpoolFull> {
        let bytes = &arrival.bytes[..arrival.bytes.len().min(KEPT)];
        if self.packets.len() >= MAX_PACKETS || self.bytes.len() + bytes.len() > MAX_BYTES {
            return Err(SpoolFull);
        }
        self.packets.push(SpooledPacket {
            unix_ns: arrival.unix_ns,
            start: self.bytes.len() as u32,
            len: arrival.frame.len().min(u64::from(u32::MAX)) as u32,
            kept: bytes.len() as u8,
            is_ip: arrival.frame.link() == Link::Ip,
        });
        self.bytes.extend(bytes);
        Ok(())
    }

    /// How many packets are in the spool.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether the spool is empty.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// All packets, in the order in which they arrived.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival<'_>> {
        self.packets.iter().map(|one| {
            let bytes = &self.bytes[one.start as usize..][..usize::from(one.kept)];
            let link = if one.is_ip { Link::Ip } else { Link::Ethernet };
            let is_cut = u64::from(one.len) > bytes.len() as u64;
            let frame = Frame::with_len(link, bytes, u64::from(one.len));
            Arrival { unix_ns: one.unix_ns, frame, bytes, is_cut }
        })
    }
}
