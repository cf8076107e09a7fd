//! Numbers that many threads add to at once: each thread has a line of the processor's cache to itself, and readers add up all lines.

use std::{
    array,
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// Lines of a set of numbers. More threads than that share lines.
const LINES: usize = 16;

/// `N` numbers that many threads add to at once, each thread on a cache line of its own.
#[derive(Debug)]
pub struct Striped<const N: usize> {
    lines: [StripedLine<N>; LINES],
}

#[derive(Debug)]
#[repr(align(64))]
struct StripedLine<const N: usize>([AtomicU64; N]);

thread_local! {
    /// The line that this thread adds to.
    static LINE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % LINES)
    };
}

impl<const N: usize> Default for Striped<N> {
    fn default() -> Self {
        Self { lines: array::from_fn(|_| StripedLine(array::from_fn(|_| AtomicU64::new(0)))) }
    }
}

impl<const N: usize> Striped<N> {
    /// Adds `units` to number `at`.
    pub fn add(&self, at: usize, units: u64) {
        self.lines[LINE.get()].0[at].fetch_add(units, Ordering::Relaxed);
    }

    /// Returns number `at`.
    pub fn sum(&self, at: usize) -> u64 {
        self.lines.iter().map(|line| line.0[at].load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_threads_add_adds_up() {
        let numbers = Striped::<2>::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * LINES {
                scope.spawn(|| {
                    for _ in 0..100 {
                        numbers.add(0, 1);
                        numbers.add(1, 3);
                    }
                });
            }
        });
        assert_eq!((numbers.sum(0), numbers.sum(1)), (200 * LINES as u64, 600 * LINES as u64));
    }
}
