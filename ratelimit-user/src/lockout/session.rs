//! The rates that one interactive SSH session needs.
//!
//! A key that is pressed costs the sender about two packets (the key, and an acknowledgement of its echo), and somebody types
//! up to five a second. Logging in takes some twenty packets and 4 to 6 kB from the client within a second. So a limit below
//! these numbers makes a session crawl or keeps the next one from being opened. It is a test for mistakes ("5 packets/s" where
//! 5000 was meant), not a promise of comfort: copying a file needs far more.

use ratelimit_common::{
    abi::Meter,
    limit::{
        manner::Manner,
        rate::{Period, Rate},
    },
};

const PACKETS: Rate = Rate {
    meter: Meter::Packets,
    amount: 10,
    period: Period::Second,
    burst: 20,
    manner: Manner::PLAIN,
    units: Rate::UNTYPED,
};
const BYTES: Rate = Rate {
    meter: Meter::Bytes,
    amount: 2_000,
    period: Period::Second,
    burst: 8_192,
    manner: Manner::PLAIN,
    units: Rate::UNTYPED,
};
/// Opening one more session, in case this one is lost.
const SYNS: Rate = Rate {
    meter: Meter::Syns,
    amount: 1,
    period: Period::Minute,
    burst: 1,
    manner: Manner::PLAIN,
    units: Rate::UNTYPED,
};

/// Returns what a session needs, as a phrase, if the limit leaves less.
pub(super) fn shortfall(rate: &Rate) -> Option<String> {
    let need = match rate.meter {
        Meter::Packets => PACKETS,
        Meter::Bytes => BYTES,
        Meter::Syns => SYNS,
        // SSH does not fragment.
        Meter::Fragments => return None,
    };
    let per_period = |rate: &Rate, other: &Rate| u128::from(rate.amount) * u128::from(other.period.ns());
    let slow = per_period(rate, &need) < per_period(&need, rate);
    (slow || rate.burst < need.burst).then(|| format!("what one SSH session needs ({need})"))
}

#[cfg(test)]
mod tests {
    use ratelimit_common::limit::text::parse_rate;

    use super::*;

    #[test]
    fn a_limit_is_too_small_by_its_rate_or_by_its_burst_and_not_at_the_line() {
        for (text, too_small) in [
            ("10 packets/s burst 20", false),
            ("9 packets/s burst 20", true),
            ("10 packets/s burst 19", true),
            ("600 packets/min burst 20", false),
            ("599 packets/min burst 1000", true),
            ("2 kB/s burst 8192", false),
            ("1999 bytes/s burst 8192", true),
            ("1 syns/min", false),
            ("59 syns/hour", true),
            ("1 fragments/day", false),
        ] {
            assert_eq!(shortfall(&parse_rate(text).unwrap()).is_some(), too_small, "{text}");
        }
    }
}
