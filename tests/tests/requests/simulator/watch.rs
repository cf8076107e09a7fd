//! An onlooker who sees every request that is served, on whichever host, and knows what one host alone would admit at most.

use std::collections::VecDeque;

use super::world::Plan;

/// Counts along.
#[derive(Debug)]
pub(crate) enum Watch {
    /// A bucket: at no moment more than the burst above the rate.
    Rate { amount: f64, period_us: f64, burst: f64, above: f64, at_us: u64 },
    /// A window of the clock: no more than that in each.
    Clock { period_us: u64, most: u64, inside: u64, window: u64 },
    /// A window: at no moment more than so much within its length.
    Window { period_us: u64, most: u64, inside: u64, seen: VecDeque<(u64, u64)> },
}

impl Watch {
    pub(crate) fn new(plan: &Plan) -> Self {
        let (limit, times) = (plan.limit, plan.times());
        let window = |most: u64| Self::Window {
            period_us: plan.period_us,
            most: most * times,
            inside: 0,
            seen: VecDeque::new(),
        };
        match plan.algorithm {
            "token-bucket" | "leaky-bucket" => Self::Rate {
                amount: (limit * times) as f64,
                period_us: plan.period_us as f64,
                burst: (limit * times) as f64,
                above: 0.0,
                at_us: 0,
            },
            "fixed-window" => {
                Self::Clock { period_us: plan.period_us, most: limit * times, inside: 0, window: 0 }
            }
            "sliding-window-weighted" => window(2 * limit - 1),
            _ => window(limit),
        }
    }

    /// So many units were admitted at this moment. How many too many, if so.
    pub(crate) fn admitted(&mut self, now_us: u64, units: u64) -> Result<(), String> {
        match self {
            Self::Rate { amount, period_us, burst, above, at_us } => {
                let paid = now_us.saturating_sub(*at_us) as f64 * *amount / *period_us;
                *above = (*above - paid).max(0.0) + units as f64;
                *at_us = now_us;
                // Rounding of our own sums.
                match *above > *burst + 1e-3 {
                    true => Err(format!("{above:.3} above the rate, of at most {burst}, at {now_us} us")),
                    false => Ok(()),
                }
            }
            Self::Clock { period_us, most, inside, window } => {
                if now_us / *period_us > *window {
                    (*window, *inside) = (now_us / *period_us, 0);
                }
                *inside += units;
                match *inside > *most {
                    true => {
                        Err(format!("{inside} in a window of the clock, of at most {most}, at {now_us} us"))
                    }
                    false => Ok(()),
                }
            }
            Self::Window { period_us, most, inside, seen } => {
                seen.push_back((now_us, units));
                *inside += units;
                while let Some((_, gone)) = seen.front().copied().filter(|(at, _)| at + *period_us <= now_us)
                {
                    seen.pop_front();
                    *inside -= gone;
                }
                match *inside > *most {
                    true => Err(format!("{inside} within a window, of at most {most}, at {now_us} us")),
                    false => Ok(()),
                }
            }
        }
    }
}
