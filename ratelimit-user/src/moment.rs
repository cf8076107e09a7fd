//! Times for people: UTC in the format of RFC 3339.

use jiff::Timestamp;

/// Seconds since 1970 as a date and a time of day.
pub(crate) fn utc(unix_seconds: u64) -> String {
    format!("{:.0}", timestamp(unix_seconds.saturating_mul(1_000)))
}

/// Milliseconds since 1970 as a date and a time of day with three decimals.
pub(crate) fn utc_ms(unix_ms: u64) -> String {
    format!("{:.3}", timestamp(unix_ms))
}

/// The timestamp of milliseconds since 1970, at most the end of the calendar in the year 9999.
fn timestamp(unix_ms: u64) -> Timestamp {
    i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX)
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
            (u64::MAX, "9999-12-30T22:00:00Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn milliseconds_stand_behind_the_seconds() {
        assert_eq!(utc_ms(951_782_399_007), "2000-02-28T23:59:59.007Z");
        assert_eq!(utc_ms(951_782_400_000), "2000-02-29T00:00:00.000Z");
    }
}
