//! What the service is to reach, as ratios within one run; memory in megabytes.

use serde::Serialize;

use super::comparison::Comparison;
use crate::spread::Spread;

pub(super) const OURS: &str = "ours";
/// The same server, asked by the names of a user and an API.
pub(super) const OURS_CHECK: &str = "ours-check";
/// The same with leases from Redis.
pub(super) const OURS_LEASE: &str = "ours-lease";
pub(super) const NGINX_LIMIT: &str = "nginx-limit";
pub(super) const THROTTLECRAB: &str = "throttlecrab";

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

struct Target {
    comparison: &'static str,
    contestant: &'static str,
    /// None: the value itself.
    against: Option<&'static str>,
    wanted: Wanted,
}

const fn at_least(
    comparison: &'static str,
    contestant: &'static str,
    against: &'static str,
    ratio: f64,
) -> Target {
    Target { comparison, contestant, against: Some(against), wanted: Wanted::AtLeast(ratio) }
}

const fn megabytes(contestant: &'static str, most: f64) -> Target {
    Target { comparison: "memory", contestant, against: None, wanted: Wanted::AtMost(most) }
}

const ALL: [Target; 21] = [
    at_least("resp-1", OURS, "redis-ping", 1.0),
    at_least("resp-1", OURS_CHECK, "redis-ping", 1.0),
    at_least("resp-1", OURS, THROTTLECRAB, 1.0),
    at_least("resp-1", OURS_CHECK, THROTTLECRAB, 1.0),
    at_least("resp-16", OURS, "redis-ping", 0.6),
    at_least("resp-16", OURS_CHECK, "redis-ping", 0.6),
    at_least("resp-16", OURS, "redis-incr", 1.0),
    at_least("resp-16", OURS_CHECK, "redis-incr", 1.0),
    at_least("resp-16", OURS, "redis-gcra", 6.0),
    at_least("resp-16", OURS_CHECK, "redis-gcra", 6.0),
    at_least("http", OURS, THROTTLECRAB, 1.2),
    at_least("http", OURS, NGINX_LIMIT, 0.85),
    at_least("grpc", OURS, "limitador", 2.0),
    at_least("grpc", OURS, THROTTLECRAB, 1.3),
    at_least("library", OURS, "governor", 1.0),
    Target {
        comparison: "latency",
        contestant: OURS,
        against: Some(THROTTLECRAB),
        wanted: Wanted::AtMost(1.0),
    },
    at_least("lease", OURS_LEASE, OURS, 0.9),
    at_least("lease-killed", OURS_LEASE, OURS, 0.9),
    megabytes("counter", 36.0),
    megabytes("bucket", 48.0),
    megabytes("sub-windows", 600.0),
];

/// What came of a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Reached {
    pub(super) comparison: &'static str,
    pub(super) contestant: &'static str,
    pub(super) against: Option<&'static str>,
    pub(super) wanted: Wanted,
    /// None: one of the two did not take part.
    pub(super) measured: Option<Spread>,
    pub(super) met: Option<bool>,
}

/// Every target of the comparisons that this run has.
pub(super) fn judge(comparisons: &[Comparison]) -> Vec<Reached> {
    ALL.iter()
        .filter_map(|target| {
            let comparison = comparisons.iter().find(|one| one.name == target.comparison)?;
            let measured = match target.against {
                Some(against) => comparison.ratio(target.contestant, against),
                None => comparison.cell(target.contestant).and_then(|cell| Spread::of(&cell.rounds)),
            };
            let met = measured.map(|spread| target.wanted.is_met_by(spread.median));
            let Target { comparison, contestant, against, wanted } = *target;
            Some(Reached { comparison, contestant, against, wanted, measured, met })
        })
        .collect()
}

impl Wanted {
    fn is_met_by(self, measured: f64) -> bool {
        match self {
            Self::AtLeast(bound) => measured >= bound,
            Self::AtMost(bound) => measured <= bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::{
        comparison::{Cell, Unit},
        entrant::Sample,
    };

    fn comparison(name: &'static str, cells: &[(&'static str, [f64; 3])]) -> Comparison {
        let mut comparison = Comparison::new(name, name, Unit::DecisionsPerSecond);
        for (contestant, values) in cells {
            let mut cell = Cell::new(contestant, contestant);
            values.iter().for_each(|value| cell.add(Sample { value: *value, p99_ms: None }));
            comparison.cells.push(cell);
        }
        comparison
    }

    fn told(comparisons: &[Comparison]) -> Vec<(Option<&'static str>, Option<f64>, Option<bool>)> {
        let told = |one: &Reached| (one.against, one.measured.map(|spread| spread.median), one.met);
        judge(comparisons).iter().map(told).collect()
    }

    #[test]
    fn a_target_is_judged_by_the_median_of_ratios_within_a_round() {
        let http = comparison(
            "http",
            &[(OURS, [12.0, 6.0, 12.0]), (THROTTLECRAB, [10.0, 5.0, 1.0]), (NGINX_LIMIT, [15.0, 7.5, 15.0])],
        );
        assert_eq!(
            told(&[http]),
            [(Some(THROTTLECRAB), Some(1.2), Some(true)), (Some(NGINX_LIMIT), Some(0.8), Some(false))]
        );
    }

    #[test]
    fn a_target_whose_peer_did_not_take_part_is_neither_met_nor_missed() {
        let library = comparison("library", &[(OURS, [1.0; 3])]);
        assert_eq!(told(&[library]), [(Some("governor"), None, None)]);
        assert!(told(&[]).is_empty());
    }

    #[test]
    fn latency_and_memory_are_the_better_the_smaller() {
        let latency = comparison("latency", &[(OURS, [90.0; 3]), (THROTTLECRAB, [100.0; 3])]);
        assert_eq!(told(&[latency]), [(Some(THROTTLECRAB), Some(0.9), Some(true))]);
        let memory = comparison("memory", &[("counter", [37.0; 3]), ("bucket", [48.0; 3])]);
        assert_eq!(
            told(&[memory]),
            [(None, Some(37.0), Some(false)), (None, Some(48.0), Some(true)), (None, None, None)]
        );
    }
}
