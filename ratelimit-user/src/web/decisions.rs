//! Decisions about requests as rates: from counts that only grow to what the last seconds brought.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;

use crate::requests::status::{DecisionCount, DecisionTimes, RequestsStatus};

/// The number of seconds whose decisions latencies are of: one second has too few decisions on a quiet host.
const LATENCY_SECONDS: usize = 10;
/// Outcomes of requests that are not served.
const REFUSED: &str = "refused";

/// What was decided per second, and how long that took.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DecisionRates {
    /// Decisions per second.
    pub per_second: f64,
    /// Requests that were refused per second.
    pub refused_per_second: f64,
    /// Decisions by API and outcome, as far as they ever occurred.
    pub apis: Vec<ApiRate>,
    /// Half of the decisions of the last seconds took at most this many microseconds; absent if there were none, or if it was longer than is counted.
    pub p50_us: Option<u64>,
    /// 99 of 100 decisions of the last seconds took at most this many microseconds; absent if there were none, or if it was longer than is counted.
    pub p99_us: Option<u64>,
    /// The number of decisions that `p50_us` and `p99_us` are of.
    pub timed: u64,
    /// Keys that are remembered.
    pub keys: u64,
    /// Keys that had to make way.
    pub evicted: u64,
    /// Whether the store that counts for all hosts answers; absent without one.
    pub store_up: Option<bool>,
}

/// Decisions of one API.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApiRate {
    /// The name of the API.
    pub api: String,
    /// Decisions of the API per second.
    pub per_second: f64,
    /// Requests that were refused per second.
    pub refused_per_second: f64,
    /// Decisions of the API since the start.
    pub total: u64,
    /// Requests of the API that were refused since the start.
    pub refused: u64,
}

/// The counts of earlier calls.
#[derive(Debug, Default)]
pub struct DecisionHistory {
    before: Option<RequestsStatus>,
    times: VecDeque<DecisionTimes>,
}

impl DecisionHistory {
    /// Returns the rates since the last call, which was `span` ago.
    pub fn rates(&mut self, now: RequestsStatus, span: Duration) -> DecisionRates {
        let seconds = span.as_secs_f64().max(0.001);
        let mut rates = DecisionRates {
            keys: now.keys,
            evicted: now.evicted,
            store_up: now.store_up,
            ..DecisionRates::default()
        };
        for DecisionCount { api, outcome, decisions: count } in &now.decisions {
            let earlier = self.before.as_ref().map_or(*count, |before| {
                let same = before.decisions.iter().find(|one| one.api == *api && one.outcome == *outcome);
                // A new API has counted from 0 since the last call.
                same.map_or(0, |one| one.decisions)
            });
            let per_second = count.saturating_sub(earlier) as f64 / seconds;
            let refused = outcome == REFUSED;
            rates.per_second += per_second;
            rates.refused_per_second += if refused { per_second } else { 0.0 };
            let at = rates.apis.iter().position(|one| one.api == *api).unwrap_or_else(|| {
                let (per_second, refused_per_second) = (0.0, 0.0);
                rates.apis.push(ApiRate {
                    api: api.clone(),
                    per_second,
                    refused_per_second,
                    total: 0,
                    refused: 0,
                });
                rates.apis.len() - 1
            });
            let one = &mut rates.apis[at];
            one.per_second += per_second;
            one.total += count;
            if refused {
                one.refused_per_second += per_second;
                one.refused += count;
            }
        }
        let first = self.times.front().unwrap_or(&now.decision_times);
        let recent = since(first, &now.decision_times);
        rates.timed = recent.iter().map(|(_, count)| count).sum();
        rates.p50_us = at_most(&recent, 50);
        rates.p99_us = at_most(&recent, 99);
        self.times.push_back(now.decision_times.clone());
        if self.times.len() > LATENCY_SECONDS {
            self.times.pop_front();
        }
        self.before = Some(now);
        rates
    }
}

/// Returns the decisions between two counts, by the longest time that they took, in microseconds.
fn since(before: &DecisionTimes, now: &DecisionTimes) -> Vec<(Option<u64>, u64)> {
    let count = |(at, one): (usize, &crate::requests::status::TimeCount)| {
        let earlier = before.counts.get(at).map_or(0, |count| count.decisions);
        (one.at_most_us, one.decisions.saturating_sub(earlier))
    };
    now.counts.iter().enumerate().map(count).collect()
}

/// Returns the longest time, in microseconds, of the fastest `percent` of a hundred decisions.
fn at_most(counts: &[(Option<u64>, u64)], percent: u64) -> Option<u64> {
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    let wanted = (all * percent).div_ceil(100);
    let mut seen = 0;
    let mut reached = counts.iter().skip_while(|(_, count)| {
        seen += count;
        seen < wanted
    });
    reached.next().filter(|_| all > 0)?.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::status::TimeCount;

    fn status(decisions: &[(&str, &str, u64)], times: [u64; 3]) -> RequestsStatus {
        let count = |(at_most_us, decisions)| TimeCount { at_most_us, decisions };
        RequestsStatus {
            decisions: decisions
                .iter()
                .map(|(api, outcome, n)| DecisionCount {
                    api: (*api).into(),
                    outcome: (*outcome).into(),
                    decisions: *n,
                })
                .collect(),
            decision_times: DecisionTimes {
                counts: [Some(10), Some(100), None].into_iter().zip(times).map(count).collect(),
                total_us: 0,
            },
            ..RequestsStatus::default()
        }
    }

    #[test]
    fn rates_are_what_came_since_the_last_look_and_the_first_look_has_none() {
        let mut history = DecisionHistory::default();
        let before = status(&[("a", "allowed", 100), ("a", "refused", 7)], [100, 0, 0]);
        let first = history.rates(before, Duration::from_secs(1));
        assert_eq!((first.per_second, first.timed, first.p50_us), (0.0, 0, None));
        assert_eq!((first.apis[0].total, first.apis[0].refused), (107, 7));
        let now = status(&[("a", "allowed", 120), ("a", "refused", 17), ("b", "refused", 4)], [198, 1, 1]);
        let second = history.rates(now, Duration::from_secs(2));
        assert_eq!((second.per_second, second.refused_per_second), (17.0, 7.0));
        assert_eq!((second.apis[1].api.as_str(), second.apis[1].per_second), ("b", 2.0));
        assert_eq!((second.timed, second.p50_us, second.p99_us), (100, Some(10), Some(100)));
    }

    #[test]
    fn a_service_that_counts_from_nothing_again_has_no_rates_below_nothing() {
        let mut history = DecisionHistory::default();
        history.rates(status(&[("a", "allowed", 100)], [100, 0, 0]), Duration::from_secs(1));
        let after = history.rates(status(&[("a", "allowed", 3)], [3, 0, 0]), Duration::from_secs(1));
        assert_eq!((after.per_second, after.timed, after.p99_us), (0.0, 0, None));
    }

    #[test]
    fn a_decision_that_took_longer_than_is_counted_is_not_told_as_fast() {
        let counts = [(Some(10), 50), (Some(100), 0), (None, 50)];
        assert_eq!((at_most(&counts, 50), at_most(&counts, 99)), (Some(10), None));
        assert_eq!(at_most(&[], 50), None);
    }
}
