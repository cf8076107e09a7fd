//! Parses the text of a policy file into a policy, or into all of its problems with line and column.
//!
//! Each table has a file, which declares its keys (`policy_table!`) and their meaning. `document` reads the shape of the whole file, then
//! `resolve` the meaning; both collect problems and continue. `reader` saves most of this work for texts with long lists of prefixes, and for texts much
//! like the one before.

mod aggregation;
mod apis;
mod cluster;
mod document;
pub mod edit;
mod host;
mod listen;
mod lists;
mod loaded;
mod notify;
mod pieces;
mod problem;
mod reader;
mod request_limits;
mod resolve;
mod services;
mod source;
mod table;
mod users;
mod value;
mod warnings;

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
    string::FromUtf8Error,
};

pub use listen::OPERATORS_ARE_OTHERS;
pub use loaded::{LoadError, Loaded, Problem};
pub use reader::Reader;

/// The largest policy file in bytes. A larger file is a mistake.
pub const MAX_BYTES: u64 = 16 << 20;

/// Reads and checks a policy file.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    parse(&read_text(path)?, &path.display().to_string())
}

/// A `[source]` table for policies without limits of packets.
const NO_PACKETS: &str = "\n[source]\nlimits = [\"1 packets/s\"]\n";

/// Reads a policy for a decision service that guards no interface: `[source]` can be missing.
pub fn load_for_requests(path: &Path) -> Result<Loaded, LoadError> {
    let (text, name) = (read_text(path)?, path.display().to_string());
    // At the end of the text, so that places in messages stay valid.
    if lacks(&text, "source") { parse(&(text + NO_PACKETS), &name) } else { parse(&text, &name) }
}

/// Reads a policy for `check`. Also returns whether the policy limits packets: one with APIs and without `[source]` does not.
pub fn load_to_check(path: &Path) -> Result<(Loaded, bool), LoadError> {
    let text = read_text(path)?;
    let is_for_requests = lacks(&text, "source") && !lacks(&text, "api");
    let loaded = if is_for_requests { load_for_requests(path) } else { load(path) };
    Ok((loaded?, !is_for_requests))
}

/// A problem with the value of a key, at the place of the value, or at the beginning of the file if there is none.
pub fn problem_with(path: &Path, table: &str, key: &str, message: &str) -> LoadError {
    let text = read_text(path).unwrap_or_default();
    let at = toml::de::DeTable::parse(&text).ok().and_then(|root| {
        let table = root.get_ref().get(table)?.get_ref().as_table()?;
        Some(table.get(key)?.span())
    });
    let name = path.display().to_string();
    let mut problems = problem::Problems::new(&name, &text, &[]);
    problems.error(&at.unwrap_or_default(), message);
    problems.only_errors()
}

/// Whether a file is valid TOML and lacks a table.
fn lacks(text: &str, name: &str) -> bool {
    toml::de::DeTable::parse(text).is_ok_and(|table| !table.get_ref().contains_key(name))
}

/// Reads the text of a policy file without parsing it.
pub fn read_text(path: &Path) -> Result<String, LoadError> {
    let unreadable = |reason: String| LoadError::Unreadable { file: path.display().to_string(), reason };
    let text = read(path).map_err(|error| unreadable(error.to_string()))?;
    String::from_utf8(text).map_err(|error| unreadable(not_utf8(&error)))
}

/// Reads the text of a policy file for a second time. A pipe is refused: it has no more text, and reading it would block.
pub fn read_text_again(path: &Path) -> Result<String, LoadError> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            let reason =
                "it is no file, and nothing else can be read again; name a file with --policy".to_owned();
            Err(LoadError::Unreadable { file: path.display().to_string(), reason })
        }
        // If the file cannot be examined, reading it fails too and gives the reason.
        _ => read_text(path),
    }
}

/// Parses the text of a policy file; `name` is the file name in messages.
pub fn parse(text: &str, name: &str) -> Result<Loaded, LoadError> {
    Reader::default().parse(&text.into(), name)
}

/// Parses a policy without the shortcuts that [`Reader`] takes for long lists.
pub fn parse_whole(text: &str, name: &str) -> Result<Loaded, LoadError> {
    reader::parse_whole(text.strip_prefix(reader::MARK).unwrap_or(text), name)
}

/// Reads a whole file, but at most [`MAX_BYTES`] bytes: a device has no size and no end.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("more than a policy has; at most {MAX_BYTES} bytes are read")));
    }
    Ok(bytes)
}

fn not_utf8(error: &FromUtf8Error) -> String {
    let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
    format!("not UTF-8 text (byte {}, in line {line}); save it as UTF-8", valid.len() + 1)
}

#[cfg(test)]
mod tests;
