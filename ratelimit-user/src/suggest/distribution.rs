//! Distributions of the rates of sources.

use std::collections::BTreeMap;

use serde::Serialize;

/// Rates of sources, with the number of sources for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    sources: BTreeMap<u64, u64>,
    count: u64,
}

/// Quantiles of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// How many sources there are.
    pub sources: u64,
    /// Half of the sources have at most this rate.
    pub p50: u64,
    /// 99 of 100 sources have at most this rate.
    pub p99: u64,
    /// 999 of 1000 sources have at most this rate.
    pub p99_9: u64,
    /// The largest value.
    pub max: u64,
}

impl Distribution {
    /// Adds a source of this rate.
    pub fn add(&mut self, rate: u64) {
        *self.sources.entry(rate).or_insert(0) += 1;
        self.count += 1;
    }

    /// How many sources there are.
    pub fn sources(&self) -> u64 {
        self.count
    }

    /// The rate that this many of a thousand sources do not exceed: the rate of some source (nearest rank).
    pub fn quantile(&self, per_mille: u64) -> u64 {
        let rank = (self.count * per_mille).div_ceil(1000).max(1);
        let mut below = 0;
        for (rate, sources) in &self.sources {
            below += sources;
            if below >= rank {
                return *rate;
            }
        }
        0
    }

    /// The quantiles of the distribution.
    pub fn quantiles(&self) -> Quantiles {
        let [p50, p99, p99_9, max] = [500, 990, 999, 1000].map(|per_mille| self.quantile(per_mille));
        Quantiles { sources: self.count, p50, p99, p99_9, max }
    }

    /// The largest rate before the first gap above the median, and how many sources are beyond the gap. A gap is where the next source has
    /// at least `times` the rate.
    pub fn before_gap(&self, times: u64) -> (u64, u64) {
        let median = self.quantile(500);
        let mut last = median;
        for (rate, _) in self.sources.range(median..) {
            if *rate >= last.max(1).saturating_mul(times) {
                return (last, self.sources.range(*rate..).map(|(_, sources)| sources).sum());
            }
            last = *rate;
        }
        (last, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rates: impl IntoIterator<Item = u64>) -> Distribution {
        let mut all = Distribution::default();
        rates.into_iter().for_each(|rate| all.add(rate));
        all
    }

    #[test]
    fn quantiles_are_rates_that_sources_have() {
        let quantiles = of(1..=1000).quantiles();
        assert_eq!(quantiles, Quantiles { sources: 1000, p50: 500, p99: 990, p99_9: 999, max: 1000 });
        assert_eq!(of([7]).quantiles(), Quantiles { sources: 1, p50: 7, p99: 7, p99_9: 7, max: 7 });
        assert_eq!(of([]).quantiles(), Quantiles::default());
    }

    #[test]
    fn sources_beyond_a_gap_stand_out_and_a_slope_is_no_gap() {
        assert_eq!(of((1..=300).chain([20_000])).before_gap(10), (300, 1));
        assert_eq!(of([1, 5, 25, 125, 625]).before_gap(10), (625, 0));
        // Two floods among three normal sources.
        assert_eq!(of([3, 4, 5, 9_000, 9_100]).before_gap(10), (5, 2));
        assert_eq!(of([]).before_gap(10), (0, 0));
    }
}
