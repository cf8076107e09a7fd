//! Parses rates of requests: `100/hour`, `15 requests/s burst 30`, `1000/day fixed-window soft 10%`.
//!
//! The grammar is that of packets, except for the unit: there is only one, which can be left out. A limit that names no algorithm or throttle
//! has those of its table.

use super::{Counted, Cursor, ELASTIC, Fault, HARD, SOFT, TextError, parse, unit, unit::Unit};
use crate::limit::{
    manner::{Manner, Throttle},
    rate::Rate,
};

/// Parses a rate of requests, in the given manner unless the text names another. The meter of the result has no meaning.
pub fn parse_request(text: &str, manner: Manner) -> Result<Rate, TextError<'_>> {
    parse(text, Counted::Requests, manner)
}

/// Parses a throttle: `hard`, `soft 10%`, `elastic 50%`. `None` if the text begins with none of these words.
pub fn parse_throttle(text: &str) -> Option<Result<Throttle, TextError<'_>>> {
    let mut cursor = Cursor { text, at: 0, counted: Counted::Requests };
    cursor.skip_space();
    let word = cursor.word();
    if ![HARD, SOFT, ELASTIC].contains(&word) {
        return None;
    }
    let throttle = cursor.throttle(word);
    cursor.skip_space();
    match cursor.rest() {
        "" => Some(throttle),
        rest => Some(throttle.and_then(|_| Err(cursor.fault(rest, Fault::Stray)))),
    }
}

pub(super) fn unit(word: &str) -> Result<Unit, Fault> {
    match word {
        "request" | "requests" => Ok(Unit::PACKETS),
        _ => Err(match unit::unit(word) {
            Ok(_) | Err(Fault::AmbiguousUnit { .. }) => Fault::NotRequests,
            Err(fault) => fault,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;
    use crate::{
        abi::Meter,
        limit::{manner::Algorithm, rate::Period},
    };

    const SLIDING: Manner = Manner { algorithm: Algorithm::SlidingWindow, throttle: Throttle::Soft(10) };

    #[test]
    fn requests_are_written_with_their_unit_or_without_and_follow_their_table() {
        use Period::{Day, Hour, Minute, Month, Second};
        let plain = Manner::PLAIN;
        let fixed = Manner { algorithm: Algorithm::FixedWindow, ..plain };
        let hard = Manner { throttle: Throttle::Hard, ..SLIDING };
        let bucket = Manner { algorithm: Algorithm::TokenBucket, ..SLIDING };
        for (text, table, amount, period, burst, manner) in [
            ("15/s", plain, 15, Second, 15, plain),
            ("15 requests/s", plain, 15, Second, 15, plain),
            ("1 request/min burst 5", plain, 1, Minute, 5, plain),
            ("1/min burst 5 requests", plain, 1, Minute, 5, plain),
            ("10k/day", plain, 10_000, Day, 10_000, plain),
            ("500/hour sliding-window soft 10%", plain, 500, Hour, 500, SLIDING),
            ("1M/month fixed-window", plain, 1_000_000, Month, 1_000_000, fixed),
            ("500/hour", SLIDING, 500, Hour, 500, SLIDING),
            ("500/hour hard", SLIDING, 500, Hour, 500, hard),
            ("500/hour burst 3 token-bucket", SLIDING, 500, Hour, 3, bucket),
        ] {
            let rate = Rate { meter: Meter::Packets, amount, period, burst, manner, units: Rate::UNTYPED };
            assert_eq!(parse_request(text, table), Ok(rate), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_of_requests_gets_a_sentence_about_requests() {
        for (text, sentence) in [
            ("", "limit is empty; write it like \"100/hour burst 20\""),
            (
                "5 packets/s",
                "unit \"packets\" is for packets; requests are just counted, so write \"requests\" or no unit",
            ),
            (
                "5 mb/s",
                "unit \"mb\" is for packets; requests are just counted, so write \"requests\" or no unit",
            ),
            (
                "5/s burst 2 syns",
                "unit \"syns\" is for packets; requests are just counted, so write \"requests\" or no unit",
            ),
            ("5 furlongs/s", "unit \"furlongs\" is not known; write \"requests\" or no unit"),
            ("5/week", "period \"week\" is not known; use s, min, hour, day or month"),
            ("0.5/s", "\"0.5\" is not a whole number of requests; use a longer period"),
            (
                "5/s burst 9",
                "\"burst 9\" does not go with a window, which lets its whole amount through at once; remove it",
            ),
        ] {
            assert_eq!(parse_request(text, SLIDING).unwrap_err().to_string(), sentence, "{text}");
        }
    }

    #[test]
    fn a_throttle_stands_alone() {
        for (text, throttle) in [
            ("hard", Throttle::Hard),
            (" soft  10% ", Throttle::Soft(10)),
            ("elastic 50%", Throttle::Elastic(50)),
        ] {
            assert_eq!(parse_throttle(text), Some(Ok(throttle)), "{text}");
        }
        assert_eq!(parse_throttle("strict"), None);
        for text in ["soft", "soft 0%", "soft 10", "elastic 5000%", "hard 10%", "soft 10% hard"] {
            assert!(parse_throttle(text).is_some_and(|throttle| throttle.is_err()), "{text}");
        }
    }
}
