//! A bucket to ask, random limits and schedules for it, and the ideal limiter to hold its answers against.

use proptest::prelude::*;
use ratelimit_common::abi::{Limit, Meter};
use ratelimit_common::limit::gcra::{self, GcraOutcome, MAX_AMOUNT, TIME_FRAC_BITS};
use ratelimit_common::limit::manner::Manner;
use ratelimit_common::limit::rate::{FULL_FRAME, MAX_BYTES_PER_SEC, MAX_COUNT_PER_SEC, Period, Rate};

/// One packet or frame that was admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    pub(crate) now_ns: u64,
    pub(crate) amount: u64,
}

/// A rate, the numbers that enforce it, and one source's word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) rate: Rate,
    pub(crate) limit: Limit,
    pub(crate) tat_q8: u64,
    /// The precise clock: the latest time of any call, because it does not step back.
    pub(crate) precise_ns: u64,
}

impl Bucket {
    /// A source that is seen for the first time.
    pub(crate) fn new(rate: Rate, now_ns: u64) -> Self {
        let limit = rate.limit().expect("strategies only make limits that can be enforced");
        Self { rate, limit, tat_q8: gcra::time_q8(now_ns), precise_ns: now_ns }
    }

    /// What the kernel does with one packet, on one CPU.
    pub(crate) fn ask(&mut self, now_ns: u64, amount: u64) -> bool {
        let charge = gcra::charge_q8(&self.limit, amount);
        self.precise_ns = self.precise_ns.max(now_ns);
        match gcra::take(self.tat_q8, &self.limit, gcra::time_q8(now_ns), charge) {
            GcraOutcome::Conforms { tat_q8 } => {
                self.tat_q8 = tat_q8;
                true
            }
            GcraOutcome::Refused => {
                let tolerance_q8 = self.limit.tolerance_q8;
                self.tat_q8 =
                    gcra::settled_q8(self.tat_q8, tolerance_q8, tolerance_q8, gcra::time_q8(self.precise_ns));
                false
            }
        }
    }

    /// Nanoseconds from `now_ns` until `amount` conforms; 0 if it does now.
    pub(crate) fn wait_ns(&self, now_ns: u64, amount: u64) -> u64 {
        let ahead = self.tat_q8.wrapping_sub(gcra::time_q8(now_ns));
        let ahead = if ahead >= 1 << 63 { 0 } else { ahead };
        let after = ahead + gcra::charge_q8(&self.limit, amount);
        after.saturating_sub(self.limit.tolerance_q8).div_ceil(1 << TIME_FRAC_BITS)
    }

    /// Spends the bucket at one moment, in ones, and says how much was in it.
    pub(crate) fn drain(&mut self, now_ns: u64) -> u64 {
        let mut drained = 0;
        let mut step = if self.rate.meter == Meter::Bytes { MAX_AMOUNT } else { 1 };
        while step > 0 {
            while self.ask(now_ns, step) {
                drained += step;
                assert!(drained <= self.rate.burst, "more than the burst at one moment: {self:?}");
            }
            step /= 2;
        }
        drained
    }

    /// The ideal limiter's answer for one interval, as a fraction: burst + W x rate = this / period.
    pub(crate) fn ideal_times_period(&self, interval_ns: u64) -> u128 {
        u128::from(self.rate.burst) * u128::from(self.rate.period.ns())
            + u128::from(interval_ns) * u128::from(self.rate.amount)
    }
}

/// Whether every interval between two admitted calls holds at most burst + interval x rate. Exact.
///
/// With prefix sums P over the calls in order of time, the claim is P[j] - P[i-1] <= burst + (t[j] - t[i]) x rate
/// for all i <= j: one pass that remembers the smallest P[i-1] - t[i] x rate.
pub(crate) fn assert_bound(rate: &Rate, admitted: &[Admitted]) -> Result<(), TestCaseError> {
    let mut calls = admitted.to_vec();
    calls.sort_by_key(|call| call.now_ns);
    let Some(first) = calls.first().copied() else { return Ok(()) };
    let period = i128::from(rate.period.ns());
    let (mut sum, mut lowest) = (0_i128, i128::MAX);
    for call in &calls {
        let refilled = i128::from(call.now_ns - first.now_ns) * i128::from(rate.amount);
        lowest = lowest.min(sum * period - refilled);
        sum += i128::from(call.amount);
        let above = sum * period - refilled - lowest - i128::from(rate.burst) * period;
        prop_assert!(above <= 0, "{} admits {}/{} units too much by {:?}", rate, above, period, call);
    }
    Ok(())
}

