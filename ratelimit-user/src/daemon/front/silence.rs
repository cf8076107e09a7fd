//! Decides when a front process that does not answer is replaced.

use crate::failure::{ExitCode, Failure};

/// The number of questions in a row without an answer after which the front is replaced. Questions are asked once a second. They are counted rather than
/// timed, so that time in which the whole host stood still does not count. A new front begins with empty counters of requests, so the daemon is patient.
const MOST: u32 = 10;

/// The number of questions since the front last answered one.
#[derive(Debug, Default)]
pub(super) struct Silence(u32);

impl Silence {
    /// Counts one more question, answered in time or not. Fails when the front has to be replaced.
    pub(super) fn after(&mut self, is_answered: bool) -> Result<(), Failure> {
        self.0 = if is_answered { 0 } else { self.0 + 1 };
        if self.0 < MOST {
            return Ok(());
        }
        let sentence =
            format!("it has left {MOST} questions in a row unanswered, one a second; it is killed");
        Err(Failure::new(ExitCode::Unsupported, sentence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_questions_in_a_row_count_and_the_tenth_ends_the_front() {
        let mut silence = Silence::default();
        for _ in 0..3 {
            assert!((1..MOST).all(|_| silence.after(false).is_ok()));
            assert!(silence.after(true).is_ok());
        }
        assert!((1..MOST).all(|_| silence.after(false).is_ok()));
        let ended = silence.after(false).unwrap_err();
        assert!(ended.message.contains("10 questions in a row"), "{ended}");
    }
}
