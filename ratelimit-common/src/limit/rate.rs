//! Turns a rate in words ("5000 packets a second, burst 10000") into the numbers that the kernel uses.
//!
//! Rates become a price per unit, rounded up, and bursts a tolerance, rounded down, so the enforced limit is
//! never faster or larger than the one asked for. Everything that could overflow in [`super::gcra`] is refused
//! here, with a sentence.
//!
//! The error of rounding is below 0.01 % of the rate up to 25 million charges a second (0.04 % up to 100
//! million), and below one byte of a byte limit's burst, so that a frame of exactly the burst's size may be
//! refused if the price of a byte is not a whole number of 1/256 ns.

use core::fmt;

use super::{
    gcra::{MAX_TOLERANCE_Q8, TIME_FRAC_BITS, charge_q8},
    manner::{Algorithm, Manner},
    units::{BytesIn, TypedUnits},
    window::{Window, WindowError, sliding::SUB_WINDOWS},
};
use crate::abi::{Limit, Meter};

/// The period of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Period {
    /// The amount is per second.
    Second,
    /// The amount is per 60 seconds.
    Minute,
    /// The amount is per 60 minutes.
    Hour,
    /// The amount is per 24 hours.
    Day,
    /// A calendar month, for requests only; 31 days where a length is needed.
    Month,
}

impl Period {
    /// The length of the period in nanoseconds.
    pub const fn ns(self) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        match self {
            Self::Second => SECOND,
            Self::Minute => 60 * SECOND,
            Self::Hour => 3_600 * SECOND,
            Self::Day => 86_400 * SECOND,
            Self::Month => 31 * 86_400 * SECOND,
        }
    }

    /// The word for the period in a rate.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "min",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

/// A rate with its burst, as the operator wrote it. `Display` writes it in the form that users type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// What the rate counts.
    pub meter: Meter,
    /// Units per period.
    pub amount: u64,
    /// The period of the amount.
    pub period: Period,
    /// Units an idle source may send at once. Equal to the amount for windows, which admit all of it at once.
    pub burst: u64,
    /// The algorithm and the throttle of the rate.
    pub manner: Manner,
    /// The units that amount and burst were typed in, if the meter is [`Meter::Bytes`].
    pub units: TypedUnits,
}

/// Why a rate cannot be enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateError {
    /// The amount is 0, so nothing would ever pass.
    ZeroRate,
    /// The burst is 0, so nothing would ever pass.
    ZeroBurst,
    /// The rate is higher than the fixed-point price can express with enough precision.
    TooFast {
        /// The meter of the rate.
        meter: Meter,
    },
    /// The rate in bytes is lower than the price can express without overflow.
    TooSlow,
    /// The burst of a byte limit is smaller than a full frame.
    BurstBelowFrame {
        /// The burst of the rate.
        burst: u64,
        /// The smallest possible burst.
        min: u64,
    },
    /// The bucket would take longer to fill than a time word can express.
    BurstTooLong {
        /// The largest burst at this rate.
        max: u64,
    },
    /// The window of the rate is not possible.
    Window(WindowError),
    /// The algorithm does not count packets.
    RequestsOnly(Algorithm),
    /// A period of a month for packets: the kernel has no calendar.
    MonthOfPackets,
}

/// The fastest limit in packets or SYNs, per second: more than a 100 Gbit/s port can deliver to one core.
pub const MAX_COUNT_PER_SEC: u64 = 100_000_000;
/// The fastest limit in bytes, per second (800 Gbit/s).
pub const MAX_BYTES_PER_SEC: u64 = 100_000_000_000;
/// A full Ethernet frame in bytes, without its check sum; smaller bursts would refuse it for ever.
pub const FULL_FRAME: u64 = 1514;

/// Extra binary places of a byte's price: at 100 GB/s one byte costs 2.56 time units, too coarse without them.
const BYTE_FRAC_BITS: u32 = 16;
/// Bound of a byte's price, so that [`super::gcra::MAX_AMOUNT`] bytes stay below 2^62.
const MAX_BYTE_COST_FP: u128 = 1 << 42;
const BYTES: u32 = Meter::Bytes as u32;
/// The slowest limit in bytes, in bytes per day: its price is just below `MAX_BYTE_COST_FP`.
pub const MIN_BYTES_PER_DAY: u64 = 5_030;

