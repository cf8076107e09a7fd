//! Lifetimes as text, for `block add --for 10m`: `500ms`, `30s`, `10m`, `1h30m`, `2d`.
//!
//! Parts go from large to small, each unit at most once. Whole numbers only: `1h30m`, not `1.5h`.

use core::fmt;

use super::quote::Quoted;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The longest lifetime: ten years. A block without a lifetime lasts for ever.
pub const MAX_LIFETIME_NS: u64 = 3_650 * DAY;

/// Why a text is not a lifetime. `Display` gives the sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifetimeError<'a> {
    piece: &'a str,
    fault: LifetimeFault,
}

/// What is wrong with a piece of a lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeFault {
    /// The text is only white space.
    Empty,
    /// A unit without a number, or a number with a sign or a point.
    BadNumber,
    /// A number without a unit.
    NoUnit,
    /// The unit is not known.
    UnknownUnit,
    /// Units in the wrong order, as in `30m1h`, or a unit twice.
    Order,
    /// The lifetime is zero.
    Zero,
    /// The lifetime is above [`MAX_LIFETIME_NS`].
    TooLong,
}

impl<'a> LifetimeError<'a> {
    /// The wrong piece, a slice of the text.
    pub fn piece(&self) -> &'a str {
        self.piece
    }

    /// What is wrong with the piece.
    pub fn fault(&self) -> LifetimeFault {
        self.fault
    }
}

/// Parses a lifetime into nanoseconds.
pub fn parse_lifetime(text: &str) -> Result<u64, LifetimeError<'_>> {
    let text = text.trim();
    let fail = |piece, fault| Err(LifetimeError { piece, fault });
    if text.is_empty() {
        return fail(text, LifetimeFault::Empty);
    }
    let mut rest = text;
    let mut total_ns = 0_u64;
    let mut smaller_than_ns = u64::MAX;
    while !rest.is_empty() {
        let digits_len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, tail) = rest.split_at(digits_len);
        let tail = tail.trim_start();
        let word_len = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let (word, tail) = tail.split_at(word_len);
        let part = &rest[..rest.len() - tail.len()];
        if digits.is_empty() || (word.is_empty() && !tail.is_empty()) {
            return fail(rest, LifetimeFault::BadNumber);
        }
        if word.is_empty() {
            return fail(part, LifetimeFault::NoUnit);
        }
        let Some(unit_ns) = unit_ns(word) else {
            return fail(word, LifetimeFault::UnknownUnit);
        };
        if unit_ns >= smaller_than_ns {
            return fail(part, LifetimeFault::Order);
        }
        smaller_than_ns = unit_ns;
        let sum = digits
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(unit_ns))
            .and_then(|part_ns| total_ns.checked_add(part_ns));
        total_ns = match sum {
            Some(sum) if sum <= MAX_LIFETIME_NS => sum,
            _ => return fail(text, LifetimeFault::TooLong),
        };
        rest = tail.trim_start();
    }
    if total_ns == 0 {
        return fail(text, LifetimeFault::Zero);
    }
    Ok(total_ns)
}

/// The nanoseconds of a unit: the words for a rate's periods, and short ones besides.
fn unit_ns(word: &str) -> Option<u64> {
    match word {
        "ms" => Some(MS),
        "s" | "sec" | "second" | "seconds" => Some(SECOND),
        "m" | "min" | "minute" | "minutes" => Some(MINUTE),
        "h" | "hour" | "hours" => Some(HOUR),
        "d" | "day" | "days" => Some(DAY),
        _ => None,
    }
}

impl fmt::Display for LifetimeError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let piece = Quoted(self.piece);
        match self.fault {
            LifetimeFault::Empty => write!(f, "lifetime is empty; write it like 30s, 10m or 1h30m"),
            LifetimeFault::BadNumber => {
                write!(
                    f,
                    "lifetime {piece} does not start with a whole number; write it like 30s, 10m or 1h30m"
                )
            }
            LifetimeFault::NoUnit => write!(f, "lifetime {piece} has no unit; use ms, s, m, h or d"),
            LifetimeFault::UnknownUnit => {
                write!(f, "lifetime unit {piece} is not known; use ms, s, m, h or d")
            }
            LifetimeFault::Order => {
                write!(f, "lifetime part {piece} is out of order; go from large to small, as in 1h30m")
            }
            LifetimeFault::Zero => write!(f, "lifetime {piece} is over before it begins; use at least 1ms"),
            LifetimeFault::TooLong => {
                write!(f, "lifetime {piece} is above ten years; use at most 3650d, or none to block for good")
            }
        }
    }
}

