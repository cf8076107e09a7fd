//! A source to ask, random limits and schedules for it, and the log to hold its answers against.

use std::cell::RefCell;
use std::collections::HashMap;

use proptest::prelude::*;
use ratelimit_common::abi::Meter;
use ratelimit_common::limit::manner::Manner;
use ratelimit_common::limit::rate::{FULL_FRAME, Period, Rate};
use ratelimit_common::limit::window::sliding::{self, Words};
use ratelimit_common::limit::window::{Window, WindowOutcome, fixed, weighted};

/// The algorithms, with some numbers of sub-windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Fixed,
    Weighted,
    Sliding2,
    Sliding8,
    Sliding60,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Fixed, Self::Weighted, Self::Sliding2, Self::Sliding8, Self::Sliding60];

    pub(crate) fn window(self, rate: &Rate) -> Window {
        match self {
            Self::Fixed => Window::fixed(rate),
            Self::Weighted => Window::weighted(rate),
            Self::Sliding2 => Window::sliding::<2>(rate),
            Self::Sliding8 => Window::sliding::<8>(rate),
            Self::Sliding60 => Window::sliding::<60>(rate),
        }
        .expect("strategies only make limits that can be counted")
    }

    /// Words of one source.
    pub(crate) fn words(self) -> u64 {
        match self {
            Self::Fixed | Self::Weighted => 1,
            Self::Sliding2 => 2,
            Self::Sliding8 => 8,
            Self::Sliding60 => 60,
        }
    }

    /// What a host does with one packet: whether it was admitted.
    pub(crate) fn ask(self, words: &impl Words, window: &Window, now_ns: u64, amount: u64) -> bool {
        match self {
            Self::Fixed => ask_word(words, |word| fixed::take(word, window, now_ns, amount)),
            Self::Weighted => ask_word(words, |word| weighted::take(word, window, now_ns, amount)),
            Self::Sliding2 => sliding::take::<2>(words, window, now_ns, amount).is_ok(),
            Self::Sliding8 => sliding::take::<8>(words, window, now_ns, amount).is_ok(),
            Self::Sliding60 => sliding::take::<60>(words, window, now_ns, amount).is_ok(),
        }
    }
}

/// One word, moved by compare-and-exchange.
fn ask_word(words: &impl Words, take: impl Fn(u64) -> WindowOutcome) -> bool {
    let mut seen = words.load(0);
    for _ in 0..sliding::ATTEMPTS {
        let WindowOutcome::Conforms { word } = take(seen) else { return false };
        match words.compare_exchange(0, seen, word) {
            Ok(()) => return true,
            Err(found) => seen = found,
        }
    }
    false
}

/// Words of one CPU's own.
pub(crate) struct Memory(RefCell<Vec<u64>>);

impl Words for Memory {
    fn load(&self, slot: usize) -> u64 {
        self.0.borrow()[slot]
    }

    fn compare_exchange(&self, slot: usize, seen: u64, new: u64) -> Result<(), u64> {
        let word = &mut self.0.borrow_mut()[slot];
        if *word != seen {
            return Err(*word);
        }
        *word = new;
        Ok(())
    }
}

/// A limit and one source's words.
pub(crate) struct Source {
    pub(crate) kind: Kind,
    pub(crate) rate: Rate,
    pub(crate) window: Window,
    pub(crate) memory: Memory,
}

impl Source {
    /// A source that is seen for the first time.
    pub(crate) fn new(kind: Kind, rate: Rate) -> Self {
        let memory = Memory(RefCell::new(vec![0; kind.words() as usize]));
        Self { kind, rate, window: kind.window(&rate), memory }
    }

    pub(crate) fn ask(&self, now_ns: u64, amount: u64) -> bool {
        self.kind.ask(&self.memory, &self.window, now_ns, amount)
    }

    /// Spends what there is at one moment, and says how much it was.
    pub(crate) fn drain(&self, now_ns: u64) -> u64 {
        let unit = 1 << self.window.shift;
        let mut drained = 0;
        let mut step = self.window.limit;
        while step > 0 {
            while self.ask(now_ns, step * unit) {
                drained += step * unit;
                assert!(
                    drained <= self.rate.amount,
                    "{:?} {}: {drained} at one moment",
                    self.kind,
                    self.rate
                );
            }
            step /= 2;
        }
        drained
    }
}

/// One packet or frame that was admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    pub(crate) now_ns: u64,
    pub(crate) amount: u64,
}

