//! The members of a cluster: the facts that each host tells of itself with every call.
//!
//! | state | the host was last heard of |
//! |---|---|
//! | here | within [`LATE_MS`] |
//! | late | within [`AWAY_MS`]: it misses ticks, or the store did |
//! | away | longer ago; after a day it is forgotten |
//!
//! `behind` is the number of changes of blocks that a host has not heard of yet: 0 within a tick or two of every change if all is well.

use serde::{Deserialize, Serialize};

use super::blocks::{HOST_LEN, check_host, plain};

/// A host that was not heard of for this long is late: it has missed four calls.
pub const LATE_MS: u64 = 1_250;
/// A host that was not heard of for this long is away.
pub const AWAY_MS: u64 = 10_000;
/// Longest text of facts, in bytes.
pub(crate) const FACTS_LEN: usize = 512;

/// Facts that a host tells of itself. Unknown facts are ignored and missing ones are 0 or empty, because hosts may run other versions of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Version of the program.
    pub program: String,
    /// Round trip of the call before, in microseconds.
    pub round_trip_us: u64,
    /// Limits that the host holds leases of.
    pub leases: u64,
    /// The version of blocks up to which the host has heard.
    pub applied: u64,
    /// Blocks for all hosts that the host knows.
    pub blocks: u64,
    /// How many of these blocks the host refuses.
    pub refused: u64,
}

/// The state of a member, by how long ago the store heard it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The host calls on time.
    Here,
    /// The host has missed calls.
    Late,
    /// The host does not call any more.
    Away,
}

/// A host of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The name of the host.
    pub host: String,
    /// Milliseconds since the store last heard the member, by the store's clock.
    pub seen_ms_ago: u64,
    /// The state of the member in one word.
    pub state: State,
    /// Changes of blocks that the member has not heard of yet.
    pub behind: u64,
    /// The facts that the member tells of itself.
    pub facts: Facts,
}

impl Facts {
    pub(crate) fn text(&self) -> String {
        let named = Self { program: plain(&self.program, HOST_LEN), ..self.clone() };
        serde_json::to_string(&named).unwrap_or_default()
    }
}

impl Member {
    /// Reads a member as the store tells it, when the last change was `version`; `None` if `host` is not a host's name. Facts that cannot be
    /// read are replaced by empty ones.
    pub(crate) fn read(host: &str, seen_ms_ago: u64, facts: &str, version: u64) -> Option<Self> {
        check_host(host).ok()?;
        let read = (facts.len() <= FACTS_LEN).then(|| serde_json::from_str::<Facts>(facts).ok());
        let facts = read.flatten().unwrap_or_default();
        let facts = Facts { program: plain(&facts.program, HOST_LEN), ..facts };
        let state = match seen_ms_ago {
            0..LATE_MS => State::Here,
            LATE_MS..AWAY_MS => State::Late,
            _ => State::Away,
        };
        let behind = version.saturating_sub(facts.applied);
        Some(Self { host: host.to_owned(), seen_ms_ago, state, behind, facts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(seen_ms_ago: u64, facts: &str) -> Member {
        Member::read("web1", seen_ms_ago, facts, 10).unwrap()
    }

    #[test]
    fn a_host_reads_what_another_has_written() {
        let facts = Facts {
            program: "0.1.0".into(),
            round_trip_us: 300,
            leases: 7,
            applied: 8,
            blocks: 5,
            refused: 1,
        };
        let read = member(100, &facts.text());
        assert_eq!((read.behind, &read.facts), (2, &facts));
        assert!(facts.text().len() < FACTS_LEN / 2, "{}", facts.text());
    }

    #[test]
    fn a_host_is_here_late_or_away_by_when_it_was_heard_of() {
        for (ago, state) in [
            (0, State::Here),
            (1_249, State::Here),
            (1_250, State::Late),
            (9_999, State::Late),
            (10_000, State::Away),
            (u64::MAX, State::Away),
        ] {
            assert_eq!(member(ago, "").state, state, "{ago}");
        }
    }

    #[test]
    fn facts_of_another_version_or_of_nobody_are_read_as_far_as_they_go() {
        let newer = member(1, r#"{"program":"9.0","applied":11,"mood":"good"}"#);
        assert_eq!((newer.facts.program.as_str(), newer.behind), ("9.0", 0));
        let long = format!(r#"{{"program":"{}"}}"#, "x".repeat(FACTS_LEN));
        for nonsense in ["", "{", "[]", "{\"applied\":-1}", "\u{0}", long.as_str()] {
            assert_eq!(member(1, nonsense).facts, Facts::default(), "{nonsense:?}");
        }
        let coloured = member(1, r#"{"program":"\u001b[31m"}"#);
        assert_eq!(coloured.facts.program, "?[31m", "nothing that a terminal obeys");
    }

    #[test]
    fn what_is_no_name_is_no_host() {
        for name in ["", "a b", "a\n", "\u{1b}[0m", "ä", &"x".repeat(65)] {
            assert_eq!(Member::read(name, 1, "{}", 0), None, "{name:?}");
        }
        assert!(Member::read(&"x".repeat(64), 1, "{}", 0).is_some());
    }
}
