//! How far the clock by which limits count was behind, at every moment of a soak.
//!
//! Limits count by the kernel's coarse clock, which moves with the tick of one CPU. Where that CPU stands still, because the machine's host has none for it, the clock does so too,
//! and then gives what it is behind at once ([decision 6](../../../docs/decisions/0006-gate.md), "The clock"). How late it is, is read and not guessed: threads on all CPUs look
//! at it, and what it said at the last look before a packet is what it said at least when the packet was judged.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use super::sender::Signal;
use crate::cpus;

/// Between two looks of a CPU: half a tick.
const EVERY: Duration = Duration::from_millis(2);

/// The threads that look at the coarse clock.
#[derive(Debug)]
pub(super) struct TickWatch {
    seen: Arc<Mutex<Ticks>>,
}

/// What the coarse clock said at which moments of the precise one, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticks(Vec<(i64, i64)>);

impl TickWatch {
    pub(super) fn start(signal: &Arc<Signal>) -> Self {
        let seen = Arc::new(Mutex::new(Ticks::default()));
        for cpu in cpus::of_process() {
            let (seen, signal) = (Arc::clone(&seen), Arc::clone(signal));
            thread::spawn(move || {
                cpus::stay_on(cpu);
                while !signal.is_over() {
                    // In this order: at the later moment the coarse clock says at least that.
                    let says_ns = ns(ClockId::MonotonicCoarse);
                    let at_ns = ns(ClockId::Monotonic);
                    seen.lock().unwrap_or_else(PoisonError::into_inner).add(at_ns, says_ns);
                    thread::sleep(EVERY);
                }
            });
        }
        Self { seen }
    }

    /// Everything since the last time, while nobody sends.
    pub(super) fn take(&self) -> Ticks {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // The next packet comes after the last look of now.
        let last = seen.0.last().copied();
        std::mem::replace(&mut *seen, Ticks(last.into_iter().collect()))
    }
}

impl Ticks {
    /// A look, unless another CPU has seen as much and no later.
    fn add(&mut self, at_ns: i64, says_ns: i64) {
        if self.0.last().is_none_or(|(last_ns, said_ns)| says_ns > *said_ns && at_ns >= *last_ns) {
            self.0.push((at_ns, says_ns));
        }
    }

    /// What the coarse clock said at least at a moment of the precise one.
    pub(super) fn at_least_ns(&self, at_ns: i64) -> i64 {
        let before = self.0.partition_point(|(seen_ns, _)| *seen_ns <= at_ns);
        let last = before.checked_sub(1).and_then(|before| self.0.get(before));
        last.map_or(at_ns, |(_, says_ns)| (*says_ns).min(at_ns))
    }
}

impl FromIterator<(i64, i64)> for Ticks {
    fn from_iter<T: IntoIterator<Item = (i64, i64)>>(looks: T) -> Self {
        let mut ticks = Self::default();
        looks.into_iter().for_each(|(at_ns, says_ns)| ticks.add(at_ns, says_ns));
        ticks
    }
}

fn ns(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_what_was_seen_last_before_it() {
        // One CPU looks late at what another has seen already.
        let ticks: Ticks = [(10, 8), (14, 12), (15, 8), (16, 12), (500, 496)].into_iter().collect();
        for (at, expected) in [(9, 9), (10, 8), (13, 8), (14, 12), (499, 12), (500, 496), (900, 496)] {
            assert_eq!(ticks.at_least_ns(at), expected, "{at}");
        }
    }

    #[test]
    fn the_coarse_clock_is_behind_the_precise_one_and_not_by_much() {
        let signal = Arc::new(Signal::default());
        let watch = TickWatch::start(&signal);
        let begun = ns(ClockId::Monotonic);
        let ticks = loop {
            let ticks = watch.seen.lock().unwrap().clone();
            if ticks.0.len() > 20 {
                break ticks;
            }
            thread::sleep(EVERY);
        };
        signal.end();
        assert!(ticks.0.iter().all(|(at_ns, says_ns)| says_ns <= at_ns), "{ticks:?}");
        // Twenty ticks are 80 ms, or 200 ms where there are a hundred per second.
        assert!(ticks.0.iter().any(|(at_ns, says_ns)| at_ns - says_ns < 30_000_000), "{begun} {ticks:?}");
    }
}
