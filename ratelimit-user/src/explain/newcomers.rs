//! How many sources each CPU may still enter into the tables.

use ratelimit_common::{
    abi::Limit,
    limit::{gcra::Start, level::Level},
};

/// The budget for entries, and what the CPUs have used of it.
#[derive(Clone, Debug)]
pub(super) struct Newcomers<'p> {
    /// A bucket for each CPU.
    pub(super) words: Vec<u64>,
    pub(super) budget: &'p Limit,
    pub(super) now_q8: u64,
}

impl Newcomers<'_> {
    /// Nanoseconds until one of the CPUs that make entries may make one for a packet which takes `before` others first; 0 if one may now.
    pub(super) fn wait_ns(&self, before: u64) -> u64 {
        let charge_q8 = self.budget.cost_fp * (before + 1);
        let tolerance_q8 = self.budget.tolerance_q8;
        // A word of zero is a CPU that has never made one: most likely it is not there.
        let used = self.words.iter().filter(|word| **word != 0);
        let wait = |word: &u64| Level::of(*word, tolerance_q8, self.now_q8, Start::FULL).wait_ns(charge_q8);
        used.map(wait).min().unwrap_or_else(|| Level::full(tolerance_q8).wait_ns(charge_q8))
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_common::limit::{gcra::time_q8, text::parse_rate};

    use super::*;

    #[test]
    fn newcomers_wait_for_the_first_cpu_that_makes_entries_and_not_for_those_that_never_did() {
        let budget = &parse_rate("10 packets/s burst 2").unwrap().limit().unwrap();
        let now_q8 = time_q8(1 << 50);
        let spent = |ms: u64| now_q8 + time_q8(ms * 1_000_000);
        let wait_ms = |words: &[u64], before| {
            Newcomers { words: words.to_vec(), budget, now_q8 }.wait_ns(before) / 1_000_000
        };
        assert_eq!(wait_ms(&[0, 0], 0), 0);
        assert_eq!(wait_ms(&[spent(170), 0, spent(130)], 0), 30);
        assert_eq!(wait_ms(&[spent(170), now_q8 - 1], 0), 0);
        assert_eq!(wait_ms(&[spent(100)], 0), 0, "one is left");
        assert_eq!(wait_ms(&[spent(100)], 1), 100, "and it is taken");
        assert_eq!(wait_ms(&[0], 2), 100, "more than there ever are: those before it are there by then");
    }
}
