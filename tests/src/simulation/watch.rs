//! An onlooker who sees every packet and every request that is admitted, on whichever host, and knows what one host alone would admit at most.

use std::collections::VecDeque;

use super::RequestPlan;

/// What was admitted so far, held against the bound.
#[derive(Clone, Debug)]
pub struct Watch {
    bound: Bound,
    /// How much earlier than it was admitted a unit may count: bounds hold for intervals that are as much shorter.
    early_ns: u64,
    /// Units that may be admitted beside, in all: each time that the store forgets requests lets one more limit through.
    forgiven: u64,
}

#[derive(Clone, Debug)]
enum Bound {
    /// A bucket: at no moment more than the burst above the rate. What is above is in units times the period.
    Rate { amount: u64, period_ns: u64, burst: u64, above: u128, at_ns: u64 },
    /// A window of the clock: no more than that in each.
    Clock { period_ns: u64, most: u64, inside: u64, window: u64 },
    /// A window: at no moment more than so much within its length.
    Window { period_ns: u64, most: u64, inside: u64, seen: VecDeque<(u64, u64)> },
}

impl Watch {
    /// A bucket that nothing has been taken of.
    pub fn rate(amount: u64, period_ns: u64, burst: u64) -> Self {
        Self::bounded(Bound::Rate { amount, period_ns, burst, above: 0, at_ns: 0 }, 0)
    }

    fn bounded(bound: Bound, early_ns: u64) -> Self {
        Self { bound, early_ns, forgiven: 0 }
    }

    /// What one key of requests may have whose limit is so much; times two where hosts have shares beside what the store gives.
    pub fn of(plan: &RequestPlan, limit: u64, times: u64, early_ns: u64, has_clock_steps: bool) -> Self {
        let (period_ns, most) = (plan.period_ns(), limit * times);
        let window = |most: u64| Bound::Window { period_ns, most, inside: 0, seen: VecDeque::new() };
        let bound = match plan.algorithm {
            "token-bucket" | "leaky-bucket" => {
                Bound::Rate { amount: most, period_ns, burst: most, above: 0, at_ns: 0 }
            }
            // Edges are the store's: if its clock steps, an interval may have one anywhere.
            "fixed-window" if has_clock_steps => window(2 * most),
            "fixed-window" => Bound::Clock { period_ns, most, inside: 0, window: 0 },
            "sliding-window-weighted" => window((2 * limit - 1) * times),
            _ => window(most),
        };
        Self::bounded(bound, early_ns)
    }

    /// So many units more are no fault.
    pub fn forgive(&mut self, units: u64) {
        self.forgiven += units;
    }

    /// So many units were admitted at this moment. How many too many, if so.
    pub fn admitted(&mut self, now_ns: u64, units: u64) -> Result<(), String> {
        let early_ns = self.early_ns;
        let (inside, most, of) = match &mut self.bound {
            Bound::Rate { amount, period_ns, burst, above, at_ns } => {
                let paid = u128::from(now_ns.saturating_sub(*at_ns)) * u128::from(*amount);
                *above = above.saturating_sub(paid) + u128::from(units) * u128::from(*period_ns);
                *at_ns = now_ns;
                let early = u128::from(early_ns) * u128::from(*amount);
                (
                    above.saturating_sub(early).div_ceil(u128::from(*period_ns)) as u64,
                    *burst,
                    "above the rate",
                )
            }
            Bound::Clock { period_ns, most, inside, window } => {
                if now_ns / *period_ns > *window {
                    (*window, *inside) = (now_ns / *period_ns, 0);
                }
                *inside += if now_ns % *period_ns < early_ns { 0 } else { units };
                (*inside, *most, "in a window of the clock")
            }
            Bound::Window { period_ns, most, inside, seen } => {
                let until_ns = (now_ns + early_ns).saturating_sub(*period_ns);
                while let Some((_, gone)) = seen.front().copied().filter(|(at, _)| *at <= until_ns) {
                    seen.pop_front();
                    *inside -= gone;
                }
                seen.push_back((now_ns, units));
                *inside += units;
                (*inside, *most, "within a window")
            }
        };
        let excess = inside.saturating_sub(most);
        if excess > self.forgiven {
            return Err(format!("{inside} {of}, of at most {most}, at {} ms", now_ns / 1_000_000));
        }
        self.forgiven -= excess;
        match &mut self.bound {
            Bound::Rate { above, period_ns, .. } => *above -= u128::from(excess) * u128::from(*period_ns),
            Bound::Clock { inside, .. } => *inside -= excess,
            Bound::Window { inside, seen, .. } => {
                *inside -= excess;
                // No more than what has just come: everything before was within the bound.
                seen.back_mut().expect("what has just come").1 -= excess;
            }
        }
        Ok(())
    }
}
