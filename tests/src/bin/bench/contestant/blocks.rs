//! Blocks that the daemon finds when it starts, as one before it would have written them down: a hundred thousand commands would take longer than all
//! that is measured.

use std::{fs, hash::Hasher as _, net::Ipv4Addr, os::unix::fs::DirBuilderExt as _, path::Path};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use siphasher::sip::SipHasher13;

/// The file of blocks in the directory of a daemon's state.
const FILE: &str = "lists.journal";

/// Writes the blocks into a state directory; no file if there are none.
pub(super) fn keep(state: &Path, blocked: impl IntoIterator<Item = Ipv4Addr>) -> Result<()> {
    let blocked: Vec<Ipv4Addr> = blocked.into_iter().collect();
    if blocked.is_empty() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .mode(0o700)
        .create(state)
        .with_context(|| format!("cannot make {}", state.display()))?;
    let path = state.join(FILE);
    fs::write(&path, journal(&blocked)).with_context(|| format!("cannot write {}", path.display()))
}

/// A line each, behind its checksum; the first one says how many there are.
fn journal(blocked: &[Ipv4Addr]) -> String {
    let begin = json!({ "begin": { "boot": "", "lines": blocked.len() + 1 } });
    let block = |address: &Ipv4Addr| json!({ "prefix": [format!("{address}/32"), { "block": {} }] });
    std::iter::once(begin).chain(blocked.iter().map(block)).map(|note| line(&note)).collect()
}

fn line(note: &Value) -> String {
    let text = note.to_string();
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write(text.as_bytes());
    format!("{:016x} {text}\n", hasher.finish())
}
