//! systemd's journal: whether standard error leads to it, and its socket for entries with fields.

use std::{
    fs, io,
    os::unix::{fs::MetadataExt as _, net::UnixDatagram},
    path::{Path, PathBuf},
};

/// The socket at which the journal takes entries in its own protocol.
const SOCKET: &str = "/run/systemd/journal/socket";

/// A connection to systemd's journal.
#[derive(Debug)]
pub(super) struct SystemJournal {
    socket: Option<UnixDatagram>,
    at: PathBuf,
}

impl SystemJournal {
    /// The journal, if standard error leads to it. `stream` is systemd's description of the journal's stream; if standard error is redirected, it differs.
    pub(super) fn behind_stderr(stream: Option<&str>) -> Option<Self> {
        let stderr = fs::metadata("/proc/self/fd/2").ok()?;
        let (device, file) = stream?.split_once(':')?;
        let is_it = device.parse() == Ok(stderr.dev()) && file.parse() == Ok(stderr.ino());
        is_it.then(|| Self::at(Path::new(SOCKET)))
    }

    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::unbound().ok();
        // Not blocking, so that protection continues when the journal does not read.
        let socket = socket.filter(|socket| socket.set_nonblocking(true).is_ok());
        Self { socket, at: path.to_owned() }
    }

    /// Sends an entry; an error means that the journal did not take it.
    pub(super) fn send(&self, entry: &[u8]) -> io::Result<()> {
        let socket = self.socket.as_ref().ok_or_else(|| io::Error::other("there is no socket"))?;
        socket.send_to(entry, &self.at).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_arrives_as_one_datagram_and_a_journal_that_is_not_there_is_an_error() {
        let path = std::env::temp_dir().join(format!("ratelimit-journal-{}", std::process::id()));
        let _absent = fs::remove_file(&path);
        assert!(SystemJournal::at(&path).send(b"MESSAGE=x\n").is_err());
        let journal = UnixDatagram::bind(&path).unwrap();
        SystemJournal::at(&path).send(b"MESSAGE=hello\nPRIORITY=6\n").unwrap();
        let mut entry = [0; 64];
        let length = journal.recv(&mut entry).unwrap();
        assert_eq!(&entry[..length], b"MESSAGE=hello\nPRIORITY=6\n");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn standard_error_leads_to_the_journal_only_if_it_is_the_file_that_systemd_names() {
        let stderr = fs::metadata("/proc/self/fd/2").unwrap();
        let named = format!("{}:{}", stderr.dev(), stderr.ino());
        assert!(SystemJournal::behind_stderr(Some(&named)).is_some());
        let beside = format!("{}:{}", stderr.dev(), stderr.ino() + 1);
        for other in [Some(beside.as_str()), None, Some(""), Some("1:2"), Some("nonsense"), Some("1:")] {
            assert!(SystemJournal::behind_stderr(other).is_none(), "{other:?}");
        }
    }
}
