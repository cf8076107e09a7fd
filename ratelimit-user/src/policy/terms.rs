//! The part of a limit that the store leases out, in whole numbers that the script and this program count alike.

use std::fmt;

use serde::{Deserialize, Serialize};

use ratelimit_common::limit::rate::Rate;

use super::Reserve;

/// The largest whole number that the store's scripts count exactly.
const EXACT: u128 = 1 << 53;

/// A limit as the store has it: `amount` units every `period_us` microseconds, and a burst of `burst` units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Terms {
    amount: u64,
    period_us: u64,
    burst: u64,
}

/// The error for a limit that the store cannot count exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFine {
    /// The largest burst that the store could count at this rate.
    max_burst: u64,
}

impl fmt::Display for TooFine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.max_burst;
        write!(
            f,
            "the burst is too large to be counted exactly across hosts at this rate; use at most {most}"
        )
    }
}

impl Terms {
    /// The limit without the reserve of all hosts.
    pub fn of(rate: &Rate, reserve: Reserve) -> Result<Self, TooFine> {
        // If one host's part of the reserve is less than one unit, no host can spend it, so the store leases out the whole limit.
        let kept = if reserve.units(rate.burst) == 0 { 0 } else { u128::from(reserve.permille()) };
        let amount = u128::from(rate.amount) * (1_000 - kept);
        // `amount` is in thousandths of a unit and `period` in nanoseconds, so their quotient is units per microsecond.
        let period = u128::from(rate.period.ns());
        let common = gcd(amount, period);
        let (amount, period) = (amount / common, period / common);
        // The reserve's part is rounded up, because buckets spend fractions too: one of 1.5 units gives two, given time.
        let burst = rate.burst - (u128::from(rate.burst) * kept).div_ceil(1_000) as u64;
        // The store's sums go above the burst: by what a moment adds, and by what was carried over.
        if (u128::from(burst) + 3) * period + amount >= EXACT {
            let max_burst = (EXACT.saturating_sub(amount + 1) / period).saturating_sub(3);
            return Err(TooFine { max_burst: max_burst as u64 });
        }
        Ok(Self { amount: amount as u64, period_us: period as u64, burst })
    }

    /// Units that every period adds.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// The period in microseconds.
    pub fn period_us(&self) -> u64 {
        self.period_us
    }

    /// The burst in units.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Microseconds that an empty bucket takes to fill.
    pub fn fill_us(&self) -> u64 {
        (u128::from(self.burst) * u128::from(self.period_us)).div_ceil(u128::from(self.amount)) as u64
    }
}

/// The greatest common divisor; 1 if both numbers are 0.
pub(crate) fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use ratelimit_common::limit::text::parse_rate;

    use super::*;

    fn terms(text: &str, permille: u32, hosts: u32) -> Terms {
        Terms::of(&parse_rate(text).unwrap(), Reserve::new(permille, hosts)).unwrap()
    }

    #[test]
    fn the_store_gives_out_what_the_reserves_of_all_hosts_leave() {
        let whole = terms("20000 packets/s burst 40000", 0, 16);
        assert_eq!(whole, Terms { amount: 1, period_us: 50, burst: 40_000 });
        // Each of 16 hosts has 125 of the 2000 units of the reserve.
        let rest = terms("20000 packets/s burst 40000", 50, 16);
        assert_eq!(rest, Terms { amount: 19, period_us: 1_000, burst: 38_000 });
        assert_eq!(rest.fill_us(), 2_000_000);
    }

    #[test]
    fn a_reserve_of_less_than_one_unit_is_the_stores() {
        assert_eq!(terms("5 packets/s burst 10", 50, 16), terms("5 packets/s burst 10", 0, 1));
    }

    #[test]
    fn a_burst_that_the_store_could_not_count_is_refused_with_one_that_it_can() {
        let slow = parse_rate("7 bytes/s burst 9000000 MB");
        let Ok(rate) = slow else { panic!("{slow:?}") };
        let TooFine { max_burst } = Terms::of(&rate, Reserve::new(0, 1)).unwrap_err();
        assert!(Terms::of(&Rate { burst: max_burst, ..rate }, Reserve::new(0, 1)).is_ok());
        assert!(Terms::of(&Rate { burst: max_burst + 1, ..rate }, Reserve::new(0, 1)).is_err());
    }
}
