//! Limits how often the host is searched for addresses that must not be cut off.
//!
//! The kernel walks its whole table of connections for each look, which takes milliseconds, however few connections there are. Each of a few
//! orders is judged by a look of its own. A feed of thousands of orders would take a whole CPU for looks, so looks have a budget, and orders
//! beyond it are judged by the last look.

use std::time::{Duration, Instant};

use crate::{failure::Failure, lockout::Vital};

/// The CPU time that looks may take at once: enough for dozens of them.
const BUDGET: Duration = Duration::from_millis(250);
/// The budget refills at this part of the time: a twentieth of a CPU.
const SHARE: u32 = 20;
/// A look that is older than this judges no order.
const OLDEST: Duration = Duration::from_millis(500);

/// The last look, and the CPU time that looks have taken lately.
#[derive(Debug)]
pub(in crate::daemon) struct Lookout {
    last: Option<(Vec<Vital>, Instant)>,
    spent: Duration,
    /// When `spent` was counted.
    counted: Instant,
}

impl Lookout {
    /// Makes a lookout before its first look.
    pub(in crate::daemon) fn new(now: Instant) -> Self {
        Self { last: None, spent: Duration::ZERO, counted: now }
    }

    /// Returns the addresses that must not be cut off. `look` searches for them and returns the CPU time it took. All calls with one `now` share one look.
    pub(in crate::daemon) fn vital(
        &mut self,
        now: Instant,
        look: impl FnOnce() -> Result<(Vec<Vital>, Duration), Failure>,
    ) -> Result<&[Vital], Failure> {
        let back = now.saturating_duration_since(self.counted) / SHARE;
        (self.spent, self.counted) = (self.spent.saturating_sub(back), now);
        let is_young = |at: Instant| now.saturating_duration_since(at) < OLDEST;
        let last = self.last.take().filter(|(_, at)| *at == now || (self.spent >= BUDGET && is_young(*at)));
        let last = match last {
            Some(last) => last,
            None => {
                let (vital, cost) = look()?;
                self.spent += cost;
                (vital, now)
            }
        };
        let (vital, _) = self.last.insert(last);
        Ok(vital)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{failure::ExitCode, lockout::LockoutRole};

    const MS: Duration = Duration::from_millis(1);

    /// Gives `count` orders, one a millisecond. Returns how many were judged by a look of their own, and the age of the oldest look that judged one.
    fn orders(lookout: &mut Lookout, from: Instant, count: u32, cost: Duration) -> (u32, Duration) {
        let (mut looks, mut looked_at, mut oldest) = (0, from, Duration::ZERO);
        for number in 0..count {
            let now = from + MS * number;
            let address = [192, 0, 2, 1].into();
            let look = || {
                (looks, looked_at) = (looks + 1, now);
                Ok((vec![Vital { address, role: LockoutRole::Gateway }], cost))
            };
            let seen = lookout.vital(now, look).unwrap();
            assert_eq!(seen.len(), 1, "whoever asks is told what was seen");
            oldest = oldest.max(now - looked_at);
        }
        (looks, oldest)
    }

    #[test]
    fn each_of_a_few_orders_has_a_look_of_its_own_and_a_feed_takes_a_twentieth_of_a_cpu() {
        let start = Instant::now();
        let mut lookout = Lookout::new(start);
        assert_eq!(orders(&mut lookout, start, 40, 5 * MS), (40, Duration::ZERO));
        // A feed of ten seconds takes the rest of the budget, and then one look every 100 ms.
        let feed = start + 40 * MS;
        let (looks, oldest) = orders(&mut lookout, feed, 10_000, 5 * MS);
        assert!((100..=115).contains(&looks), "{looks} looks");
        assert!(oldest <= 100 * MS, "{oldest:?}");
        // After five seconds of silence orders are few again.
        assert_eq!(orders(&mut lookout, feed + 15_000 * MS, 40, 5 * MS), (40, Duration::ZERO));
    }

    #[test]
    fn however_long_a_look_takes_no_order_is_judged_by_one_that_is_half_a_second_old() {
        let start = Instant::now();
        let mut lookout = Lookout::new(start);
        let (looks, oldest) = orders(&mut lookout, start, 10_000, 300 * MS);
        assert_eq!((looks, oldest), (20, OLDEST - MS));
    }

    #[test]
    fn thousands_of_blocks_that_come_in_one_answer_of_the_store_are_judged_by_one_look() {
        let start = Instant::now();
        let (mut lookout, mut looks) = (Lookout::new(start), 0);
        for _ in 0..1_000 {
            lookout
                .vital(start, || {
                    looks += 1;
                    Ok((Vec::new(), MS))
                })
                .unwrap();
        }
        assert_eq!(looks, 1);
    }

    #[test]
    fn a_look_that_fails_is_told_and_judges_nobody() {
        let start = Instant::now();
        let mut lookout = Lookout::new(start);
        orders(&mut lookout, start, 1, BUDGET);
        let later = start + OLDEST;
        let failed = || Err(Failure::new(ExitCode::Unsupported, "no /proc"));
        assert_eq!(lookout.vital(later, failed).unwrap_err().message, "no /proc");
        assert_eq!(orders(&mut lookout, later, 1, MS), (1, Duration::ZERO), "the next order looks again");
    }
}
