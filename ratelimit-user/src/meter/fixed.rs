//! Fixed window: a number of units in every minute (or other period) of the clock, or in every day or month of a calendar.
//!
//! Up to twice the limit passes across an edge: three at the end of one minute and three at the beginning of the next. The algorithm is defined
//! so; [`super::sliding`] has no edge.

use ratelimit_common::limit::rate::Period;

use super::{
    Counting,
    calendar::{Calendar, CalendarUnit},
    counted, halves, joined,
};
use crate::policy::RequestLimit;

/// Number of words: one, whose upper half is when the window began, in seconds since 1970, and whose lower half is what was charged in it.
pub(super) const WORDS: usize = 1;

const SECOND_US: u64 = 1_000_000;

/// A fixed window for requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    limit: u64,
    period_us: u64,
    calendar: Option<Calendar>,
}

/// The window that a moment lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start_s: u32,
    end_us: u64,
}

impl Fixed {
    /// `limit` units in every `period_us`, which is a whole number of seconds.
    pub fn new(limit: u64, period_us: u64) -> Self {
        Self { limit, period_us: period_us.max(SECOND_US), calendar: None }
    }

    /// `limit` units in every day or month of a calendar.
    pub fn by(limit: u64, calendar: Calendar) -> Self {
        Self { limit, period_us: SECOND_US, calendar: Some(calendar) }
    }

    /// The fixed window of a limit, with `amount` units. Days and months are those of the limit's time zone, if it has one.
    pub(super) fn of(limit: &RequestLimit, amount: u64, now_us: u64) -> Self {
        let unit = match limit.rate.period {
            Period::Day => Some(CalendarUnit::Day),
            Period::Month => Some(CalendarUnit::Month),
            _ => None,
        };
        let calendar = limit.zone.as_deref().zip(unit).map(|(zone, unit)| Calendar::new(zone, unit, now_us));
        match calendar {
            Some(Ok(calendar)) => Self::by(amount, calendar),
            // A zone is known here: the zones of a policy were checked when the policy was read.
            _ => Self::new(amount, limit.rate.period.ns() / 1_000),
        }
    }

    /// The length of a window in microseconds. Means nothing where there is a calendar.
    pub fn period_us(&self) -> u64 {
        self.period_us
    }

    fn span(&self, now_us: u64) -> Span {
        let (start_us, end_us) = match &self.calendar {
            Some(calendar) => calendar.around(now_us),
            None => {
                let start_us = now_us - now_us % self.period_us;
                (start_us, start_us + self.period_us)
            }
        };
        Span { start_s: counted(start_us / SECOND_US), end_us }
    }

    /// Returns the window that counts and its count: the window of `now_us`, or a later one that a clock further ahead has opened.
    fn current(&self, words: &[u64], now_us: u64) -> (Span, u32) {
        let (start_s, count) = halves(words[0]);
        let span = self.span(now_us);
        if start_s > span.start_s {
            return (self.span(u64::from(start_s) * SECOND_US), count);
        }
        (span, if start_s == span.start_s { count } else { 0 })
    }
}

impl Counting for Fixed {
    fn words(&self) -> usize {
        WORDS
    }

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn left(&self, words: &[u64], now_us: u64) -> u64 {
        let (_, count) = self.current(words, now_us);
        self.limit.saturating_sub(count.into())
    }

    fn charge(&self, words: &mut [u64], now_us: u64, units: u64) {
        let (span, count) = self.current(words, now_us);
        words[0] = joined(span.start_s, counted(units.saturating_add(count.into())));
    }

    fn refund(&self, words: &mut [u64], now_us: u64, age_us: u64, units: u64) -> bool {
        let (span, count) = self.current(words, now_us);
        let earlier = u64::from(span.start_s) * SECOND_US + age_us > now_us && age_us > 0;
        if earlier || units > u64::from(count) {
            return false;
        }
        words[0] = joined(span.start_s, count - counted(units));
        true
    }

    fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64 {
        let (span, count) = self.current(words, now_us);
        match units.saturating_add(count.into()) > self.limit {
            true => span.end_us.saturating_sub(now_us),
            false => 0,
        }
    }

    fn reset(&self, words: &[u64], now_us: u64) -> u64 {
        match self.current(words, now_us) {
            (_, 0) => 0,
            (span, _) => span.end_us.saturating_sub(now_us),
        }
    }

    fn reset_from(&self, _used: u64, now_us: u64) -> u64 {
        self.span(now_us).end_us.saturating_sub(now_us)
    }

    fn forgets_us(&self, used: u64, now_us: u64) -> u64 {
        self.reset_from(used, now_us)
    }

    fn layout(&self) -> String {
        match &self.calendar {
            Some(calendar) => format!("c{}", calendar.name()),
            None => format!("f{}", self.period_us),
        }
    }

    /// The calendar that says where windows begin.
    fn calendar(&self) -> Option<&Calendar> {
        self.calendar.as_ref()
    }

    fn script(&self, now_us: u64) -> [u64; 4] {
        match &self.calendar {
            Some(calendar) => {
                let (start_us, end_us) = calendar.around(now_us);
                [6, self.limit, start_us, end_us]
            }
            None => [2, self.limit, self.period_us, 0],
        }
    }

    fn scaled(&self, _numerator: u64, _denominator: u64, capacity: u64) -> Self {
        Self { limit: capacity, ..self.clone() }
    }
}
