//! The course of an attack in a bounded number of points: when there are too many, every two become one.

use serde::{Deserialize, Serialize};

/// The largest number of points that are kept.
const MOST: usize = 120;

/// Packets per second from the begin of the attack on; each point is the mean of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Looks that one point is the mean of; a look is a second.
    pub step_seconds: u64,
    /// Refused packets per second.
    pub refused: Vec<u64>,
    /// Passed packets per second.
    pub passed: Vec<u64>,
    /// Looks that the last point is the mean of so far.
    #[serde(default)]
    in_last: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { step_seconds: 1, refused: Vec::new(), passed: Vec::new(), in_last: 0 }
    }
}

impl Timeline {
    /// Adds the refused and passed packets of one second.
    pub fn add(&mut self, refused: u64, passed: u64) {
        if self.refused.is_empty() || self.in_last >= self.step_seconds {
            if self.refused.len() >= MOST {
                halve(&mut self.refused);
                halve(&mut self.passed);
                self.step_seconds *= 2;
            }
            self.refused.push(refused);
            self.passed.push(passed);
            self.in_last = 1;
            return;
        }
        for (points, value) in [(&mut self.refused, refused), (&mut self.passed, passed)] {
            if let Some(last) = points.last_mut() {
                *last = (*last * self.in_last + value) / (self.in_last + 1);
            }
        }
        self.in_last += 1;
    }
}

fn halve(points: &mut Vec<u64>) {
    *points = points.chunks(2).map(|two| two.iter().sum::<u64>() / two.len() as u64).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_as_many_points_as_a_minute_and_their_mean_is_that_of_the_seconds() {
        let mut timeline = Timeline::default();
        (0..60).for_each(|second| timeline.add(second, 1));
        assert_eq!((timeline.step_seconds, timeline.refused.len()), (1, 60));
        (60..86_400).for_each(|second| timeline.add(second, 1));
        assert!(timeline.refused.len() <= MOST && timeline.step_seconds >= 720, "{timeline:?}");
        assert!(timeline.refused.is_sorted() && timeline.passed.iter().all(|passed| *passed == 1));
        let mean = timeline.refused.iter().sum::<u64>() / timeline.refused.len() as u64;
        assert!(mean.abs_diff(43_200) < 1_000, "{mean}");
    }
}