impl Rate {
    /// The units of a rate that no text was parsed for.
    pub const UNTYPED: TypedUnits = TypedUnits::BYTES;

    /// The parameters with which the kernel enforces this rate.
    pub fn limit(&self) -> Result<Limit, RateError> {
        if self.amount == 0 {
            return Err(RateError::ZeroRate);
        }
        if self.manner.algorithm.why_requests_only().is_some() {
            return Err(RateError::RequestsOnly(self.manner.algorithm));
        }
        if self.period == Period::Month {
            return Err(RateError::MonthOfPackets);
        }
        if self.manner.algorithm.is_window() {
            self.window(0).and_then(|_| self.window(self.manner.margin(true))).map_err(RateError::Window)?;
            // A window has no bucket.
            return Ok(Limit { meter: self.meter as u32, ..Limit::UNUSED });
        }
        if self.burst == 0 {
            return Err(RateError::ZeroBurst);
        }
        let max_per_sec = match self.meter {
            Meter::Packets | Meter::Syns | Meter::Fragments => MAX_COUNT_PER_SEC,
            Meter::Bytes => MAX_BYTES_PER_SEC,
        };
        if u128::from(self.amount) * 1_000_000_000 > u128::from(max_per_sec) * u128::from(self.period.ns()) {
            return Err(RateError::TooFast { meter: self.meter });
        }
        let frac_bits = self.frac_bits()?;
        let cost_fp = self.cost_fp(frac_bits);
        let tolerance = |burst: u64| (u128::from(burst) * cost_fp) >> frac_bits;
        if tolerance(self.burst) > u128::from(MAX_TOLERANCE_Q8) {
            let max = (((u128::from(MAX_TOLERANCE_Q8) + 1) << frac_bits) - 1) / cost_fp;
            return Err(RateError::BurstTooLong { max: max as u64 });
        }
        let limit = Limit {
            cost_fp: cost_fp as u64,
            tolerance_q8: tolerance(self.burst) as u64,
            frac_bits,
            meter: self.meter as u32,
        };
        // The price of a frame rounds up and the tolerance down: a burst of one frame may be too small by a hair. One
        // byte more is always enough, because no byte costs less than 2.56 units.
        let frame = charge_q8(&limit, FULL_FRAME);
        if self.meter == Meter::Bytes && frame > limit.tolerance_q8 {
            let min = FULL_FRAME + u64::from(u128::from(frame) > tolerance(FULL_FRAME));
            return Err(RateError::BurstBelowFrame { burst: self.burst, min });
        }
        Ok(limit)
    }

    /// The bucket of a margin: `percent` faster than the limit, with a burst that is larger by as much.
    pub fn widened(limit: &Limit, percent: u32) -> Limit {
        let (cost, wide) = (u128::from(limit.cost_fp), 100 + u128::from(percent));
        let cost_fp = (cost * 100).div_ceil(wide);
        // The bucket takes as long to fill as before, plus what the price was rounded up by. The product is below 2^61 times 2^53: no limit is slower than one a day.
        let tolerance_q8 = u128::from(limit.tolerance_q8) * (cost_fp * wide) / (cost.max(1) * 100);
        Limit { cost_fp: cost_fp as u64, tolerance_q8: tolerance_q8 as u64, ..*limit }
    }

    /// The bucket of a part of the limit: as much slower, with a burst as much smaller, so that it takes the same time to fill. Rounded
    /// down. It admits nothing if the part is zero or too slow for the numbers.
    pub fn part(limit: &Limit, numerator: u32, denominator: u32) -> Limit {
        let nothing = Limit { tolerance_q8: 0, ..*limit };
        if numerator == 0 {
            return nothing;
        }
        let cost = (u128::from(limit.cost_fp) * u128::from(denominator)).div_ceil(u128::from(numerator));
        let (most, coarser) = match limit.meter {
            BYTES => (MAX_BYTE_COST_FP, cost.div_ceil(1 << limit.frac_bits)),
            _ => (u128::from(MAX_TOLERANCE_Q8), cost),
        };
        if cost < most {
            Limit { cost_fp: cost as u64, ..*limit }
        } else if coarser < most {
            Limit { cost_fp: coarser as u64, frac_bits: 0, ..*limit }
        } else {
            nothing
        }
    }

