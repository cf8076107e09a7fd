//! Files of captured packets: pcap and pcapng, read packet by packet, and pcapng written.
//!
//! ```text
//!   file -> input (bytes with their offset) -> pcap | pcapng -> Captured -> arrival (a frame as the packet path takes it)
//! ```
//!
//! Every length in a file is checked against a bound before memory is allocated for it, so a file of random bytes gives a sentence and no more.

mod arrival;
mod error;
mod input;
mod joined;
mod link_type;
mod pcap;
mod pcapng;
#[cfg(test)]
mod tests;
pub mod write;

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

pub use arrival::{Absent, Arrival, ArrivalMaker};
pub use error::CaptureError;
use input::Input;
pub use joined::take_apart;
pub use link_type::LinkType;
use pcap::Pcap;
use pcapng::Pcapng;

/// The most bytes of one packet that are kept; tcpdump keeps no more.
pub const MAX_CAPTURED: usize = 262_144;

/// One packet of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'c> {
    /// When the packet was captured, in nanoseconds since 1970. A packet without a time has that of the packet before.
    pub unix_ns: u64,
    /// What the bytes begin with.
    pub link_type: LinkType,
    /// The first bytes of the packet.
    pub bytes: &'c [u8],
    /// Length of the whole packet in bytes.
    pub len: u64,
    /// Whether the host that captured the packet had sent it.
    pub is_outgoing: bool,
    /// The comment on the packet, if there is one.
    pub comment: Option<&'c str>,
}

/// A file that is being read.
#[derive(Debug)]
pub struct Capture {
    format: FileFormat,
}

#[derive(Debug)]
enum FileFormat {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl Capture {
    /// Opens a file, or standard input for the name `-`.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let name = path.display().to_string();
        if path == Path::new("-") {
            return Self::read("standard input", Box::new(io::stdin()));
        }
        match File::open(path) {
            Ok(file) => Self::read(&name, Box::new(BufReader::with_capacity(1 << 18, file))),
            Err(error) => Err(CaptureError::unreadable(&name, &error)),
        }
    }

    /// Reads a capture from any source; `name` is its name in sentences.
    pub fn read(name: &str, from: Box<dyn Read>) -> Result<Self, CaptureError> {
        let mut input = Input::new(name, from);
        let magic: [u8; 4] = input.take("the number that says what kind of file it is")?;
        let format = match magic {
            pcapng::SECTION => FileFormat::Pcapng(Pcapng::new(input)?),
            magic => FileFormat::Pcap(Pcap::new(input, magic)?),
        };
        Ok(Self { format })
    }

    /// The format of the file: `pcap` or `pcapng`.
    pub fn format(&self) -> &'static str {
        match &self.format {
            FileFormat::Pcap(_) => "pcap",
            FileFormat::Pcapng(_) => "pcapng",
        }
    }

    /// Reads the next packet; `None` at the end of the file.
    pub fn next_packet(&mut self) -> Result<Option<Captured<'_>>, CaptureError> {
        match &mut self.format {
            FileFormat::Pcap(pcap) => pcap.next_packet(),
            FileFormat::Pcapng(pcapng) => pcapng.next_packet(),
        }
    }
}
