//! Writes pcapng: one section, interfaces when they are first needed, packets with a time in nanoseconds and a comment.

use std::io::{self, Write};

use super::LinkType;

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

const COMMENT: u16 = 1;
const INTERFACE_NAME: u16 = 2;
const APPLICATION: u16 = 4;
const TIME_RESOLUTION: u16 = 9;
/// The exponent of the time unit: 10^-9 seconds.
const NANOSECONDS: u8 = 9;
/// The most bytes of a comment; longer ones are cut off.
const MAX_COMMENT: usize = 1024;

/// A packet to be written.
#[derive(Clone, Copy, Debug)]
pub struct PacketToWrite<'w> {
    /// The number that [`PcapngWriter::interface`] returned.
    pub interface: u32,
    /// When the packet was captured, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The first bytes of the packet.
    pub bytes: &'w [u8],
    /// Length of the whole packet in bytes.
    pub len: u32,
    /// A comment that is written with the packet.
    pub comment: &'w str,
}

/// A pcapng file that is being written.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    out: W,
    interfaces: u32,
}

impl<W: Write> PcapngWriter<W> {
    /// Begins a file with its section header.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self { out, interfaces: 0 };
        let mut body = Vec::new();
        body.extend(BYTE_ORDER.to_le_bytes());
        body.extend([1, 0, 0, 0]);
        // The length of the section may be left unknown.
        body.extend([0xff; 8]);
        option(&mut body, APPLICATION, b"ratelimit");
        end_options(&mut body);
        writer.block(SECTION, &body)?;
        Ok(writer)
    }

    /// Adds an interface, and returns the number by which packets refer to it.
    pub fn interface(&mut self, name: &str, link_type: LinkType) -> io::Result<u32> {
        let mut body = Vec::new();
        body.extend(link_type.number().to_le_bytes());
        body.extend([0; 2 + 4]);
        option(&mut body, INTERFACE_NAME, name.as_bytes());
        option(&mut body, TIME_RESOLUTION, &[NANOSECONDS]);
        end_options(&mut body);
        self.block(INTERFACE, &body)?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Adds a packet.
    pub fn packet(&mut self, packet: &PacketToWrite<'_>) -> io::Result<()> {
        let PacketToWrite { interface, unix_ns, bytes, len, comment } = *packet;
        let captured = bytes.len() as u32;
        let mut body = Vec::with_capacity(64 + bytes.len() + comment.len());
        for word in [interface, (unix_ns >> 32) as u32, unix_ns as u32, captured, len.max(captured)] {
            body.extend(word.to_le_bytes());
        }
        padded(&mut body, bytes);
        if !comment.is_empty() {
            let mut end = comment.len().min(MAX_COMMENT);
            while !comment.is_char_boundary(end) {
                end -= 1;
            }
            option(&mut body, COMMENT, &comment.as_bytes()[..end]);
            end_options(&mut body);
        }
        self.block(PACKET, &body)
    }

    /// Flushes what was written so far: whole blocks.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let length = (body.len() as u32 + 12).to_le_bytes();
        // Written in one piece, so that a reader never finds half a block.
        self.out.write_all(&[&kind.to_le_bytes(), &length, body, &length].concat())
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    padded(body, value);
}

fn end_options(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

fn padded(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend(bytes);
    body.resize(body.len().next_multiple_of(4), 0);
}