    /// The window that counts this rate with `percent` on top; for algorithms that count in windows.
    pub fn window(&self, percent: u32) -> Result<Window, WindowError> {
        let amount = u128::from(self.amount) * (100 + u128::from(percent)) / 100;
        let rate = Self { amount: u64::try_from(amount).unwrap_or(u64::MAX), ..*self };
        match self.manner.algorithm {
            Algorithm::FixedWindow | Algorithm::TokenBucket | Algorithm::LeakyBucket => Window::fixed(&rate),
            Algorithm::SlidingWindowWeighted => Window::weighted(&rate),
            // `limit` refuses rates whose algorithm is for requests only.
            _ => Window::sliding::<SUB_WINDOWS>(&rate),
        }
    }

    /// How many places rates need in a set, which has as many for buckets as for windows: a margin needs a place of its own.
    pub fn places(rates: &[Self]) -> usize {
        let count = |window: bool| {
            let of_kind = rates.iter().filter(|rate| rate.manner.algorithm.is_window() == window);
            of_kind.map(|rate| if rate.manner.margin(true) == 0 { 1 } else { 2 }).sum::<usize>()
        };
        count(false).max(count(true))
    }

    /// The burst as it is typed behind the word `burst`.
    pub fn burst_in_words(&self) -> impl fmt::Display {
        struct Burst(Rate);
        impl fmt::Display for Burst {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0.meter {
                    Meter::Bytes => BytesIn(self.0.burst, self.0.units.burst).fmt(f),
                    _ => self.0.burst.fmt(f),
                }
            }
        }
        Burst(*self)
    }

    /// Whether everything that conforms to this rate also conforms to `other`: the same meter, the same manner, and neither
    /// faster nor with a larger burst.
    pub fn at_least_as_strict_as(&self, other: &Self) -> bool {
        let no_faster = u128::from(self.amount) * u128::from(other.period.ns())
            <= u128::from(other.amount) * u128::from(self.period.ns());
        self.meter == other.meter && self.manner == other.manner && no_faster && self.burst <= other.burst
    }

    /// Binary places of the price below 1/256 ns: as many as fit.
    fn frac_bits(&self) -> Result<u32, RateError> {
        if self.meter != Meter::Bytes {
            return Ok(0);
        }
        if self.cost_fp(BYTE_FRAC_BITS) < MAX_BYTE_COST_FP {
            return Ok(BYTE_FRAC_BITS);
        }
        if self.cost_fp(0) < MAX_BYTE_COST_FP { Ok(0) } else { Err(RateError::TooSlow) }
    }

    /// The price of a unit in 1/256 ns, with further binary places, rounded up.
    fn cost_fp(&self, frac_bits: u32) -> u128 {
        (u128::from(self.period.ns()) << (TIME_FRAC_BITS + frac_bits)).div_ceil(u128::from(self.amount))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meter {
            Meter::Bytes => BytesIn(self.amount, self.units.amount).fmt(f)?,
            meter => write!(f, "{} {}", self.amount, meter.name())?,
        }
        write!(f, "/{}", self.period.name())?;
        if !self.manner.algorithm.is_window() {
            write!(f, " burst {}", self.burst_in_words())?;
        }
        self.manner.fmt(f)
    }
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroRate => write!(f, "rate 0 lets nothing pass; use at least 1, or block the source"),
            Self::ZeroBurst => write!(f, "burst 0 is never satisfiable; use at least 1"),
            Self::TooFast { meter: Meter::Bytes } => {
                write!(
                    f,
                    "rate is above {MAX_BYTES_PER_SEC} bytes/s, more than any port delivers; use at most that"
                )
            }
            Self::TooFast { meter } => write!(
                f,
                "rate is above {MAX_COUNT_PER_SEC} {}/s, more than any port delivers; use at most that",
                meter.name()
            ),
            Self::TooSlow => {
                write!(
                    f,
                    "rate is below {MIN_BYTES_PER_DAY} bytes/day; use at least that, or a limit in packets"
                )
            }
            Self::BurstBelowFrame { burst, min } => {
                write!(f, "burst {burst} bytes refuses every full frame; use at least {min} bytes")
            }
            Self::BurstTooLong { max } => {
                write!(f, "burst takes more than 104 days to refill at this rate; use at most {max}")
            }
            Self::Window(error) => error.fmt(f),
            Self::RequestsOnly(algorithm) => {
                let (name, why) = (algorithm.name(), algorithm.why_requests_only().unwrap_or_default());
                write!(f, "{name} {why}, which is for requests; use sliding-window")
            }
            Self::MonthOfPackets => {
                write!(f, "months are for requests with a time_zone; use a rate per day")
            }
        }
    }
}

