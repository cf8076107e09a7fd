//! Moments for people who were not there: UTC, as RFC 3339 has it.

const DAY: u64 = 86_400;

/// Seconds since 1970 as a date and a time of day.
pub(crate) fn utc(unix_seconds: u64) -> String {
    let (year, month, day) = date(unix_seconds / DAY);
    let second = unix_seconds % DAY;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Milliseconds since 1970, the same.
pub(crate) fn utc_ms(unix_ms: u64) -> String {
    let whole = utc(unix_ms / 1_000);
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), unix_ms % 1_000)
}

/// The date so many days after 1 January 1970.
///
/// Years are counted from March on, so that a leap day is the last of its year; 400 of them have always the same 146 097 days.
fn date(days: u64) -> (u64, u64, u64) {
    // From 1 March of the year 0.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March on have 31, 30, 31, 30, 31 days, again and again: 153 for five.
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_210_096, "2024-02-29T12:34:56Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn milliseconds_stand_behind_the_seconds() {
        assert_eq!(utc_ms(951_782_399_007), "2000-02-28T23:59:59.007Z");
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let leap =
            |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let mut expected = (1970, 1, 1);
        for days in 0..146_097 {
            assert_eq!(date(days), expected);
            let (year, month, day) = expected;
            let length = match month {
                2 => 28 + u64::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            expected = match (day == length, month) {
                (false, _) => (year, month, day + 1),
                (true, 12) => (year + 1, 1, 1),
                (true, _) => (year, month + 1, 1),
            };
        }
    }
}
