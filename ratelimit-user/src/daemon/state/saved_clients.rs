//! Keeps the memory of known clients across reboots: one sealed file in the directory that outlives them. The file has the secret of the hash, because
//! clients are remembered by hashes, and ages instead of moments, because the kernel's clock begins anew with every boot.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::UNIX_EPOCH,
};

use ratelimit_common::limit::clients::{Client, SETS, WAYS};
use serde::{Deserialize, Serialize};

use super::{replacement::Replacement, seal::Seal};
use crate::{clock, dataplane::clients::ClientMemory, dataplane::probe, log};

/// The name of the file.
const FILE: &str = "known-clients";
/// The version of the file's contents, which grows when the words of clients change.
const FORMAT: u32 = 1;
/// The bytes of one client: its set and its word, the lowest byte first.
const CLIENT_BYTES: usize = 4 + 8;
/// The largest size of the file in bytes.
const MAX_BYTES: u64 = SETS as u64 * (WAYS * CLIENT_BYTES) as u64 + 4096;

/// The second line of the file; the first is its seal, and the clients follow.
#[derive(Debug, Serialize, Deserialize)]
struct SavedHeader {
    format: u32,
    /// The secret of the hash of sources.
    secret: [u64; 2],
    /// The milliseconds since 1970 at which the ages of clients were read.
    unix_ms: u64,
}

/// The clients that a daemon has saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct SavedClients {
    /// The secret of the hash of sources.
    pub(in crate::daemon) secret: [u64; 2],
    /// The milliseconds since 1970 at which the ages of clients were read.
    unix_ms: u64,
    /// The clients and their sets, in the order of sets.
    clients: Vec<(u32, Client)>,
}

impl SavedClients {
    /// Puts the clients into a memory that no program uses yet, and logs that. A failure is only logged, because protection does not depend on it.
    pub(in crate::daemon) fn restore(&self, memory: &ClientMemory) {
        // A clock that was set back says nothing about the time that has passed.
        let ms = clock::unix_ms().saturating_sub(self.unix_ms);
        match memory.restore(&self.clients, ms, probe::now_ns()) {
            Ok(count) => log::info(format!(
                "{count} clients are remembered that were saved {} s ago; {} were forgotten meanwhile",
                ms / 1_000,
                self.clients.len() as u64 - count
            )),
            Err(error) => log::warning(format!("{error}: no client is known")),
        }
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let header = SavedHeader { format: FORMAT, secret: self.secret, unix_ms: self.unix_ms };
        let mut content = serde_json::to_vec(&header)?;
        content.push(b'\n');
        content.reserve(self.clients.len() * CLIENT_BYTES);
        for (set, client) in &self.clients {
            content.extend_from_slice(&set.to_le_bytes());
            content.extend_from_slice(&client.0.to_le_bytes());
        }
        let mut bytes = serde_json::to_vec(&Seal::of(&content))?;
        bytes.push(b'\n');
        bytes.append(&mut content);
        Ok(bytes)
    }

    /// Reads the bytes of a file; an error is the end of a sentence about it.
    pub(in crate::daemon) fn opened(bytes: &[u8]) -> Result<Self, String> {
        let (seal, content) = line_of(bytes).ok_or("it has no first line")?;
        let seal: Seal = serde_json::from_slice(seal).map_err(|_| "its first line is damaged")?;
        seal.check(content)?;
        let (header, words) = line_of(content).ok_or("it has no second line")?;
        let found: serde_json::Value = serde_json::from_slice(header).map_err(|error| error.to_string())?;
        if found["format"] != FORMAT {
            return Err(format!("it is of format {}, and this build reads format {FORMAT}", found["format"]));
        }
        let SavedHeader { secret, unix_ms, .. } =
            serde_json::from_value(found).map_err(|error| error.to_string())?;
        let (words, rest) = words.as_chunks::<CLIENT_BYTES>();
        let client = |bytes: &[u8; CLIENT_BYTES]| {
            let [a, b, c, d, word @ ..] = *bytes;
            (u32::from_le_bytes([a, b, c, d]), Client(u64::from_le_bytes(word)))
        };
        let clients: Vec<(u32, Client)> = words.iter().map(client).collect();
        if !rest.is_empty()
            || clients.last().is_some_and(|(set, _)| *set >= SETS)
            || !clients.is_sorted_by_key(|one| one.0)
        {
            return Err("its clients are not in order".to_owned());
        }
        Ok(Self { secret, unix_ms, clients })
    }
}