impl core::error::Error for RateError {}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;
    use crate::limit::text::parse_rate;

    fn rate(meter: Meter, amount: u64, period: Period, burst: u64) -> Rate {
        Rate { meter, amount, period, burst, manner: Manner::PLAIN, units: Rate::UNTYPED }
    }

    #[test]
    fn the_slowest_and_the_fastest_limits_are_exact() {
        let limit = rate(Meter::Packets, 1, Period::Day, 1).limit().unwrap();
        assert_eq!((limit.cost_fp, limit.tolerance_q8), (86_400_000_000_000 << 8, 86_400_000_000_000 << 8));
        let limit = rate(Meter::Syns, 100_000_000, Period::Second, 3).limit().unwrap();
        assert_eq!((limit.cost_fp, limit.tolerance_q8), (10 << 8, 30 << 8));
        assert_eq!(limit.meter, Meter::Syns as u32);
        let limit = rate(Meter::Bytes, MAX_BYTES_PER_SEC, Period::Second, 1 << 20).limit().unwrap();
        assert_eq!((limit.cost_fp, limit.frac_bits), (167_773, 16));
    }

    #[test]
    fn every_rate_out_of_bounds_is_refused_and_its_neighbour_inside_is_not() {
        use Meter::{Bytes, Packets};
        use Period::{Day, Second};
        let too_fast = |meter| RateError::TooFast { meter };
        for (bad, error, good) in [
            (rate(Packets, 0, Second, 1), RateError::ZeroRate, rate(Packets, 1, Second, 1)),
            (rate(Packets, 1, Second, 0), RateError::ZeroBurst, rate(Packets, 1, Second, 1)),
            (rate(Packets, 100_000_001, Second, 1), too_fast(Packets), rate(Packets, 100_000_000, Second, 1)),
            (rate(Packets, u64::MAX, Day, 1), too_fast(Packets), rate(Packets, 8_640_000_000_000, Day, 1)),
            (
                rate(Bytes, MAX_BYTES_PER_SEC + 1, Second, 9000),
                too_fast(Bytes),
                rate(Bytes, MAX_BYTES_PER_SEC, Second, 9000),
            ),
            (
                rate(Bytes, MIN_BYTES_PER_DAY - 1, Day, 9000),
                RateError::TooSlow,
                rate(Bytes, MIN_BYTES_PER_DAY, Day, 9000),
            ),
            (rate(Packets, 1, Day, 105), RateError::BurstTooLong { max: 104 }, rate(Packets, 1, Day, 104)),
            (
                rate(Bytes, 1_000_000, Second, u64::MAX),
                RateError::BurstTooLong { max: 9_007_199_254_740 },
                rate(Bytes, 1_000_000, Second, 9_007_199_254_740),
            ),
            // A byte costs exactly 3 units, and the longest tolerance is one less than a multiple of 3.
            (
                rate(Bytes, 85_333_333_334, Second, 768_614_336_404_564_651),
                RateError::BurstTooLong { max: 768_614_336_404_564_650 },
                rate(Bytes, 85_333_333_334, Second, 768_614_336_404_564_650),
            ),
            (
                rate(Bytes, 1_000_000, Second, 1513),
                RateError::BurstBelowFrame { burst: 1513, min: 1514 },
                rate(Bytes, 1_000_000, Second, 1514),
            ),
        ] {
            assert_eq!(bad.limit(), Err(error), "{bad}");
            assert!(good.limit().is_ok(), "{good}: {:?}", good.limit());
        }
    }

    #[test]
    fn a_burst_that_misses_a_full_frame_by_rounding_is_refused_with_one_that_does_not() {
        // 3 MB/s: a byte costs 85333.3 units, so the price of a frame rounds up and the tolerance down.
        let tight = rate(Meter::Bytes, 3_000_000, Period::Second, FULL_FRAME);
        assert_eq!(tight.limit(), Err(RateError::BurstBelowFrame { burst: 1514, min: 1515 }));
        let limit = Rate { burst: 1515, ..tight }.limit().unwrap();
        assert!(charge_q8(&limit, FULL_FRAME) <= limit.tolerance_q8);
    }

    #[test]
    fn a_rate_is_written_as_it_is_typed() {
        assert_eq!(rate(Meter::Syns, 5, Period::Minute, 7).to_string(), "5 syns/min burst 7");
        assert_eq!(rate(Meter::Bytes, 5, Period::Day, 70_000).to_string(), "5 bytes/day burst 70000 bytes");
    }

    #[test]
    fn strictness_compares_rates_across_periods_and_never_across_meters() {
        let base = rate(Meter::Packets, 60, Period::Minute, 10);
        for (other, strict) in [
            (rate(Meter::Packets, 1, Period::Second, 10), true),
            (rate(Meter::Packets, 2, Period::Second, 11), true),
            (rate(Meter::Packets, 59, Period::Minute, 10), false),
            (rate(Meter::Packets, 2, Period::Second, 9), false),
            (rate(Meter::Syns, 2, Period::Second, 11), false),
            (rate(Meter::Packets, u64::MAX, Period::Second, u64::MAX), true),
        ] {
            assert_eq!(base.at_least_as_strict_as(&other), strict, "{base} against {other}");
        }
    }

    #[test]
    fn rates_over_different_periods_are_compared_by_what_they_come_to() {
        let per = |amount, period| rate(Meter::Packets, amount, period, 10);
        let (second, minute) = (per(1, Period::Second), per(60, Period::Minute));
        assert!(minute.at_least_as_strict_as(&second) && second.at_least_as_strict_as(&minute));
        assert!(!per(61, Period::Minute).at_least_as_strict_as(&second));
        assert!(!second.at_least_as_strict_as(&per(59, Period::Minute)));
    }

    #[test]
    fn a_margin_is_a_faster_bucket_with_a_larger_burst() {
        let limit = text("1000 packets/s burst 500");
        let wide = Rate::widened(&limit, 25);
        assert_eq!(wide.cost_fp, limit.cost_fp * 4 / 5);
        assert_eq!((wide.tolerance_q8, wide.tolerance_q8 / wide.cost_fp), (limit.tolerance_q8, 625));
        let odd = Rate::widened(&text("1001 packets/s burst 500"), 7);
        assert_eq!(odd.cost_fp, (text("1001 packets/s").cost_fp * 100).div_ceil(107));
        assert_eq!(odd.tolerance_q8 / odd.cost_fp, 535, "what the price was rounded up by costs no packet");
        assert_eq!((wide.meter, wide.frac_bits), (limit.meter, limit.frac_bits));
    }

    #[test]
    fn a_part_is_a_slower_bucket_that_takes_as_long_to_fill_and_rounds_against_who_spends_it() {
        let limit = text("1000 packets/s burst 500");
        let half = Rate::part(&limit, 1, 2);
        assert_eq!((half.cost_fp, half.tolerance_q8), (2 * limit.cost_fp, limit.tolerance_q8));
        assert_eq!(Rate::part(&limit, 3, 7).cost_fp, (limit.cost_fp * 7).div_ceil(3));
        assert_eq!(Rate::part(&limit, 0, 7), Limit { tolerance_q8: 0, ..limit }, "no part is nothing");
        // The part is too slow for a price with binary places, and then for any price.
        let bytes = text("100000 bytes/s burst 100000 bytes");
        assert_eq!(Rate::part(&bytes, 1, 2).frac_bits, BYTE_FRAC_BITS);
        let coarse = Rate::part(&bytes, 1, 1 << 20);
        let exact = (u128::from(bytes.cost_fp) << 20).div_ceil(1 << BYTE_FRAC_BITS);
        assert_eq!((coarse.frac_bits, u128::from(coarse.cost_fp)), (0, exact));
        assert_eq!(Rate::part(&bytes, 1, u32::MAX).tolerance_q8, 0, "nothing is left of it");
        assert_eq!(Rate::part(&text("1 packets/day"), 1, u32::MAX).tolerance_q8, 0);
    }

    #[test]
    fn a_margin_takes_a_place_of_its_own_and_windows_are_counted_apart() {
        let rate = |words: &str| parse_rate(words).unwrap();
        let (plain, soft) = (rate("10 packets/s"), rate("10 packets/s soft 10%"));
        let (window, elastic) =
            (rate("10 packets/s fixed-window"), rate("10 packets/s fixed-window elastic 10%"));
        assert_eq!(Rate::places(&[]), 0);
        assert_eq!(Rate::places(&[plain, plain, soft]), 4);
        assert_eq!(Rate::places(&[plain, window, window]), 2);
        assert_eq!(Rate::places(&[plain, window, elastic]), 3);
    }

    #[test]
    fn periods_are_as_long_as_they_say() {
        let second = 1_000_000_000;
        let all = [Period::Second, Period::Minute, Period::Hour, Period::Day, Period::Month];
        assert_eq!(
            all.map(Period::ns),
            [second, 60 * second, 3_600 * second, 86_400 * second, 2_678_400 * second]
        );
        assert_eq!(all.map(Period::name), ["s", "min", "hour", "day", "month"]);
    }

    fn text(words: &str) -> Limit {
        parse_rate(words).unwrap().limit().unwrap()
    }

    #[test]
    fn a_bucket_may_take_exactly_the_longest_time_to_fill_and_no_unit_more() {
        // A packet costs 2^17 steps of time, and the longest tolerance is 2^61.
        let of = |burst| rate(Meter::Packets, 1_953_125, Period::Second, burst).limit();
        assert_eq!(of(1 << 44).map(|limit| limit.tolerance_q8), Ok(MAX_TOLERANCE_Q8));
        assert_eq!(of((1 << 44) + 1), Err(RateError::BurstTooLong { max: 1 << 44 }));
    }

    #[test]
    fn a_part_whose_price_has_too_many_bits_does_without_binary_places_and_then_gives_nothing() {
        let bytes =
            |cost_fp, frac_bits| Limit { cost_fp, tolerance_q8: 9, frac_bits, meter: Meter::Bytes as u32 };
        assert_eq!(Rate::part(&bytes((1 << 41) - 1, 16), 1, 2), bytes((1 << 42) - 2, 16));
        assert_eq!(Rate::part(&bytes(1 << 41, 16), 1, 2), bytes(1 << 26, 0));
        let nothing = Limit { tolerance_q8: 0, ..bytes(1 << 41, 0) };
        assert_eq!(Rate::part(&bytes(1 << 41, 0), 1, 2), nothing);
    }

    #[test]
    fn a_rate_is_counted_in_the_window_of_its_algorithm_with_its_margin_on_top() {
        for (text, length_ns, late) in [
            ("100 packets/s fixed-window", 1_000_000_000, 60),
            ("100 packets/s sliding-window-weighted", 1_000_000_000, 60),
            ("100 packets/s sliding-window", 142_857_143, 420),
        ] {
            let rate = parse_rate(text).unwrap();
            let window = rate.window(50).unwrap();
            assert_eq!((window.limit, window.length_ns, window.late), (150, length_ns, late), "{text}");
            assert_eq!(rate.window(0).unwrap().limit, 100, "{text}");
        }
        let shift = |text| parse_rate(text).unwrap().window(0).unwrap().previous_shift;
        assert_eq!(shift("1000000 packets/s sliding-window-weighted"), 8, "two counts in one word");
        assert_eq!(shift("1000000 packets/s fixed-window"), 0);
    }

    #[test]
    fn a_limit_in_windows_keeps_its_meter() {
        for (text, meter) in
            [("9000 bytes/s fixed-window", Meter::Bytes), ("9 syns/s sliding-window", Meter::Syns)]
        {
            assert_eq!(parse_rate(text).unwrap().limit().unwrap().meter, meter as u32, "{text}");
        }
    }
}
