//! pcapng, Wireshark's format: blocks, some of which are packets. A file has sections, each with a byte order and interfaces of its own.

use super::{CaptureError, Captured, LinkType, MAX_CAPTURED, input::Input, pcap::ByteOrder};

/// The first bytes of every file: the type of its first block.
pub(super) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const SECTION_KIND: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
/// The type of packet blocks before enhanced packet blocks existed.
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const COMMENT: u16 = 1;
const PACKET_FLAGS: u16 = 2;
const TIME_RESOLUTION: u16 = 9;
const TIME_OFFSET: u16 = 14;
/// The bits of a packet's flags for its direction, and their value for a packet that was sent.
const DIRECTION: u32 = 3;
const OUTGOING: u32 = 2;

/// Bytes around the body of a block: its type, its length, and the length again at the end.
const FRAMING: u32 = 12;
/// The most bytes of a block that is read rather than skipped: a packet with its options.
const MAX_BLOCK: u32 = MAX_CAPTURED as u32 + (1 << 16);
/// The most interfaces of a section.
const MAX_INTERFACES: usize = 4096;

/// An interface of a section.
#[derive(Clone, Copy, Debug)]
struct CaptureInterface {
    /// The link type's number, which is checked when a packet refers to the interface.
    link_type: u32,
    snap_len: u32,
    /// Units of packet times in a second.
    ticks_per_second: u64,
    offset_seconds: i64,
}

/// A pcapng file that is being read.
#[derive(Debug)]
pub(super) struct Pcapng {
    input: Input,
    order: ByteOrder,
    origins: Vec<CaptureInterface>,
    last_ns: u64,
    buffer: Vec<u8>,
}

/// The parts of a packet block, as positions in the buffer.
struct PacketParts {
    origin: usize,
    ticks: Option<u64>,
    data: (usize, usize),
    len: u32,
    options: usize,
}

impl Pcapng {
    /// Reads the rest of the first section header, after its first word.
    pub(super) fn new(input: Input) -> Result<Self, CaptureError> {
        let (order, origins, buffer) = (ByteOrder::Little, Vec::new(), Vec::new());
        let mut file = Self { input, order, origins, last_ns: 0, buffer };
        file.section()?;
        Ok(file)
    }

    /// Reads a section header, after its block type.
    fn section(&mut self) -> Result<(), CaptureError> {
        let at = self.input.offset() - 4;
        let [length, magic, version]: [[u8; 4]; 3] = [
            self.input.take("the length of a section header")?,
            self.input.take("the byte order of a section")?,
            self.input.take("the version of a section")?,
        ];
        let orders = [ByteOrder::Little, ByteOrder::Big];
        let Some(order) = orders.into_iter().find(|order| order.u32(magic) == BYTE_ORDER) else {
            return Err(self.input.error(at + 8, format!("{magic:02x?} is no byte order of a section")));
        };
        let major = order.u16([version[0], version[1]]);
        if major != 1 {
            return Err(self.input.error(at + 12, format!("pcapng version {major} is not known; 1 is")));
        }
        let length = order.u32(length);
        if length < 28 || !length.is_multiple_of(4) {
            return Err(self.input.error(at + 4, format!("a section header of {length} bytes cannot be")));
        }
        self.order = order;
        self.origins.clear();
        self.input.skip(u64::from(length - 16 - 4), "a section header")?;
        self.end_of_block(at, length)
    }

    fn end_of_block(&mut self, at: u64, length: u32) -> Result<(), CaptureError> {
        let again = self.order.u32(self.input.take("the end of a block")?);
        if again == length {
            return Ok(());
        }
        Err(self.input.error(at, format!("a block says that it has {length} bytes, and {again} at its end")))
    }

