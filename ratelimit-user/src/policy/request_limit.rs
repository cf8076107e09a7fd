//! One limit of requests, checked so that it can be counted exactly, also by the store, which has only doubles.

use std::{cmp::Reverse, fmt};

use ratelimit_common::limit::{
    manner::Algorithm,
    rate::{Period, Rate},
};

use super::fields::words;

/// A limit of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestLimit {
    /// The rate of the limit. Its meter is ignored.
    pub rate: Rate,
    /// The time zone of the limit's calendar days and months, for limits that follow a calendar.
    pub zone: Option<String>,
}

/// The most limits in one list.
pub const MAX_REQUEST_LIMITS: usize = 8;
/// The most requests that one period counts, margin included.
pub const MAX_REQUESTS: u64 = u32::MAX as u64;
/// The most requests that a sliding log keeps, margin included: 8 bytes each, for each counter key.
pub const MAX_LOG: u64 = 10_000;
/// Bytes of all logs together for each of `[requests] keys`. A log has 8 bytes for each request: if the logs fill evenly, every key has room for about 60 requests.
const LOG_BYTES: u64 = 512;
/// The least bytes of all logs together, for small `keys`. One of the table's 64 shards then still has room for the logs of one key:
/// eight limits of [`MAX_LOG`] take 640 KB.
const LEAST_LOG_BYTES: u64 = 64 << 20;
/// Half of the number up to which doubles count exactly; the store's sums stay below.
const EXACT: u128 = 1 << 52;
/// What the store adds to a burst before it compares, in requests.
const SLACK: u128 = 3;

/// Bytes that all logs together take at most, with this many keys.
pub fn log_bytes(keys: u64) -> u64 {
    keys.saturating_mul(LOG_BYTES).max(LEAST_LOG_BYTES)
}

/// Why a limit of requests is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestLimitError {
    /// The amount is 0, so nothing would ever pass.
    #[error("rate 0 lets nothing pass; use at least 1")]
    ZeroRate,
    /// The burst is 0, so nothing would ever pass.
    #[error("burst 0 is never satisfiable; use at least 1")]
    ZeroBurst,
    /// The amount and its margin are more than a period counts.
    #[error(
        "{most} in one period are more than can be counted; use at most {MAX_REQUESTS}, or a shorter period"
    )]
    TooMany {
        /// The amount with its margin.
        most: u128,
    },
    /// The amount and its margin are more than a log keeps.
    #[error(
        "a sliding-log keeps every request, and {most} are too many; use at most {MAX_LOG}, or sliding-window"
    )]
    TooLongLog {
        /// The amount with its margin.
        most: u128,
    },
    /// The burst is larger than the store can count.
    #[error("burst {burst} takes too long to refill at a rate per {} to be counted exactly; use at most {max}, or a window", .period.name())]
    BurstTooLong {
        /// The rejected burst, or the amount where no burst is given.
        burst: u64,
        /// The largest burst that the store can count.
        max: u64,
        /// The period of the rate.
        period: Period,
    },
    /// A month with an algorithm other than a fixed window.
    #[error(
        "months are those of a calendar, which only a fixed-window follows; use fixed-window, or a rate per day"
    )]
    MonthNotFixed,
    /// A month without a time zone.
    #[error(
        "a month begins at another time in each time zone; write time_zone = \"Europe/Berlin\", or \"UTC\""
    )]
    MonthWithoutZone,
}

impl RequestLimit {
    /// Checks a limit. `zone` is the time zone of its days and months, if it has any.
    pub fn new(rate: Rate, zone: Option<&str>) -> Result<Self, RequestLimitError> {
        let window = rate.manner.algorithm.is_window();
        let with_margin = |units: u64| u128::from(units) * (100 + u128::from(rate.manner.margin(true))) / 100;
        let most = with_margin(rate.amount);
        if rate.amount == 0 {
            return Err(RequestLimitError::ZeroRate);
        }
        if rate.burst == 0 {
            return Err(RequestLimitError::ZeroBurst);
        }
        if rate.period == Period::Month && rate.manner.algorithm != Algorithm::FixedWindow {
            return Err(RequestLimitError::MonthNotFixed);
        }
        if rate.period == Period::Month && zone.is_none() {
            return Err(RequestLimitError::MonthWithoutZone);
        }
        if most > u128::from(MAX_REQUESTS) {
            return Err(RequestLimitError::TooMany { most });
        }
        if rate.manner.algorithm.keeps_every_one() && most > u128::from(MAX_LOG) {
            return Err(RequestLimitError::TooLongLog { most });
        }
        let largest = largest_burst(u128::from(rate.period.ns()) / 1_000);
        if !window && with_margin(rate.burst) > largest {
            let max = largest * 100 / (100 + u128::from(rate.manner.margin(true)));
            return Err(RequestLimitError::BurstTooLong {
                burst: rate.burst,
                max: max as u64,
                period: rate.period,
            });
        }
        Ok(Self { zone: zone.filter(|_| is_calendar(&rate)).map(ToOwned::to_owned), rate })
    }

    /// Whether what was counted still counts after more than an hour, so that people notice when it is lost.
    pub fn counts_for_long(&self) -> bool {
        let Rate { amount, period, burst, .. } = &self.rate;
        u128::from(*burst) * u128::from(period.ns()) > u128::from(*amount) * u128::from(Period::Hour.ns())
    }

    /// Bytes of the log of a key that is at this limit; `None` if the algorithm keeps no log.
    pub fn largest_log(&self) -> Option<u64> {
        let units = self.rate.amount * (100 + u64::from(self.rate.manner.margin(true))) / 100;
        self.rate.manner.algorithm.keeps_every_one().then_some(8 * units)
    }

    /// Whether this limit refuses everything that the other refuses, so that the other never decides.
    pub fn at_least_as_strict_as(&self, other: &Self) -> bool {
        self.zone == other.zone && self.rate.at_least_as_strict_as(&other.rate)
    }
}

/// Returns the largest burst, margin included, that a bucket with so many microseconds in a period may have.
pub fn largest_burst(period_us: u128) -> u128 {
    ((EXACT - 1) / period_us).saturating_sub(SLACK)
}

/// Whether the windows of a rate are days or months, which follow a calendar if there is a time zone.
pub fn is_calendar(rate: &Rate) -> bool {
    rate.manner.algorithm == Algorithm::FixedWindow && matches!(rate.period, Period::Day | Period::Month)
}

impl fmt::Display for RequestLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.rate.amount, self.rate.period.name())?;
        if !self.rate.manner.algorithm.is_window() {
            write!(f, " burst {}", self.rate.burst)?;
        }
        self.rate.manner.fmt(f)?;
        self.zone.iter().try_for_each(|zone| write!(f, " in {zone}"))
    }
}

/// The limits of a list in words, slowest first, in whatever order the file has them.
pub(super) fn in_order(limits: &[RequestLimit]) -> String {
    let mut limits: Vec<&RequestLimit> = limits.iter().collect();
    limits.sort_by_key(|limit| (Reverse(limit.rate.period), limit.rate.amount, limit.to_string()));
    words(&limits)
}

/// A list that replaces another list, in words: an empty one means no limits, which differs from no list.
pub(super) fn given(limits: &[RequestLimit]) -> String {
    if limits.is_empty() { "no limits".to_owned() } else { in_order(limits) }
}
