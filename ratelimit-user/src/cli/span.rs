//! `--for TIME` of verbs that look for a while.

use std::time::Duration;

use ratelimit_common::limit::lifetime::{LifetimeFault, parse_lifetime};

use crate::failure::Failure;

/// How long to look. A time is written as the lifetime of a block is, but the words for a wrong one are other words.
pub(super) fn parse_span(text: Option<&str>) -> Result<Option<Duration>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let wrong = |why: &str| Failure::usage(format!("--for: time {:?} {why}", text.trim()));
    match parse_lifetime(text) {
        Ok(ns) => Ok(Some(Duration::from_nanos(ns))),
        Err(error) => Err(match error.fault() {
            LifetimeFault::Empty => {
                Failure::usage("--for: the time is empty; write it like 5s, 10m or 1h30m")
            }
            LifetimeFault::BadNumber => {
                wrong("does not start with a whole number; write it like 5s, 10m or 1h30m")
            }
            LifetimeFault::NoUnit => wrong("has no unit; use ms, s, m, h or d"),
            LifetimeFault::UnknownUnit => wrong("has a unit that is not known; use ms, s, m, h or d"),
            LifetimeFault::Order => wrong("is out of order; go from large to small, as in 1h30m"),
            LifetimeFault::Zero => wrong("is none at all; use at least 1ms"),
            LifetimeFault::TooLong => wrong("is above ten years; use at most 3650d"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_time_is_named_and_nothing_is_said_of_blocks() {
        assert_eq!(parse_span(Some("1m30s")).unwrap(), Some(Duration::from_secs(90)));
        assert_eq!(parse_span(None).unwrap(), None);
        for (text, words) in [
            ("0s", "--for: time \"0s\" is none at all; use at least 1ms"),
            ("100000d", "--for: time \"100000d\" is above ten years; use at most 3650d"),
            ("5", "--for: time \"5\" has no unit; use ms, s, m, h or d"),
            ("5y", "--for: time \"5y\" has a unit that is not known; use ms, s, m, h or d"),
            ("s", "--for: time \"s\" does not start with a whole number; write it like 5s, 10m or 1h30m"),
            ("1s1m", "--for: time \"1s1m\" is out of order; go from large to small, as in 1h30m"),
            ("", "--for: the time is empty; write it like 5s, 10m or 1h30m"),
        ] {
            assert_eq!(parse_span(Some(text)).unwrap_err().message, words);
        }
    }
}