/// The most that any closed interval of `length_ns` holds.
pub(crate) fn most_within(admitted: &[Admitted], length_ns: u64) -> u128 {
    let mut calls = admitted.to_vec();
    calls.sort_by_key(|call| call.now_ns);
    let (mut first, mut sum, mut most) = (0, 0_u128, 0);
    for call in &calls {
        sum += u128::from(call.amount);
        while call.now_ns - calls[first].now_ns > length_ns {
            sum -= u128::from(calls[first].amount);
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

/// Everything that the algorithm promises from above.
pub(crate) fn assert_bound(kind: Kind, rate: &Rate, admitted: &[Admitted]) -> Result<(), TestCaseError> {
    let length_ns = rate.period.ns();
    let limit = u128::from(rate.amount);
    match kind {
        Kind::Fixed => {
            assert_aligned(rate, admitted)?;
            // A closed interval would be one nanosecond longer than a window.
            prop_assert!(most_within(admitted, length_ns - 1) <= 2 * limit, "{}: over 2 x", rate);
        }
        Kind::Weighted => {
            assert_aligned(rate, admitted)?;
            assert_estimate(rate, admitted)?;
            prop_assert!(most_within(admitted, length_ns - 1) < 2 * limit, "{}: 2 x or more", rate);
        }
        Kind::Sliding2 | Kind::Sliding8 | Kind::Sliding60 => {
            let most = most_within(admitted, length_ns);
            prop_assert!(most <= limit, "{:?} {}: {} in one window: {:?}", kind, rate, most, admitted);
        }
    }
    Ok(())
}

fn per_window(rate: &Rate, admitted: &[Admitted]) -> HashMap<u64, u128> {
    let mut sums = HashMap::new();
    for call in admitted {
        *sums.entry(call.now_ns / rate.period.ns()).or_insert(0) += u128::from(call.amount);
    }
    sums
}

fn assert_aligned(rate: &Rate, admitted: &[Admitted]) -> Result<(), TestCaseError> {
    for (index, sum) in per_window(rate, admitted) {
        prop_assert!(sum <= u128::from(rate.amount), "{}: {} in window {}", rate, sum, index);
    }
    Ok(())
}

/// At every moment: this window so far, and the part of the previous one that remains, are at most the limit.
fn assert_estimate(rate: &Rate, admitted: &[Admitted]) -> Result<(), TestCaseError> {
    let sums = per_window(rate, admitted);
    let length_ns = rate.period.ns();
    let mut calls = admitted.to_vec();
    calls.sort_by_key(|call| call.now_ns);
    let (mut index, mut current) = (u64::MAX, 0);
    for call in &calls {
        if call.now_ns / length_ns != index {
            (index, current) = (call.now_ns / length_ns, 0);
        }
        current += u128::from(call.amount);
        let previous = index.checked_sub(1).and_then(|index| sums.get(&index)).copied().unwrap_or(0);
        let remaining_ns = length_ns - call.now_ns % length_ns;
        let estimate = current * u128::from(length_ns) + previous * u128::from(remaining_ns);
        prop_assert!(estimate <= u128::from(rate.amount) * u128::from(length_ns), "{}: at {:?}", rate, call);
    }
    Ok(())
}

/// A number of any magnitude up to `max`: uniform in its logarithm, so that small ones occur.
pub(crate) fn magnitude(max: u64) -> impl Strategy<Value = u64> {
    (0..max.ilog2() + 1, any::<u64>())
        .prop_map(move |(bits, raw)| ((1 << bits) | (raw & ((1 << bits) - 1))).min(max).max(1))
}

pub(crate) fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(&Kind::ALL[..])
}

pub(crate) fn period() -> impl Strategy<Value = Period> {
    prop::sample::select(&[Period::Second, Period::Minute, Period::Hour, Period::Day][..])
}

/// Limits of all kinds that a window can count.
pub(crate) fn rate() -> impl Strategy<Value = Rate> {
    let counts = prop_oneof![magnitude(50), magnitude((1 << 43) - 1)];
    let bytes = prop_oneof![magnitude(1 << 20), magnitude(((1 << 43) - 1) << 6)];
    prop_oneof![
        (counts, period()).prop_map(|(amount, period)| Rate {
            meter: Meter::Packets,
            amount,
            period,
            burst: 1,
            manner: Manner::PLAIN,
            units: Rate::UNTYPED,
        }),
        (bytes, period()).prop_map(|(amount, period)| {
            Rate {
                meter: Meter::Bytes,
                amount: amount.max(FULL_FRAME),
                period,
                burst: 1,
                manner: Manner::PLAIN,
                units: Rate::UNTYPED,
            }
        }),
    ]
}

/// When the next call comes, in terms that mean something to a window.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// At the same moment.
    Same,
    /// So many ns later.
    Ns(u64),
    /// Round the next edge of a window or sub-window.
    Edge(i8),
    /// After this part (of 256) of the period.
    Part(u8),
    /// A whole period later, give or take.
    Period(i8),
    /// So many windows or sub-windows later, and a part of one.
    Windows(u64, u8),
}

impl Step {
    pub(crate) fn ns(self, source: &Source, now_ns: u64) -> u64 {
        let length_ns = source.window.length_ns;
        let period_ns = source.rate.period.ns();
        match self {
            Self::Same => 0,
            Self::Ns(ns) => ns,
            Self::Edge(offset) => (length_ns - now_ns % length_ns).saturating_add_signed(i64::from(offset)),
            Self::Part(part) => (period_ns >> 8) * u64::from(part),
            Self::Period(offset) => period_ns.saturating_add_signed(i64::from(offset)),
            Self::Windows(count, part) => {
                length_ns.saturating_mul(count).saturating_add((length_ns >> 8) * u64::from(part))
            }
        }
    }
}

pub(crate) fn step(max_windows: u64) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Same),
        2 => magnitude(1 << 30).prop_map(Step::Ns),
        6 => (-2_i8..=2).prop_map(Step::Edge),
        2 => any::<u8>().prop_map(Step::Part),
        2 => (-2_i8..=2).prop_map(Step::Period),
        1 => (magnitude(max_windows), any::<u8>()).prop_map(|(count, part)| Step::Windows(count, part)),
    ]
}

/// Calls on one source.
pub(crate) fn schedule(len: usize, max_windows: u64) -> impl Strategy<Value = Vec<(Step, u64)>> {
    prop::collection::vec((step(max_windows), any::<u64>()), 1..len)
}

/// What one call asks for: a few of them use up the limit.
pub(crate) fn amount(rate: &Rate, raw: u64) -> u64 {
    match raw % 8 {
        0 => 1,
        1 => rate.amount,
        2 => 1 + (raw >> 3) % rate.amount,
        _ => 1 + (raw >> 3) % (rate.amount / 3 + 1),
    }
}