    pub(super) fn next_packet(&mut self) -> Result<Option<Captured<'_>>, CaptureError> {
        let (at, part) = loop {
            let at = self.input.offset();
            let Some(kind) = self.input.take_unless_over::<4>("a block")? else { return Ok(None) };
            // This block type reads the same in either byte order.
            let kind = self.order.u32(kind);
            if kind == SECTION_KIND {
                self.section()?;
                continue;
            }
            let length = self.order.u32(self.input.take("the length of a block")?);
            if length < FRAMING || !length.is_multiple_of(4) {
                let sentence =
                    format!("a block of {length} bytes cannot be; at least {FRAMING}, and a multiple of 4");
                return Err(self.input.error(at + 4, sentence));
            }
            if !matches!(kind, INTERFACE | OLD_PACKET | SIMPLE_PACKET | ENHANCED_PACKET) {
                self.input.skip(u64::from(length - FRAMING), "a block")?;
                self.end_of_block(at, length)?;
                continue;
            }
            if length > MAX_BLOCK {
                let sentence =
                    format!("a packet or interface of {length} bytes is too long; at most {MAX_BLOCK}");
                return Err(self.input.error(at + 4, sentence));
            }
            self.input.take_into(&mut self.buffer, (length - FRAMING) as usize, "a block")?;
            self.end_of_block(at, length)?;
            match kind {
                INTERFACE => self.interface(at)?,
                kind => break (at, self.part(at, kind)?),
            }
        };
        self.captured(at, &part).map(Some)
    }

    /// Adds the interface in the buffer to the section.
    fn interface(&mut self, at: u64) -> Result<(), CaptureError> {
        if self.buffer.len() < 8 {
            return Err(self.input.error(at, "an interface has less than its header"));
        }
        if self.origins.len() >= MAX_INTERFACES {
            return Err(self
                .input
                .error(at, format!("more than {MAX_INTERFACES} interfaces in one section")));
        }
        let [head, snap_len] = self.order.words(&self.buffer);
        let link_type = if self.order == ByteOrder::Little { head & 0xffff } else { head >> 16 };
        let (mut ticks_per_second, mut offset_seconds) = (1_000_000, 0);
        for (code, value) in options(self.order, &self.buffer[8..]) {
            match (code, value) {
                (TIME_RESOLUTION, [exponent, ..]) => {
                    let (base, power) = (if exponent & 0x80 == 0 { 10_u64 } else { 2 }, exponent & 0x7f);
                    // A unit that does not fit would be far below a nanosecond.
                    ticks_per_second = base.checked_pow(u32::from(power)).ok_or_else(|| {
                        self.input.error(
                            at,
                            format!("times in {base} to the power of -{power} seconds are too fine"),
                        )
                    })?;
                }
                (TIME_OFFSET, value) if value.len() >= 8 => {
                    let [first, second] = self.order.words(value);
                    let (low, high) =
                        if self.order == ByteOrder::Little { (first, second) } else { (second, first) };
                    offset_seconds = (u64::from(high) << 32 | u64::from(low)) as i64;
                }
                _ => {}
            }
        }
        self.origins.push(CaptureInterface { link_type, snap_len, ticks_per_second, offset_seconds });
        Ok(())
    }

    /// Finds the parts of the packet block in the buffer.
    fn part(&self, at: u64, kind: u32) -> Result<PacketParts, CaptureError> {
        let header = if kind == SIMPLE_PACKET { 4 } else { 20 };
        let body = self.buffer.len();
        if body < header {
            return Err(self.input.error(at, "a packet has less than its header"));
        }
        let ticks = |high: u32, low: u32| Some(u64::from(high) << 32 | u64::from(low));
        let [first, high, low, captured, len] = self.order.words(&self.buffer);
        let (origin, ticks, captured, len) = match kind {
            SIMPLE_PACKET => {
                let snap_len = self.origins.first().map_or(0, |origin| origin.snap_len);
                let kept = first.min((body - header) as u32);
                (0, None, if snap_len == 0 { kept } else { kept.min(snap_len) }, first)
            }
            OLD_PACKET => {
                let origin = if self.order == ByteOrder::Little { first & 0xffff } else { first >> 16 };
                (origin, ticks(high, low), captured, len)
            }
            _ => (first, ticks(high, low), captured, len),
        };
        let end = header + captured as usize;
        if captured as usize > MAX_CAPTURED || end > body {
            let sentence = format!(
                "a packet says that {captured} bytes of it follow, and its block has {}",
                body - header
            );
            return Err(self.input.error(at, sentence));
        }
        if len < captured {
            let sentence = format!("a packet had {len} bytes, it says, and {captured} of them follow");
            return Err(self.input.error(at, sentence));
        }
        let options = (header + (captured as usize).next_multiple_of(4)).min(body);
        Ok(PacketParts { origin: origin as usize, ticks, data: (header, end), len, options })
    }

    fn captured(&mut self, at: u64, part: &PacketParts) -> Result<Captured<'_>, CaptureError> {
        let Some(origin) = self.origins.get(part.origin) else {
            let sentence = format!("a packet is from interface {}, which the section has not", part.origin);
            return Err(self.input.error(at, sentence));
        };
        let link_type =
            LinkType::numbered(origin.link_type).map_err(|sentence| self.input.error(at, sentence))?;
        let unix_ns = part.ticks.map_or(self.last_ns, |ticks| unix_ns(origin, ticks));
        self.last_ns = unix_ns;
        let (mut is_outgoing, mut comment) = (false, None);
        for (code, value) in options(self.order, &self.buffer[part.options..]) {
            match code {
                PACKET_FLAGS if value.len() >= 4 => {
                    let [flags] = self.order.words(value);
                    is_outgoing = flags & DIRECTION == OUTGOING;
                }
                COMMENT => comment = comment.or(str::from_utf8(value).ok()),
                _ => {}
            }
        }
        let bytes = &self.buffer[part.data.0..part.data.1];
        Ok(Captured { unix_ns, link_type, bytes, len: u64::from(part.len), is_outgoing, comment })
    }
}

/// A packet's time in nanoseconds since 1970, clamped to the range of the number.
fn unix_ns(origin: &CaptureInterface, ticks: u64) -> u64 {
    let ns = i128::from(ticks) * 1_000_000_000 / i128::from(origin.ticks_per_second.max(1));
    let ns = ns + i128::from(origin.offset_seconds) * 1_000_000_000;
    u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
}

/// The options at the end of a block; an invalid option ends them.
fn options(order: ByteOrder, mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        let code = order.u16([head[0], head[1]]);
        let len = usize::from(order.u16([head[2], head[3]]));
        if code == 0 {
            return None;
        }
        let value = rest.get(..len)?;
        bytes = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    })
}
