//! Files with keys, certificates, passwords and tokens that the policy names, and the store's socket. The front process may not open them, so the daemon
//! opens them for the front.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;

/// The most bytes that are read; no certificate chain or key is longer.
const LONGEST: u64 = 1 << 20;
/// The least characters of a token; shorter ones could be guessed.
const MIN_TOKEN: usize = 16;

/// The reader for a process that may not open files itself.
static ELSEWHERE: OnceLock<Box<dyn FileReader>> = OnceLock::new();

/// Reads files that the policy names.
pub(crate) trait FileReader: Send + Sync {
    /// The text of a file.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// The token in a file that `key` names.
    fn token(&self, key: &str, path: &Path) -> Result<TokenDigest, String>;
    /// The stamps of files, which change when the files do.
    fn stamps(&self, paths: &[PathBuf]) -> Vec<Stamp>;
    /// A connection to the store's socket in the file system.
    fn connect(&self, path: &Path) -> io::Result<UnixStream>;
}

/// The digest of a token, from which the token cannot be recovered.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenDigest([u8; SHA256_OUTPUT_LEN]);

// The digest is not shown: with it one could try tokens as fast as a processor computes hashes.
impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(..)")
    }
}

impl TokenDigest {
    /// The digest of a token.
    pub(crate) fn of(token: &[u8]) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, token).as_ref());
        Self(bytes)
    }

    /// Whether `given` is the token; takes a time that does not depend on how much of it is right.
    pub(crate) fn is_of(&self, given: &[u8]) -> bool {
        let given = Self::of(given);
        self.0.iter().zip(given.0).fold(0, |differ, (one, other)| differ | (one ^ other)) == 0
    }
}

/// Makes another reader read all files from now on.
pub(crate) fn read_by(reader: impl FileReader + 'static) {
    let _twice = ELSEWHERE.set(Box::new(reader));
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    match ELSEWHERE.get() {
        Some(elsewhere) => elsewhere.read(path),
        None => read_here(path),
    }
}

/// The digest of the token in a file that `key` names: its first line.
pub(crate) fn token(key: &str, path: &Path) -> Result<TokenDigest, String> {
    match ELSEWHERE.get() {
        Some(elsewhere) => elsewhere.token(key, path),
        None => token_here(key, path),
    }
}

/// The stamps of files, which change whenever one of them is written, replaced or removed.
pub(crate) fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    match ELSEWHERE.get() {
        Some(elsewhere) => elsewhere.stamps(paths),
        None => paths.iter().map(|path| Stamp::of(path)).collect(),
    }
}

/// A connection to the store's socket in the file system.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = match ELSEWHERE.get() {
        Some(elsewhere) => elsewhere.connect(path),
        None => UnixStream::connect(path),
    }?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// The text of a file that this process may open.
pub(crate) fn read_here(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

/// The digest of the token in a file that this process may open.
pub(crate) fn token_here(key: &str, path: &Path) -> Result<TokenDigest, String> {
    let text = read_here(path).map_err(|error| format!("cannot read {key} {}: {error}", path.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.len() < MIN_TOKEN || !token.chars().all(|c| c.is_ascii_graphic()) {
        return Err(format!(
            "{key} {} has no token of at least {MIN_TOKEN} letters and digits in its first line",
            path.display()
        ));
    }
    Ok(TokenDigest::of(token.as_bytes()))
}

/// Whether two files that this process may open have the same token. False for files that cannot be read: their users report that.
pub(crate) fn share_a_token(one: &Path, other: &Path) -> bool {
    let digest = |path: &Path| path.is_file().then(|| token_here("token", path).ok()).flatten();
    digest(one).is_some_and(|one| digest(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_the_token() {
        let right = TokenDigest::of(b"0123456789abcdef");
        assert!(right.is_of(b"0123456789abcdef"));
        for wrong in [&b"0123456789abcdeF"[..], b"0123456789abcde", b"0123456789abcdef0", b""] {
            assert!(!right.is_of(wrong));
        }
    }
}
