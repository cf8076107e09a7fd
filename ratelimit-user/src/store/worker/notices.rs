//! What the log tells of the store: every change, but never many lines, however fast things change. Pure.

use std::time::{Duration, Instant};

use super::servers::Condition;
use crate::store::redis::StoreError;

/// Lines that may be written at once.
const BURST: u32 = 4;
/// The time in which one more line may be written after these.
const EVERY: Duration = Duration::from_secs(10);

/// What was logged, and when more may be logged.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices {
    /// How the store was when the last line was written, and when it was last looked at.
    said: Option<ServerCounts>,
    seen: Option<ServerCounts>,
    /// Changes since the last line.
    changes: u64,
    /// When all [`BURST`] lines may be written at once again.
    whole: Option<Instant>,
}

/// The part of a condition that a line is about: how many servers answer, how many do not, and what kind of trouble that is.
type ServerCounts = (usize, usize, Option<&'static str>);

impl Notices {
    /// Returns what to log now, if anything: whether it is a warning, and the sentence.
    pub(super) fn notice(
        &mut self,
        condition: &Condition,
        store: &str,
        now: Instant,
    ) -> Option<(bool, String)> {
        if !condition.is_known() {
            return None;
        }
        let Condition { answering, away, problem, .. } = condition;
        let state = (*answering, *away, problem.as_ref().map(StoreError::kind));
        if self.seen != Some(state) {
            self.changes += u64::from(self.seen.is_some());
            self.seen = Some(state);
        }
        if self.said == self.seen || self.next().is_some_and(|next| now < next) {
            return None;
        }
        let whole = self.whole.map_or(now, |whole| whole.max(now));
        self.whole = Some(whole + EVERY);
        self.said = self.seen;
        let more = match std::mem::take(&mut self.changes) {
            0 | 1 => String::new(),
            changes => format!(" (it has changed {changes} times since the last line)"),
        };
        Some((condition.away > 0, format!("{}{more}", sentence(condition, store))))
    }

    /// Returns from when on a line may be written; `None` if that is at any time.
    pub(super) fn next(&self) -> Option<Instant> {
        self.whole?.checked_sub(EVERY * (BURST - 1))
    }

    /// Whether the store has changed since the last line.
    pub(super) fn is_behind(&self) -> bool {
        self.said != self.seen
    }
}

fn sentence(condition: &Condition, store: &str) -> String {
    let Condition { answering, away, problem, .. } = condition;
    match (answering, problem) {
        (_, None) => format!("requests are counted with other hosts in {store}"),
        (0, Some(problem)) => format!("requests are counted without other hosts: {problem}"),
        (answering, Some(problem)) => {
            let all = answering + away;
            format!(
                "requests on {away} of {all} servers of the store are counted without other hosts: {problem}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(answering: usize, away: usize) -> Condition {
        let lost = StoreError::Lost { at: "h:1".into(), why: "reset".into() };
        Condition { answering, away, problem: (away > 0).then_some(lost), has_worked: true }
    }

    #[test]
    fn every_change_is_said_once_and_a_flapping_store_fills_no_disk() {
        let start = Instant::now();
        let mut notices = Notices::default();
        let mut say = |condition: &Condition, ms| {
            notices.notice(condition, "redis://h", start + Duration::from_millis(ms))
        };
        assert_eq!(say(&Condition::default(), 0), None, "nobody has looked yet");
        let (warns, line) = say(&of(2, 1), 0).unwrap();
        assert!(warns && line.starts_with("requests on 1 of 3 servers of the store are counted without"));
        assert_eq!(say(&of(2, 1), 1), None);
        let with = (false, "requests are counted with other hosts in redis://h".to_owned());
        assert_eq!(say(&of(3, 0), 2), Some(with));
        // Sixteen changes a second, for a minute.
        let flaps = (0..960).filter_map(|n| say(&of(2 + n % 2, 1 - n % 2), 100 + n as u64 * 62));
        let lines = flaps.count();
        assert!((6..=9).contains(&lines), "{lines} lines in a minute");
        let (warns, line) = say(&of(0, 3), 80_000).unwrap();
        assert!(warns && line.contains("without other hosts: the connection"), "{line}");
    }

    #[test]
    fn how_it_stays_in_the_end_is_said_late_but_said() {
        let start = Instant::now();
        let mut notices = Notices::default();
        (0..9).for_each(|n| _ = notices.notice(&of(n % 2, 1 - n % 2), "s", start));
        assert!(notices.is_behind());
        let next = notices.next().unwrap();
        assert_eq!(next, start + EVERY);
        let (warns, line) = notices.notice(&of(0, 1), "s", next).unwrap();
        assert!(warns && line.contains("changed 5 times"), "{line}");
        assert!(!notices.is_behind());
    }
}