/// A number of any magnitude up to `max`: uniform in its logarithm, so that small ones occur.
pub(crate) fn magnitude(max: u64) -> impl Strategy<Value = u64> {
    (0..max.ilog2() + 1, any::<u64>())
        .prop_map(move |(bits, raw)| ((1 << bits) | (raw & ((1 << bits) - 1))).min(max).max(1))
}

pub(crate) fn period() -> impl Strategy<Value = Period> {
    prop::sample::select(&[Period::Second, Period::Minute, Period::Hour, Period::Day][..])
}

/// Rates in `meter` up to `max_per_sec`, from 1/day (for bytes: from what can be enforced), with any burst.
pub(crate) fn rate_of(meter: Meter, max_per_sec: u64, max_burst: u64) -> impl Strategy<Value = Rate> {
    (period(), magnitude(1 << 62), magnitude(max_burst), any::<bool>())
        .prop_map(move |(period, amount, burst, nice)| {
            let max = max_per_sec * (period.ns() / 1_000_000_000);
            // Half of the amounts are ones that people type: those divide a second without a remainder.
            let amount = 1 + (amount - 1) % max;
            let amount = if nice { 10_u64.pow(amount.ilog10()) } else { amount };
            let burst = if meter == Meter::Bytes { FULL_FRAME + burst } else { burst };
            Rate { meter, amount, period, burst, manner: Manner::PLAIN, units: Rate::UNTYPED }
        })
        .prop_filter("cannot be enforced", |rate| rate.limit().is_ok())
}

/// Limits in packets or SYNs, 1/day to 100 M/s.
pub(crate) fn count_rate(max_burst: u64) -> impl Strategy<Value = Rate> {
    prop::sample::select(&[Meter::Packets, Meter::Syns][..])
        .prop_flat_map(move |meter| rate_of(meter, MAX_COUNT_PER_SEC, max_burst))
}

/// Limits in bytes, up to 100 GB/s.
pub(crate) fn byte_rate(max_burst: u64) -> impl Strategy<Value = Rate> {
    rate_of(Meter::Bytes, MAX_BYTES_PER_SEC, max_burst)
}

/// Limits of all kinds.
pub(crate) fn any_rate(max_burst: u64) -> impl Strategy<Value = Rate> {
    prop_oneof![count_rate(max_burst), byte_rate(max_burst)]
}

/// When the next call comes, in terms that mean something to the bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// At the same moment.
    Same,
    /// So many ns later.
    Ns(u64),
    /// When the call would just conform, give or take a nanosecond.
    Edge(i8),
    /// After this part (of 256) of the time the bucket takes to fill.
    Fill(u8),
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Same),
        1 => magnitude(1 << 40).prop_map(Step::Ns),
        4 => (-1_i8..=1).prop_map(Step::Edge),
        1 => any::<u8>().prop_map(Step::Fill),
    ]
}

impl Step {
    /// Nanoseconds until the next call, which asks for `amount`.
    pub(crate) fn ns(self, bucket: &Bucket, now_ns: u64, amount: u64) -> u64 {
        match self {
            Self::Same => 0,
            Self::Ns(ns) => ns,
            Self::Edge(offset) => bucket.wait_ns(now_ns, amount).saturating_add_signed(i64::from(offset)),
            Self::Fill(part) => (bucket.limit.tolerance_q8 >> (TIME_FRAC_BITS + 8)) * u64::from(part),
        }
    }
}

/// Calls on one source.
pub(crate) fn schedule(len: usize) -> impl Strategy<Value = Vec<(Step, u64)>> {
    prop::collection::vec((step(), magnitude(MAX_AMOUNT)), 1..len)
}

/// What one call asks for: counts go by ones.
pub(crate) fn amount(rate: &Rate, raw: u64) -> u64 {
    if rate.meter == Meter::Bytes { raw } else { 1 }
}