impl core::error::Error for LifetimeError<'_> {}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString as _};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_documented_form_means_what_it_says() {
        for (text, ns) in [
            ("500ms", 500 * MS),
            ("30s", 30 * SECOND),
            ("10m", 10 * MINUTE),
            ("1h", HOUR),
            ("2d", 2 * DAY),
            ("1h30m", HOUR + 30 * MINUTE),
            (" 1 h 30 min ", HOUR + 30 * MINUTE),
            ("1d2h3m4s5ms", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5 * MS),
            ("2 days", 2 * DAY),
            ("0h1s", SECOND),
            ("3650d", MAX_LIFETIME_NS),
        ] {
            assert_eq!(parse_lifetime(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn every_mistake_is_named_with_its_piece_and_what_would_be_right() {
        let form = "write it like 30s, 10m or 1h30m";
        for (text, sentence) in [
            ("", std::format!("lifetime is empty; {form}")),
            ("m", std::format!("lifetime \"m\" does not start with a whole number; {form}")),
            ("-5m", std::format!("lifetime \"-5m\" does not start with a whole number; {form}")),
            ("1.5h", std::format!("lifetime \"1.5h\" does not start with a whole number; {form}")),
            ("1h.5m", std::format!("lifetime \".5m\" does not start with a whole number; {form}")),
            ("10", "lifetime \"10\" has no unit; use ms, s, m, h or d".into()),
            ("1h30", "lifetime \"30\" has no unit; use ms, s, m, h or d".into()),
            ("10M", "lifetime unit \"M\" is not known; use ms, s, m, h or d".into()),
            ("2 weeks", "lifetime unit \"weeks\" is not known; use ms, s, m, h or d".into()),
            ("30m1h", "lifetime part \"1h\" is out of order; go from large to small, as in 1h30m".into()),
            ("1m1m", "lifetime part \"1m\" is out of order; go from large to small, as in 1h30m".into()),
            ("0s", "lifetime \"0s\" is over before it begins; use at least 1ms".into()),
            (
                "3650d1ms",
                "lifetime \"3650d1ms\" is above ten years; use at most 3650d, or none to block for good".into(),
            ),
            (
                // 2^48 + 1 days would be read as one day if the product wrapped around.
                "281474976710657d",
                "lifetime \"281474976710657d\" is above ten years; use at most 3650d, or none to block for good".into(),
            ),
            (
                "99999999999999999999s",
                "lifetime \"99999999999999999999s\" is above ten years; use at most 3650d, or none to block for good"
                    .into(),
            ),
        ] {
            assert_eq!(parse_lifetime(text).expect_err(text).to_string(), sentence, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_no_lifetime_is_zero_or_above_ten_years(
            junk in any::<String>(),
            parts in prop::collection::vec((any::<u16>(), prop::sample::select(&["d", "h", "m", "s", "ms", " ", ""][..])), 0..6),
        ) {
            let near: String = parts.iter().map(|(n, unit)| std::format!("{n}{unit}")).collect();
            for text in [&junk, &near] {
                if let Ok(ns) = parse_lifetime(text) {
                    prop_assert!((1..=MAX_LIFETIME_NS).contains(&ns));
                }
            }
        }
    }

    #[test]
    fn the_piece_that_is_wrong_is_told_apart_from_the_sentence() {
        for (text, piece, fault) in
            [("1h30", "30", LifetimeFault::NoUnit), (" 2 weeks", "weeks", LifetimeFault::UnknownUnit)]
        {
            let error = parse_lifetime(text).unwrap_err();
            assert_eq!((error.piece(), error.fault()), (piece, fault));
        }
    }
}
