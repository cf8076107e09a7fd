//! What is left of the limits of sources, users and services in a view.

use serde::{Deserialize, Serialize};

/// What is left of one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitLeft {
    /// The owner of the limit: `source`, `service` (for each of its sources), `user`, or `total`.
    pub whose: String,
    /// The limit as typed.
    pub limit: String,
    /// Units that would be admitted now.
    pub left: u64,
    /// Units that would be admitted when the bucket is full.
    pub capacity: u64,
    /// What is left, in percent of the capacity; 0 only if nothing is left.
    pub left_percent: u64,
    /// Units of `left` that this host holds by a lease, for a limit that holds on all hosts together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased: Option<u64>,
    /// The part of a leased limit that was spent on this host lately, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<u64>,
}

impl LimitLeft {
    /// The state of a limit that is not leased.
    pub fn new(whose: &str, limit: String, left: u64, capacity: u64) -> Self {
        let percent = u128::from(left) * 100 / u128::from(capacity.max(1));
        // A limit with a little left does not show as 0 percent.
        let left_percent = if left > 0 { percent.clamp(1, 100) as u64 } else { 0 };
        Self {
            whose: whose.to_owned(),
            limit,
            left,
            capacity,
            left_percent,
            leased: None,
            share_percent: None,
        }
    }

    /// The limit with the smallest part left: the one that will refuse first.
    pub fn tightest(limits: &[Self]) -> Option<&Self> {
        limits.iter().min_by_key(|limit| limit.left_percent)
    }
}

/// A host of the cluster, as far as this host has heard of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterHost {
    /// The name of the host.
    pub host: String,
    /// `here`, `late` or `away`.
    pub state: String,
    /// How many milliseconds ago the host was last heard of.
    pub seen_ms_ago: u64,
    /// Changes of blocks that the host has not heard of yet.
    pub behind: u64,
    /// Limits that the host holds leases of.
    pub leases: u64,
    /// Round trip of the host's last call to the store, in microseconds.
    pub round_trip_us: u64,
    /// Version of the host's program.
    pub program: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_is_never_nothing_and_the_smallest_part_is_the_tightest() {
        let limit = |left, capacity| LimitLeft::new("source", "10 packets/s".to_owned(), left, capacity);
        let percents = [(0, 10), (1, 1_000), (999, 1_000), (10, 10), (11, 10), (0, 0)]
            .map(|(left, capacity)| limit(left, capacity).left_percent);
        assert_eq!(percents, [0, 1, 99, 100, 100, 0]);
        let limits = [limit(50, 1_000), limit(2, 10)];
        assert_eq!(LimitLeft::tightest(&limits), Some(&limits[0]), "twenty percent are more than five");
        assert_eq!(LimitLeft::tightest(&[]), None);
    }
}
