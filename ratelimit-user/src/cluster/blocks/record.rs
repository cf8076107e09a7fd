//! Blocks as hosts tell them to each other through the store, and the checks that a host makes before it believes one.

use ratelimit_common::abi::list::REASON_LEN;

use crate::compile::lists::Prefix;

/// Longest name of a host, in bytes.
pub const HOST_LEN: usize = 64;
/// The widest prefixes that a cluster can block. A wider one is a mistake or an attack, and every host would have to search it for addresses not to be cut off.
const WIDEST_V4: u8 = 8;
const WIDEST_V6: u8 = 16;
/// The length in bytes of the longest prefix, `ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255/128`.
const MAX_PREFIX: usize = 49;
/// Ends of blocks that are this close count as equal: a lifetime is told again as time left, and takes time to travel.
const NEARLY_NS: u64 = 1_000_000_000;

/// The end and the reason of a block, as one host has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBlock {
    /// When the block ends, by the clock of the packet path; `None` if it holds until it is removed.
    pub until_ns: Option<u64>,
    /// Why the prefix is blocked.
    pub reason: String,
}

impl HostBlock {
    pub(crate) fn holds(&self, now_ns: u64) -> bool {
        self.until_ns.is_none_or(|until| until > now_ns)
    }

    /// Returns how long the block holds, in words.
    pub(crate) fn lifetime(&self, now_ns: u64) -> String {
        match self.until_ns {
            None => "until removed".to_owned(),
            Some(until) => format!("for {} s", until.saturating_sub(now_ns).div_ceil(1_000_000_000)),
        }
    }

    /// Whether this block ends after another.
    pub(super) fn outlasts(&self, other: &Self) -> bool {
        match (self.until_ns, other.until_ns) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(own), Some(other)) => own > other,
        }
    }

    /// Whether two blocks differ by so little that the list is not changed.
    pub(super) fn is_nearly(&self, other: &Self) -> bool {
        let is_near = match (self.until_ns, other.until_ns) {
            (None, None) => true,
            (Some(own), Some(other)) => own.abs_diff(other) <= NEARLY_NS,
            _ => false,
        };
        is_near && self.reason == other.reason
    }
}

/// A block for all hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// When the block ends, and why there is one.
    pub host_block: HostBlock,
    /// The host that the block was made on.
    pub origin: String,
}

/// A change of a record as the store tells it, before any check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordChange {
    pub(crate) prefix: String,
    pub(crate) version: u64,
    pub(crate) fate: RecordFate,
    pub(crate) reason: String,
    pub(crate) origin: String,
}

/// The state of a block after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordFate {
    /// The block holds for this many milliseconds after the store's answer, or without an end.
    Holds {
        left_ms: Option<u64>,
    },
    Removed,
    RanOut,
}

/// Reads the prefix of a change, and refuses one that a store has no reason to send.
pub(super) fn read_prefix(text: &str) -> Result<Prefix, String> {
    if text.len() > MAX_PREFIX {
        return Err(format!("{:?} is longer than any prefix", plain(text, MAX_PREFIX)));
    }
    let prefix: Prefix = text.parse().map_err(|error| format!("{error}"))?;
    if prefix.to_string() != text {
        return Err(format!("{text:?} is not how {prefix} is written"));
    }
    check_width(&prefix)?;
    Ok(prefix)
}

/// Checks that a prefix is narrow enough to be blocked on all hosts.
pub(crate) fn check_width(prefix: &Prefix) -> Result<(), String> {
    let widest = if prefix.is_v4() { WIDEST_V4 } else { WIDEST_V6 };
    match prefix.len() < widest {
        true => Err(format!("{prefix} is too wide to be blocked on all hosts; use /{widest} or longer")),
        false => Ok(()),
    }
}

/// Checks that the reason of a block is short and has no control characters.
pub(crate) fn check_reason(reason: &str) -> Result<(), String> {
    if reason.len() > REASON_LEN {
        return Err(format!("reason is {} bytes long; use at most {REASON_LEN}", reason.len()));
    }
    if reason.contains(char::is_control) {
        return Err(format!("reason {reason:?} has control characters in it; use plain text"));
    }
    Ok(())
}

/// Checks that a text can be the name of a host.
pub fn check_host(name: &str) -> Result<(), String> {
    let is_plain = name.bytes().all(|b| b.is_ascii_graphic());
    match (name.is_empty(), name.len() > HOST_LEN, is_plain) {
        (false, false, true) => Ok(()),
        _ => Err(format!(
            "host {:?} is not a name; use 1 to {HOST_LEN} letters, digits and signs without spaces",
            plain(name, HOST_LEN)
        )),
    }
}

/// Returns at most `most` characters of an untrusted text, with control characters replaced, for a terminal.
pub(crate) fn plain(text: &str, most: usize) -> String {
    text.chars().take(most).map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl RecordChange {
    /// Returns the block after this change, `None` if there is none any more, or why the change cannot be believed.
    pub(super) fn block(&self, now_ns: u64) -> Result<Option<BlockRecord>, String> {
        check_host(&self.origin)?;
        let RecordFate::Holds { left_ms } = self.fate else { return Ok(None) };
        check_reason(&self.reason)?;
        let until_ns = left_ms.map(|ms| now_ns.saturating_add(ms.saturating_mul(1_000_000)));
        Ok(Some(BlockRecord {
            host_block: HostBlock { until_ns, reason: self.reason.clone() },
            origin: self.origin.clone(),
        }))
    }
}