/// Splits bytes behind their first line.
fn line_of(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Saves known clients, and reads those that were saved.
#[derive(Debug)]
pub(in crate::daemon) struct ClientKeeper {
    path: PathBuf,
    /// Held while the file is written, so that only one thread writes it.
    writing: Mutex<()>,
    problems: Mutex<SavingProblems>,
}

#[derive(Debug, Default)]
struct SavingProblems {
    /// Why clients that were saved are not remembered.
    unread: Option<String>,
    /// Why clients cannot be saved.
    unwritten: Option<String>,
}

impl ClientKeeper {
    /// Keeps known clients in a directory that outlives a reboot.
    pub(in crate::daemon) fn new(directory: &Path) -> Self {
        Self { path: directory.join(FILE), writing: Mutex::default(), problems: Mutex::default() }
    }

    /// Returns the path of the file.
    pub(in crate::daemon) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the clients that were saved, if there are some. A file that cannot be read is set aside.
    pub(in crate::daemon) fn read(&self) -> Option<SavedClients> {
        let why = match self.read_file() {
            Ok(saved) => return saved,
            Err(why) => why,
        };
        let aside = self.path.with_extension("damaged");
        let moved = match fs::rename(&self.path, &aside) {
            Ok(()) => format!("it stays as {}", aside.display()),
            Err(error) => format!("it cannot be set aside: {error}"),
        };
        let problem = format!("{} is not used: {why}; no client is known, {moved}", self.path.display());
        log::error(&problem);
        self.problems().unread = Some(problem);
        None
    }

    fn read_file(&self) -> Result<Option<SavedClients>, String> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
            Ok(found) if !found.is_file() || found.len() > MAX_BYTES => {
                return Err("it is no file of ours".to_owned());
            }
            Ok(_) => {}
        }
        let bytes = fs::read(&self.path).map_err(|error| error.to_string())?;
        SavedClients::opened(&bytes).map(Some)
    }

    /// Writes the clients of a memory to disk.
    pub(in crate::daemon) fn save(&self, memory: &ClientMemory, secret: [u64; 2]) -> io::Result<()> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = memory.aged(probe::now_ns()).map_err(io::Error::other);
        let saved = clients.map(|clients| SavedClients { secret, unix_ms: clock::unix_ms(), clients });
        let written = saved
            .and_then(|saved| saved.to_bytes())
            .and_then(|bytes| Replacement::prepare(&self.path, &bytes)?.commit());
        let problem = written.as_ref().err().map(|error| {
            format!("known clients are NOT ON DISK: cannot write {}: {error}", self.path.display())
        });
        let before = std::mem::replace(&mut self.problems().unwritten, problem.clone());
        match (before, problem) {
            (None, Some(problem)) => log::error(problem),
            (Some(_), None) => log::info(format!("{} is written again", self.path.display())),
            _ => {}
        }
        written
    }

    /// Returns the seconds since 1970 at which clients were saved last, if they were.
    pub(in crate::daemon) fn saved_unix_seconds(&self) -> Option<u64> {
        let modified = fs::metadata(&self.path).and_then(|found| found.modified()).ok()?;
        Some(modified.duration_since(UNIX_EPOCH).ok()?.as_secs())
    }

    /// Returns sentences about what was not read and cannot be written.
    pub(in crate::daemon) fn warnings(&self) -> Vec<String> {
        let problems = self.problems();
        problems.unread.iter().chain(&problems.unwritten).cloned().collect()
    }

    fn problems(&self) -> MutexGuard<'_, SavingProblems> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::replacement::tests::Dir, *};

    fn saved() -> SavedClients {
        let clients = (0..100).map(|n| (n / 3, Client::imported(u64::from(n), 7, 1_000)));
        SavedClients { secret: [u64::MAX, 1], unix_ms: 1_800_000_000_123, clients: clients.collect() }
    }

    #[test]
    fn saved_clients_are_read_as_they_were() {
        let bytes = saved().to_bytes().unwrap();
        assert_eq!(SavedClients::opened(&bytes), Ok(saved()));
        assert!(bytes.len() < 100 * CLIENT_BYTES + 200, "only clients take room");
        let none = SavedClients { clients: Vec::new(), ..saved() };
        assert_eq!(SavedClients::opened(&none.to_bytes().unwrap()), Ok(none));
    }

    #[test]
    fn a_damaged_file_is_not_used_and_set_aside() {
        let dir = Dir::new("known-clients");
        let bytes = saved().to_bytes().unwrap();
        for at in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(SavedClients::opened(&damaged).is_err(), "{at}");
            assert!(SavedClients::opened(&bytes[..at]).is_err(), "{at}");
        }
        let keeper = ClientKeeper::new(&dir.0);
        assert_eq!((keeper.read(), keeper.warnings()), (None, vec![]), "there is no file");
        fs::write(keeper.path(), &bytes).unwrap();
        assert_eq!(keeper.read(), Some(saved()));
        fs::write(keeper.path(), &bytes[1..]).unwrap();
        assert_eq!(keeper.read(), None);
        let warnings = keeper.warnings();
        assert!(warnings[0].contains("known-clients is not used: its first line is damaged"), "{warnings:?}");
        assert_eq!(dir.names(), ["known-clients.damaged"]);
    }

    #[test]
    fn a_file_of_another_format_or_out_of_order_is_not_used() {
        let sealed = |content: &str, words: &[u8]| {
            let content = [format!("{content}\n").as_bytes(), words].concat();
            let seal = serde_json::to_string(&Seal::of(&content)).unwrap();
            [format!("{seal}\n").as_bytes(), &content].concat()
        };
        let header = r#"{"format":1,"secret":[1,3],"unix_ms":5}"#;
        assert!(SavedClients::opened(&sealed(header, &[])).is_ok());
        for (content, words, why) in [
            (r#"{"format":2}"#, &[][..], "it is of format 2, and this build reads format 1"),
            (r#"{"unix_ms":5}"#, &[], "it is of format null"),
            (header, &[0; 13], "its clients are not in order"),
            (header, &[0xff; 12], "its clients are not in order"),
            (header, &[[1; 12], [0; 12]].concat()[..], "its clients are not in order"),
        ] {
            let error = SavedClients::opened(&sealed(content, words)).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
