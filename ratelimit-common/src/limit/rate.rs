//! From a rate in words ("5000 packets a second, burst 10000") to the numbers the kernel uses.
//!
//! Rates become a price per unit, rounded up, so the limit enforced is never faster than the one asked for.
//! Everything that could overflow in [`super::gcra`] is refused here, with a sentence.

use core::fmt;

use super::gcra::{MAX_TOLERANCE_Q8, TIME_FRAC_BITS};
use crate::abi::{Limit, Meter};

/// The time a rate's amount is spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Period {
    /// One second.
    Second,
    /// Sixty seconds.
    Minute,
    /// Sixty minutes.
    Hour,
    /// Twenty-four hours.
    Day,
}

impl Period {
    /// Its length.
    pub const fn ns(self) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        match self {
            Self::Second => SECOND,
            Self::Minute => 60 * SECOND,
            Self::Hour => 3_600 * SECOND,
            Self::Day => 86_400 * SECOND,
        }
    }

    /// The word for it in a rate.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "min",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }
}

/// A rate with its burst, as the operator means it. `Display` writes it back in the form it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// What is counted.
    pub meter: Meter,
    /// Units per period.
    pub amount: u64,
    /// The period.
    pub period: Period,
    /// Units an idle source may send at once.
    pub burst: u64,
}

/// Why a rate cannot be enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateError {
    /// Nothing would ever pass.
    ZeroRate,
    /// Nothing would ever pass either.
    ZeroBurst,
    /// Above what the fixed-point price can express to a useful precision.
    TooFast {
        /// The meter it is in.
        meter: Meter,
    },
    /// Below what the price can express without overflow (bytes only).
    TooSlow,
    /// A byte limit that refuses every full-sized frame.
    BurstBelowFrame {
        /// The burst given.
        burst: u64,
    },
    /// The bucket would take longer to fill than the time word can tell.
    BurstTooLong {
        /// The largest burst at this rate.
        max: u64,
    },
}

/// The fastest limit in packets or SYNs, per second: faster than a 100 Gbit/s port can deliver to one core.
pub const MAX_COUNT_PER_SEC: u64 = 100_000_000;
/// The fastest limit in bytes, per second (800 Gbit/s).
pub const MAX_BYTES_PER_SEC: u64 = 100_000_000_000;
/// A full Ethernet frame without its check sum; byte bursts below this would refuse it for ever.
pub const FULL_FRAME: u64 = 1514;

/// Extra binary places of a byte price: at 100 GB/s one byte costs 2.56 time units, too coarse by itself.
const BYTE_FRAC_BITS: u32 = 16;
/// Byte prices stay below this, so that [`super::gcra::MAX_AMOUNT`] of them stay below 2^62.
const MAX_BYTE_COST_FP: u128 = 1 << 42;

impl Rate {
    /// The parameters that enforce this rate.
    pub fn limit(&self) -> Result<Limit, RateError> {
        if self.amount == 0 {
            return Err(RateError::ZeroRate);
        }
        if self.burst == 0 {
            return Err(RateError::ZeroBurst);
        }
        let max_per_sec = match self.meter {
            Meter::Packets | Meter::Syns => MAX_COUNT_PER_SEC,
            Meter::Bytes => MAX_BYTES_PER_SEC,
        };
        if u128::from(self.amount) * 1_000_000_000 > u128::from(max_per_sec) * u128::from(self.period.ns()) {
            return Err(RateError::TooFast { meter: self.meter });
        }
        if self.meter == Meter::Bytes && self.burst < FULL_FRAME {
            return Err(RateError::BurstBelowFrame { burst: self.burst });
        }
        let frac_bits = self.frac_bits()?;
        let cost_fp = self.cost_fp(frac_bits);
        let tolerance = (u128::from(self.burst) * cost_fp) >> frac_bits;
        if tolerance > u128::from(MAX_TOLERANCE_Q8) {
            let max = ((u128::from(MAX_TOLERANCE_Q8)) << frac_bits) / cost_fp;
            return Err(RateError::BurstTooLong { max: max as u64 });
        }
        Ok(Limit {
            cost_fp: cost_fp as u64,
            tolerance_q8: tolerance as u64,
            frac_bits,
            meter: self.meter as u32,
        })
    }

    /// Binary places below 1/256 ns: as many as fit.
    fn frac_bits(&self) -> Result<u32, RateError> {
        if self.meter != Meter::Bytes {
            return Ok(0);
        }
        if self.cost_fp(BYTE_FRAC_BITS) < MAX_BYTE_COST_FP {
            return Ok(BYTE_FRAC_BITS);
        }
        if self.cost_fp(0) < MAX_BYTE_COST_FP { Ok(0) } else { Err(RateError::TooSlow) }
    }

    /// ns per unit, in 1/256 ns with further binary places, rounded up.
    fn cost_fp(&self, frac_bits: u32) -> u128 {
        (u128::from(self.period.ns()) << (TIME_FRAC_BITS + frac_bits)).div_ceil(u128::from(self.amount))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}/{} burst {}",
            self.amount,
            self.meter.name(),
            self.period.name(),
            self.burst
        )
    }
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroRate => write!(f, "rate 0 lets nothing pass; use at least 1, or block the source"),
            Self::ZeroBurst => write!(f, "burst 0 is never satisfiable; use at least 1"),
            Self::TooFast { meter: Meter::Bytes } => {
                write!(f, "rate is above {MAX_BYTES_PER_SEC} bytes/s, more than any port delivers; use at most that")
            }
            Self::TooFast { meter } => write!(
                f,
                "rate is above {MAX_COUNT_PER_SEC} {}/s, more than any port delivers; use at most that",
                meter.name()
            ),
            Self::TooSlow => write!(f, "rate is slower than 5100 bytes/day; use at least that, or a limit in packets"),
            Self::BurstBelowFrame { burst } => {
                write!(f, "burst {burst} bytes refuses every full frame; use at least {FULL_FRAME}")
            }
            Self::BurstTooLong { max } => {
                write!(f, "burst takes more than 104 days to refill at this rate; use at most {max}")
            }
        }
    }
}

impl core::error::Error for RateError {}
