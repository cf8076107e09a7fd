//! pcap, tcpdump's first format: one header, then packets. In the byte order of the machine that wrote it, with times in micro- or nanoseconds.

use super::{CaptureError, Captured, LinkType, MAX_CAPTURED, input::Input};

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// The bits of the last header word that have the link type; the others describe check sequences at the end of frames.
const LINK_TYPE: u32 = 0xffff;

/// The byte order of the numbers in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// A number of two bytes.
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// A number of four bytes.
    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// Numbers of four bytes each.
    pub(super) fn words<const N: usize>(self, bytes: &[u8]) -> [u32; N] {
        let (words, _) = bytes.as_chunks::<4>();
        std::array::from_fn(|at| words.get(at).map_or(0, |word| self.u32(*word)))
    }
}

/// A pcap file that is being read.
#[derive(Debug)]
pub(super) struct Pcap {
    input: Input,
    order: ByteOrder,
    /// The unit of the second half of a time, in nanoseconds.
    unit_ns: u64,
    link_type: LinkType,
    packets: u64,
    buffer: Vec<u8>,
}

impl Pcap {
    /// Reads the rest of the file header, after its first word.
    pub(super) fn new(mut input: Input, magic: [u8; 4]) -> Result<Self, CaptureError> {
        let known =
            [ByteOrder::Little, ByteOrder::Big].into_iter().find_map(|order| match order.u32(magic) {
                MICROSECONDS => Some((order, 1_000)),
                NANOSECONDS => Some((order, 1)),
                _ => None,
            });
        let Some((order, unit_ns)) = known else {
            let packed =
                if magic[..2] == [0x1f, 0x8b] { "; it is packed with gzip, unpack it first" } else { "" };
            return Err(input
                .error(0, format!("it begins with {magic:02x?}, which is neither pcap nor pcapng{packed}")));
        };
        let header: [u8; 20] = input.take("the header of the file")?;
        let [version, _, _, _, network] = order.words(&header);
        let major = if order == ByteOrder::Little { version & 0xffff } else { version >> 16 };
        if major != 2 {
            return Err(input.error(4, format!("pcap version {major} is not known; 2 is")));
        }
        let link_type =
            LinkType::numbered(network & LINK_TYPE).map_err(|sentence| input.error(20, sentence))?;
        Ok(Self { input, order, unit_ns, link_type, packets: 0, buffer: Vec::new() })
    }

    pub(super) fn next_packet(&mut self) -> Result<Option<Captured<'_>>, CaptureError> {
        let at = self.input.offset();
        let Some(header) = self.input.take_unless_over::<16>("the header of a packet")? else {
            return Ok(None);
        };
        let [seconds, fraction, captured, len] = self.order.words(&header);
        self.packets += 1;
        let number = self.packets;
        if captured as usize > MAX_CAPTURED {
            let sentence = format!(
                "packet {number} says that {captured} bytes of it follow; at most {MAX_CAPTURED} can"
            );
            return Err(self.input.error(at + 8, sentence));
        }
        if len < captured {
            let sentence = format!("packet {number} had {len} bytes, it says, and {captured} of them follow");
            return Err(self.input.error(at + 8, sentence));
        }
        self.input.take_into(&mut self.buffer, captured as usize, "a packet")?;
        Ok(Some(Captured {
            unix_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit_ns,
            link_type: self.link_type,
            bytes: &self.buffer,
            len: u64::from(len),
            is_outgoing: false,
            comment: None,
        }))
    }
}
