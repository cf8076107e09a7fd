//! Days and months of a time zone, as a list of the moments at which they begin. The list is made once; a lookup is a binary search.

use std::{fmt, sync::Arc};

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};

/// Days that the list covers: three years from when it was made.
const DAYS: i32 = 3 * 366;
const DAY_US: u64 = 86_400_000_000;

/// The length of a calendar's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// From the first of one month to the first of the next.
    Month,
}

/// The moments, in microseconds since 1970, at which days or months begin in a time zone.
#[derive(Clone, PartialEq, Eq)]
pub struct Calendar {
    name: Arc<str>,
    starts_us: Arc<[u64]>,
}

/// A time zone that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time zone {zone:?} is not known: {why}; use one like \"Europe/Berlin\" or \"UTC\"")]
pub struct UnknownZone {
    zone: String,
    why: String,
}

/// Prints only the name: a list of a thousand moments tells less.
impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calendar({})", self.name)
    }
}

impl Calendar {
    /// The days or months of a time zone around and after a moment.
    pub fn new(zone: &str, unit: CalendarUnit, now_us: u64) -> Result<Self, UnknownZone> {
        let unknown = |error: jiff::Error| UnknownZone { zone: zone.to_owned(), why: error.to_string() };
        let tz = TimeZone::get(zone).map_err(unknown)?;
        let now = Timestamp::from_microsecond(now_us as i64).map_err(unknown)?;
        let today = now.to_zoned(tz.clone()).date();
        let starts = |date: Date| -> Result<u64, jiff::Error> {
            Ok(date.to_zoned(tz.clone())?.timestamp().as_microsecond().max(0) as u64)
        };
        let mut starts_us = Vec::new();
        // The list begins two days or months earlier, because a clock that is a little behind asks about yesterday.
        let mut date = match unit {
            CalendarUnit::Day => today.checked_sub(2.days()),
            CalendarUnit::Month => today.first_of_month().checked_sub(2.months()),
        }
        .map_err(unknown)?;
        let last = today.checked_add(DAYS.days()).map_err(unknown)?;
        while date <= last {
            starts_us.push(starts(date).map_err(unknown)?);
            date = match unit {
                CalendarUnit::Day => date.checked_add(1.day()),
                CalendarUnit::Month => date.checked_add(1.month()),
            }
            .map_err(unknown)?;
        }
        let name = match unit {
            CalendarUnit::Day => format!("{zone}/day"),
            CalendarUnit::Month => format!("{zone}/month"),
        };
        Ok(Self { name: name.into(), starts_us: starts_us.into() })
    }

    /// The zone and the unit in one word.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns when the day or month around a moment begins and ends, in microseconds since 1970. Beyond the list, windows of days and of months are 24 hours long.
    pub fn around(&self, now_us: u64) -> (u64, u64) {
        let after = self.starts_us.partition_point(|start_us| *start_us <= now_us);
        let (first, last) = (self.starts_us[0], self.starts_us[self.starts_us.len() - 1]);
        match (after.checked_sub(1), self.starts_us.get(after)) {
            (None, _) => (0, first),
            (Some(at), Some(end_us)) => (self.starts_us[at], *end_us),
            (Some(_), None) => {
                let start_us = last + (now_us - last) / DAY_US * DAY_US;
                (start_us, start_us + DAY_US)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> u64 {
        text.parse::<Timestamp>().unwrap().as_microsecond() as u64
    }

    #[test]
    fn a_day_begins_at_midnight_of_its_zone_also_when_the_clocks_change() {
        let calendar = Calendar::new("Europe/Berlin", CalendarUnit::Day, at("2026-10-01T00:00:00Z")).unwrap();
        let around = |text| calendar.around(at(text));
        assert_eq!(around("2026-10-10T21:59:59Z"), (at("2026-10-09T22:00:00Z"), at("2026-10-10T22:00:00Z")));
        // The day on which summer time ends has 25 hours.
        assert_eq!(around("2026-10-25T12:00:00Z"), (at("2026-10-24T22:00:00Z"), at("2026-10-25T23:00:00Z")));
    }

    #[test]
    fn months_are_as_long_as_they_are() {
        let calendar = Calendar::new("UTC", CalendarUnit::Month, at("2026-12-15T00:00:00Z")).unwrap();
        assert_eq!(
            calendar.around(at("2027-02-28T23:59:59Z")),
            (at("2027-02-01T00:00:00Z"), at("2027-03-01T00:00:00Z"))
        );
    }

    #[test]
    fn beyond_the_list_there_are_days_of_24_hours_and_every_moment_lies_in_one() {
        let made = at("2026-01-01T00:00:00Z");
        let calendar = Calendar::new("UTC", CalendarUnit::Day, made).unwrap();
        for years in 0..20 {
            let now = made + years * 366 * DAY_US + 5;
            let (start, end) = calendar.around(now);
            assert!(start <= now && now < end && end - start == DAY_US, "{years}: {start} {now} {end}");
        }
    }

    #[test]
    fn a_zone_that_is_not_there_is_named() {
        let error = Calendar::new("Mars/Olympus", CalendarUnit::Day, 0).unwrap_err();
        assert!(error.to_string().starts_with("time zone \"Mars/Olympus\" is not known"), "{error}");
    }
}
