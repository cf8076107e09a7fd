//! `[attacks]`: thresholds at which an attack begins, and when it is over.

use std::time::Duration;

use ratelimit_common::abi::Meter;
use ratelimit_common::limit::{
    lifetime::parse_lifetime,
    manner::Manner,
    text::{parse_rate, request::parse_request},
};
use thiserror::Error;

use super::fields::{Fields, followed};

/// When an attack begins and when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttackPolicy {
    begin: u64,
    begin_requests: u64,
    unusual: u64,
    end_after: Duration,
}

/// Refused packets per second at which an attack begins, unless the policy says otherwise.
const BEGIN: u64 = 1_000;
/// Refused requests per second at which an attack begins, unless the policy says otherwise.
const BEGIN_REQUESTS: u64 = 100;
/// Passed packets per second that are never unusual, unless the policy says otherwise.
const UNUSUAL: u64 = 10_000;
/// Calm time after which an attack is over, unless the policy says otherwise.
const END_AFTER: Duration = Duration::from_secs(30);
/// The shortest calm time: counters are read once a second.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest calm time.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

impl Default for AttackPolicy {
    fn default() -> Self {
        Self { begin: BEGIN, begin_requests: BEGIN_REQUESTS, unusual: UNUSUAL, end_after: END_AFTER }
    }
}

/// Why a value of `[attacks]` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AttackPolicyError {
    /// The value of `begin` is not a rate of packets per second.
    #[error("begin = {0:?} is no number of packets in a second; use one such as \"1000 packets/s\"")]
    Begin(String),
    /// The value of `begin_requests` is not a rate of requests per second.
    #[error("begin_requests = {0:?} is no number of requests in a second; use one such as \"100/s\"")]
    BeginRequests(String),
    /// The value of `unusual` is not a rate of packets per second.
    #[error("unusual = {0:?} is no number of packets in a second; use one such as \"10000 packets/s\"")]
    Unusual(String),
    /// The value of `end_after` is not a time within the range.
    #[error("end_after = {0:?} is no time from 1 s to 24 h; use one such as \"30s\"")]
    EndAfter(String),
}

impl AttackPolicy {
    /// Sets the refused packets per second at which an attack begins.
    pub fn with_begin(self, text: &str) -> Result<Self, AttackPolicyError> {
        let begin = packets_per_second(text);
        Ok(Self { begin: begin.ok_or_else(|| AttackPolicyError::Begin(text.to_owned()))?, ..self })
    }

    /// Sets the passed packets per second that are never unusual.
    pub fn with_unusual(self, text: &str) -> Result<Self, AttackPolicyError> {
        let unusual = packets_per_second(text);
        Ok(Self { unusual: unusual.ok_or_else(|| AttackPolicyError::Unusual(text.to_owned()))?, ..self })
    }

    /// Sets the refused requests per second at which an attack on an API begins.
    pub fn with_begin_requests(self, text: &str) -> Result<Self, AttackPolicyError> {
        let rate = parse_request(text, Manner::PLAIN).ok();
        let begin = rate.and_then(|rate| whole_per_second(rate.amount, rate.period.ns()));
        let begin_requests = begin.ok_or_else(|| AttackPolicyError::BeginRequests(text.to_owned()))?;
        Ok(Self { begin_requests, ..self })
    }

    /// Sets the calm time after which an attack is over.
    pub fn with_end_after(self, text: &str) -> Result<Self, AttackPolicyError> {
        let time = parse_lifetime(text).ok().map(Duration::from_nanos);
        let end_after = time.filter(|time| (SHORTEST..=LONGEST).contains(time));
        Ok(Self { end_after: end_after.ok_or_else(|| AttackPolicyError::EndAfter(text.to_owned()))?, ..self })
    }

    /// The thresholds in words, for `diff`.
    pub(super) fn fields(&self) -> Fields {
        followed([
            ("begin", format!("{} packets/s", self.begin)),
            ("begin_requests", format!("{}/s", self.begin_requests)),
            ("unusual", format!("{} packets/s", self.unusual)),
            ("end_after", format!("{} s", self.end_after_ms() as f64 / 1e3)),
        ])
    }

    /// Refused packets per second at which an attack begins.
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// Refused requests per second at which an attack on an API begins.
    pub fn begin_requests(&self) -> u64 {
        self.begin_requests
    }

    /// Passed packets per second that are never unusual.
    pub fn unusual(&self) -> u64 {
        self.unusual
    }

    /// Calm time in milliseconds after which an attack is over.
    pub fn end_after_ms(&self) -> u64 {
        self.end_after.as_millis() as u64
    }
}

/// Returns the packets per second of a text such as `1000 packets/s`; `None` if it is another rate, or less than one.
fn packets_per_second(text: &str) -> Option<u64> {
    let rate = parse_rate(text).ok().filter(|rate| rate.meter == Meter::Packets)?;
    whole_per_second(rate.amount, rate.period.ns())
}

/// Whole units per second; `None` if less than one.
fn whole_per_second(amount: u64, period_ns: u64) -> Option<u64> {
    let per_second = u128::from(amount) * 1_000_000_000 / u128::from(period_ns.max(1));
    u64::try_from(per_second).ok().filter(|per_second| *per_second > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_rates_and_a_time_and_nothing_else_is() {
        let policy = AttackPolicy::default();
        let policy = policy.with_begin("600 packets/min").unwrap().with_begin_requests("5/s").unwrap();
        let policy = policy.with_end_after("1m").unwrap().with_unusual("40000 packets/s").unwrap();
        assert_eq!((policy.begin(), policy.begin_requests(), policy.end_after_ms()), (10, 5, 60_000));
        assert_eq!(policy.unusual(), 40_000);
        for bad in ["", "0 packets/s", "1 packets/min", "40 Mbit/s", "1000"] {
            let said = policy.with_begin(bad).unwrap_err().to_string();
            assert!(said.contains("\"1000 packets/s\"") && said.contains(&format!("{bad:?}")), "{said}");
        }
        assert!(policy.with_begin_requests("10 packets/s").is_err());
        assert!(policy.with_unusual("40 Mbit/s").is_err());
        for bad in ["0s", "500ms", "25h", "soon"] {
            assert!(policy.with_end_after(bad).is_err(), "{bad}");
        }
    }
}
