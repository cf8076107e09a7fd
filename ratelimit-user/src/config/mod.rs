//! From the text of a policy file to a policy, or to every problem in it with line and column.
//!
//! Each table has a file, which declares its keys (`policy_table!`) and says what they mean. `document` reads the shape of the whole file, then
//! `resolve` the meaning; both collect problems and go on. `reader` saves them most of the work where a text is long lists of prefixes, or much
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

/// Larger files are a mistake.
pub const MAX_BYTES: u64 = 16 << 20;

/// Reads and checks a policy file.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    parse(&read_text(path)?, &path.display().to_string())
}

/// What stands for `[source]` where no packet is looked at.
const NO_PACKETS: &str = "\n[source]\nlimits = [\"1 packets/s\"]\n";

/// Reads a policy for whoever answers about requests and guards no interface: limits of packets need not be there.
pub fn load_for_requests(path: &Path) -> Result<Loaded, LoadError> {
    let (text, name) = (read_text(path)?, path.display().to_string());
    // At the end, where it moves nothing that messages are about.
    if lacks(&text, "source") { parse(&(text + NO_PACKETS), &name) } else { parse(&text, &name) }
}

/// Reads a policy for whoever wants to know whether it is right, and says whether it limits packets: one with APIs and without `[source]` does not.
pub fn load_to_check(path: &Path) -> Result<(Loaded, bool), LoadError> {
    let text = read_text(path)?;
    let is_for_requests = lacks(&text, "source") && !lacks(&text, "api");
    let loaded = if is_for_requests { load_for_requests(path) } else { load(path) };
    Ok((loaded?, !is_for_requests))
}

/// A problem with what a key of a table names, at the place of its value; at the beginning of the file if that cannot be found.
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

/// Whether a file that is TOML has no such table.
fn lacks(text: &str, name: &str) -> bool {
    toml::de::DeTable::parse(text).is_ok_and(|table| !table.get_ref().contains_key(name))
}

/// Reads a policy file without looking at what it says.
pub fn read_text(path: &Path) -> Result<String, LoadError> {
    let unreadable = |reason: String| LoadError::Unreadable { file: path.display().to_string(), reason };
    let text = read(path).map_err(|error| unreadable(error.to_string()))?;
    String::from_utf8(text).map_err(|error| unreadable(not_utf8(&error)))
}

/// The text of a policy file that was read before. A pipe has nothing more to say, and would hold up whoever waits for it.
pub fn read_text_again(path: &Path) -> Result<String, LoadError> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            let reason =
                "it is no file, and nothing else can be read again; name a file with --policy".to_owned();
            Err(LoadError::Unreadable { file: path.display().to_string(), reason })
        }
        // What cannot be looked at cannot be read either, and that says why.
        _ => read_text(path),
    }
}

/// Checks the text of a policy file; `name` is for messages.
pub fn parse(text: &str, name: &str) -> Result<Loaded, LoadError> {
    Reader::default().parse(&text.into(), name)
}

/// Parses without the shortcuts that [`Reader`] takes for long lists.
pub fn parse_whole(text: &str, name: &str) -> Result<Loaded, LoadError> {
    reader::parse_whole(text.strip_prefix(reader::MARK).unwrap_or(text), name)
}

/// The whole file, but never more than [`MAX_BYTES`]: a device has no size to ask for, and no end.
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
