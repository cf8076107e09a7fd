//! A filter for refused packets that somebody wants to see.

use ratelimit_common::abi::Reason;

use super::Sighting;
use crate::{failure::Failure, policy::Prefix};

/// A filter that lets everything through unless it has a source or a reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    source: Option<Prefix>,
    reason: Option<Reason>,
}

impl Filter {
    /// Parses the options of the command line. The error lists every problem.
    pub fn parse(source: Option<&str>, reason: Option<&str>) -> Result<Self, Failure> {
        let source =
            source.map(str::parse::<Prefix>).transpose().map_err(|error| format!("--source: {error}"));
        let reason = reason.map(reason_of).transpose();
        match (source, reason) {
            (Ok(source), Ok(reason)) => Ok(Self { source, reason }),
            (source, reason) => {
                let problems: Vec<String> = source.err().into_iter().chain(reason.err()).collect();
                Err(Failure::usage(problems.join("\n")))
            }
        }
    }

    /// Whether the filter wants a packet. A source that is a prefix matches if it overlaps with the wanted prefix.
    pub fn wants(&self, sighting: &Sighting) -> bool {
        let source = |wanted: Prefix| wanted.covers(&sighting.source) || sighting.source.covers(&wanted);
        self.source.is_none_or(source) && self.reason.is_none_or(|reason| reason == sighting.reason)
    }

    /// Whether the filter wants a frame without a source that was refused for this reason.
    pub fn wants_without_source(&self, reason: Reason) -> bool {
        self.source.is_none() && self.reason.is_none_or(|wanted| wanted == reason)
    }
}

fn reason_of(text: &str) -> Result<Reason, String> {
    let told = || Reason::ALL.iter().copied().filter(|reason| is_told(*reason));
    told().find(|reason| reason.name() == text).ok_or_else(|| {
        let names: Vec<&str> = told().map(Reason::name).collect();
        format!("--reason: {text:?} is no reason that is watched; use one of {}", names.join(", "))
    })
}

/// Whether drop events have this reason. Frames that are not valid packets have no source and are not reported.
fn is_told(reason: Reason) -> bool {
    reason.is_limit() || matches!(reason, Reason::Blocked | Reason::CookieInvalid)
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::counter::Fate;

    use super::*;

    fn seen(source: &str, reason: Reason) -> Sighting {
        Sighting {
            time_ns: 1,
            unix_ms: 1,
            source: source.parse().unwrap(),
            reason,
            fate: Fate::Decided,
            service: None,
            port: 1,
            len: 60,
        }
    }

    fn wants(filter: (Option<&str>, Option<&str>), source: &str) -> bool {
        Filter::parse(filter.0, filter.1).unwrap().wants(&seen(source, Reason::LimitSyns))
    }

    #[test]
    fn packets_are_chosen_by_source_and_reason() {
        assert!(wants((None, None), "203.0.113.7"));
        assert!(wants((Some("203.0.113.0/24"), Some("limit_syns")), "203.0.113.7"));
        assert!(!wants((Some("203.0.113.0/24"), Some("blocked")), "203.0.113.7"));
        assert!(!wants((Some("203.0.113.8"), None), "203.0.113.7"));
        assert!(wants((Some("2001:db8::1"), None), "2001:db8::/64"), "its address is in the source");
        assert!(!wants((Some("0.0.0.0/0"), None), "2001:db8::/64"));
    }

    #[test]
    fn everything_that_is_wrong_is_said_with_what_would_be_right() {
        let failure = Filter::parse(Some("203.0.113.7/24"), Some("conforming")).unwrap_err();
        assert_eq!(failure.code as u8, 2);
        let lines: Vec<&str> = failure.message.lines().collect();
        assert!(lines[0].starts_with("--source: 203.0.113.7/24 has host bits set"), "{lines:?}");
        assert!(
            lines[1].starts_with("--reason: \"conforming\" is no reason that is watched; use one of ")
                && lines[1].contains("blocked, limit_packets,"),
            "{lines:?}"
        );
    }
}
