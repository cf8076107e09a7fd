//! The file of `watch --pcap`.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, IsTerminal as _, Write},
    path::{Path, PathBuf},
};

use crate::{
    capture::{
        LinkType,
        write::{PacketToWrite, PcapngWriter},
    },
    drops::RefusedFrame,
    failure::{ExitCode, Failure},
};

/// A file that refused packets are written to; whole after each of them.
pub(super) struct PcapFile {
    path: PathBuf,
    writer: PcapngWriter<Box<dyn Write>>,
    interfaces: HashMap<(String, bool), u32>,
}

impl PcapFile {
    /// Makes the file, or takes standard output by the name `-`.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| unwritable(path, &error);
        let out: Box<dyn Write> = match is_stdout(path) {
            true => Box::new(io::stdout()),
            false => Box::new(File::create(path).map_err(failed)?),
        };
        let writer = PcapngWriter::new(out).map_err(failed)?;
        Ok(Self { path: path.to_owned(), writer, interfaces: HashMap::new() })
    }

    /// Adds a packet. Says whether somebody still reads.
    pub(super) fn add(&mut self, frame: &RefusedFrame) -> Result<bool, Failure> {
        match self.write(frame) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(unwritable(&self.path, &error)),
        }
    }

    fn write(&mut self, frame: &RefusedFrame) -> io::Result<()> {
        let key = (frame.interface.clone(), frame.is_ip);
        let interface = match self.interfaces.get(&key) {
            Some(known) => *known,
            None => {
                let link_type = if frame.is_ip { LinkType::Ip } else { LinkType::Ethernet };
                let number = self.writer.interface(&frame.interface, link_type)?;
                self.interfaces.insert(key, number);
                number
            }
        };
        let bytes = frame.bytes().unwrap_or_default();
        self.writer.packet(&PacketToWrite {
            interface,
            unix_ns: frame.unix_ns,
            bytes: &bytes,
            len: frame.packet.bytes,
            comment: &frame.comment(),
        })?;
        self.writer.flush()
    }
}

/// Bytes of packets make a terminal useless.
pub(super) fn refuse_terminal(path: &Path) -> Result<(), Failure> {
    if is_stdout(path) && io::stdout().is_terminal() {
        return Err(Failure::usage(
            "--pcap - writes packets to standard output, which is a terminal; pipe it into tshark -r - or name a file",
        ));
    }
    Ok(())
}

/// Whether packets go to standard output, which then has nothing else.
pub(super) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let code = if denied { ExitCode::NotPermitted } else { ExitCode::Usage };
    Failure::new(
        code,
        format!("cannot write the capture {}: {error}; name another file with --pcap", path.display()),
    )
}
