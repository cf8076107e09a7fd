//! The store's clock as this host sees it: its time, and whether it was set. Pure.

/// Smaller differences, in milliseconds, come from the time that answers take, not from a clock that was set.
const STEP_MS: i64 = 1_000;

/// The last reading of the store's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreClock {
    last: Option<StoreClockReading>,
}

#[derive(Clone, Debug)]
struct StoreClockReading {
    identity: String,
    store_ms: u64,
    here_ns: u64,
    /// When the call was made whose answer had this reading.
    called_ns: u64,
}

impl StoreClock {
    /// Returns the latest time, in milliseconds, that the store's clock can show at `now_ns`: the store read its clock at the earliest when it was called. 0 before
    /// the first answer.
    pub(crate) fn latest_ms(&self, now_ns: u64) -> u64 {
        let Some(last) = &self.last else { return 0 };
        last.store_ms.saturating_add_signed((now_ns as i64).wrapping_sub(last.called_ns as i64) / 1_000_000)
    }

    /// Takes in a reading of both clocks. Returns by how many milliseconds the store's clock was set ahead, or back if negative; 0 if it was
    /// not set, and for another store, which has another clock.
    pub(crate) fn hear(&mut self, identity: &str, store_ms: u64, called_ns: u64, here_ns: u64) -> i64 {
        let reading = StoreClockReading { identity: identity.to_owned(), store_ms, here_ns, called_ns };
        let Some(last) = self.last.replace(reading) else { return 0 };
        if last.identity != identity {
            return 0;
        }
        let there = i128::from(store_ms) - i128::from(last.store_ms);
        let here = (i128::from(here_ns) - i128::from(last.here_ns)) / 1_000_000;
        let step = i64::try_from(there - here).unwrap_or(0);
        if step.abs() >= STEP_MS { step } else { 0 }
    }
}

/// Returns a sentence for operators about a step of the store's clock.
pub(crate) fn said(step_ms: i64) -> String {
    let seconds = step_ms.unsigned_abs() as f64 / 1e3;
    match step_ms < 0 {
        true => format!(
            "the store's clock went back by {seconds:.1} s; limits go on from where they were; keep NTP on at the store"
        ),
        false => format!(
            "the store's clock went ahead of this host's by {seconds:.1} s: it was set, and limits were refilled by that much; or this host stood \
             still, and what it held was given up"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_clock_that_is_set_is_noticed_and_one_that_answers_late_is_not() {
        let mut clock = StoreClock::default();
        for (identity, store_ms, here_ns, step) in [
            ("a", 5_000_000, 0, 0),
            ("a", 5_000_250, 250 * MS, 0),
            // One answer takes 700 ms longer than the answer before, and the next one is quick again.
            ("a", 5_000_500, 1_200 * MS, 0),
            ("a", 5_001_450, 1_450 * MS, 0),
            ("a", 1_401_700, 1_700 * MS, -3_600_000),
            ("a", 1_401_950, 1_950 * MS, 0),
            ("a", 1_411_950, 2_050 * MS, 9_900),
            ("b", 9_999, 2_100 * MS, 0),
            ("b", u64::MAX, 2_200 * MS, 0),
            ("b", 0, 2_300 * MS, 0),
        ] {
            let step_ms = clock.hear(identity, store_ms, here_ns, here_ns);
            assert_eq!(step_ms, step, "{identity} {store_ms} {here_ns}");
        }
        let mut clock = StoreClock::default();
        assert_eq!(clock.latest_ms(7_000 * MS), 0, "nobody has said");
        clock.hear("a", 5_000_000, 1_000 * MS, 1_400 * MS);
        assert_eq!(clock.latest_ms(1_400 * MS), 5_000_400, "it may have read its clock at once");
        assert_eq!(clock.latest_ms(900 * MS), 4_999_900);
        assert!(said(-3_600_000).contains("back by 3600.0 s"));
    }
}
