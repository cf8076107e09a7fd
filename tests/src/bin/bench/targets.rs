//! What the limiter is to reach, as ratios within one run; memory in megabytes.

use serde::Serialize;

use crate::{
    comparison::Comparison,
    cost::same_source::Together,
    honest::Honest,
    known::{self, Known},
    spread::Spread,
    table,
};

pub(crate) const OURS: &str = "ours";
/// The limiter with as many known clients as its filter has room for.
pub(crate) const OURS_KNOWN: &str = "ours-known";
/// The decision service, asked by the names of a user and an API.
pub(crate) const OURS_CHECK: &str = "ours-check";
/// The decision service with leases from Redis.
pub(crate) const OURS_LEASE: &str = "ours-lease";
pub(crate) const NGINX_LIMIT: &str = "nginx-limit";
pub(crate) const THROTTLECRAB: &str = "throttlecrab";

/// The bound of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

/// One promise about a contestant in a case.
#[derive(Clone, Copy)]
struct Target {
    case: &'static str,
    contestant: &'static str,
    /// `None`: the value itself is judged, and not a ratio.
    against: Option<&'static str>,
    wanted: Wanted,
}

const fn at_least(case: &'static str, contestant: &'static str, against: &'static str, ratio: f64) -> Target {
    Target { case, contestant, against: Some(against), wanted: Wanted::AtLeast(ratio) }
}

const fn at_most(
    case: &'static str,
    contestant: &'static str,
    against: Option<&'static str>,
    most: f64,
) -> Target {
    Target { case, contestant, against, wanted: Wanted::AtMost(most) }
}

const PACKETS: [Target; 13] = [
    at_least("1", OURS, "bare", 0.88),
    at_least("1-ipv6", OURS, "bare", 0.85),
    at_least("1-total", OURS, "bare", 0.80),
    at_least("1-near-total", OURS, "bare", 0.80),
    at_least("blocked", OURS, "bare", 0.80),
    at_least("65k", OURS, "bare", 0.75),
    at_least("1M", OURS, "bare", 0.75),
    at_least("spoofed", OURS, "bare", 0.82),
    at_least("ipv6", OURS, "bare", 0.82),
    at_least("heavy", OURS, "bare", 0.75),
    at_least("1M-heavy", OURS, "bare", 0.75),
    at_least("heavy", OURS, "ours-no-gate", 1.0),
    at_least("spoofed", OURS, "ours-no-gate", 5.0),
];
/// Others who limit packets.
const PEERS: [&str; 3] = ["nft", "iptables", "lru"];
/// How many times as fast as each of these peers the limiter is to be, in every case.
const TIMES_A_PEER: f64 = 6.0;

/// What connections that succeed are a share of.
const ATTEMPTED: &str = "attempted";
/// An honest client's goodput during a spoofed flood, against its goodput without one.
const GOODPUT: f64 = 0.5;
/// Connections that succeed during that flood: all.
const CONNECTIONS: f64 = 1.0;
/// New connections that succeed within three seconds during a SYN flood.
const DURING_SYN_FLOOD: f64 = 0.99;

/// What known clients get at a service with a total is a share of what they get at a port without a limit.
const WITHOUT_LIMIT: &str = "no limit";
/// What newcomers get is a share of what is kept for them.
const KEPT_FOR_THEM: &str = "their part";
/// What is added to a packet on a host without known clients, in nanoseconds: to a spoofed packet that is refused, on the wire and in the program, and to one that
/// passes in the program.
const EMPTY_FILTER: &str = "empty filter";
const ADDED_NS: [f64; 3] = [7.0, 5.0, 5.0];

const REQUESTS: [Target; 21] = [
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
    at_most("latency", OURS, Some(THROTTLECRAB), 1.0),
    at_least("lease", OURS_LEASE, OURS, 0.9),
    at_least("lease-killed", OURS_LEASE, OURS, 0.9),
    at_most("memory", "counter", None, 36.0),
    at_most("memory", "bucket", None, 48.0),
    at_most("memory", "sub-windows", None, 600.0),
];

/// What came of a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Reached {
    pub(crate) case: &'static str,
    pub(crate) contestant: &'static str,
    pub(crate) against: Option<&'static str>,
    pub(crate) wanted: Wanted,
    /// `None`: one of the two contestants was not measured.
    pub(crate) measured: Option<Spread>,
    pub(crate) met: Option<bool>,
}

/// Every target of packets that this run has the numbers for.
pub(crate) fn of_packets(
    one_core: &[Comparison],
    same_source: &[Together],
    honest: Option<&Honest>,
    known: Option<&Known>,
) -> Vec<Reached> {
    let against_peers =
        one_core.iter().flat_map(|case| PEERS.map(|peer| at_least(case.name, OURS, peer, TIMES_A_PEER)));
    let speed = PACKETS.into_iter().chain(against_peers).filter_map(|target| target.judged(one_core));
    let two_cpus = same_source.iter().filter_map(|row| {
        let target = at_least(row.what, OURS, "1 CPU", row.at_least?);
        Some(target.reached(Some(row.gain)))
    });
    let all = speed.chain(two_cpus).chain(honest.into_iter().flat_map(of_honest));
    let all = all.chain(known.into_iter().flat_map(of_known));
    all.filter(|one| one.measured.is_some()).collect()
}

/// Shares are of all attempts, not the median of rounds: one bad round of five is not to be forgotten here.
fn of_honest(honest: &Honest) -> [Reached; 3] {
    let (goodput, syn_flood) = (&honest.goodput, &honest.syn_flood);
    let connections = goodput.connections.share().map(Spread::exact);
    let during_syn_flood = syn_flood.connections.share().map(|share| {
        let rounds = Spread::of(&syn_flood.shares).unwrap_or(Spread::exact(share));
        Spread { median: share, ..rounds }
    });
    [
        at_least("goodput", OURS, "no flood", GOODPUT).reached(Some(goodput.ratio)),
        at_least("connections", OURS, ATTEMPTED, CONNECTIONS).reached(connections),
        at_least("syn flood", OURS, ATTEMPTED, DURING_SYN_FLOOD).reached(during_syn_flood),
    ]
}

fn of_known(known: &Known) -> impl Iterator<Item = Reached> {
    let clients = known.rows.iter().filter_map(|row| {
        Some(at_least(row.name, OURS, WITHOUT_LIMIT, row.wanted?).reached(Some(row.share())))
    });
    let newcomers = known.rows.iter().filter_map(|row| {
        let kept = f64::from(row.total_per_second) * known::NEWCOMERS;
        Some(Spread::exact(row.newcomers_per_second?.median / kept))
    });
    let least = newcomers.min_by(|one, other| one.median.total_cmp(&other.median));
    let newcomers = at_least("newcomers", OURS, KEPT_FOR_THEM, 1.0).reached(least);
    let costs = known.costs.iter().zip(ADDED_NS).map(|(cost, most)| {
        at_most(cost.name, OURS_KNOWN, Some(EMPTY_FILTER), most).reached(Some(cost.added_ns))
    });
    clients.chain([newcomers]).chain(costs)
}

/// Every target of the comparisons of requests that this run has.
pub(crate) fn of_requests(comparisons: &[Comparison]) -> Vec<Reached> {
    REQUESTS.iter().filter_map(|target| target.judged(comparisons)).collect()
}

impl Target {
    /// `None` if the run did not have the case.
    fn judged(self, comparisons: &[Comparison]) -> Option<Reached> {
        let case = comparisons.iter().find(|one| one.name == self.case)?;
        let measured = match self.against {
            Some(against) => case.ratio(self.contestant, against),
            None => case.cell(self.contestant).and_then(|cell| cell.spread),
        };
        Some(self.reached(measured))
    }

    /// The median is what is judged.
    fn reached(self, measured: Option<Spread>) -> Reached {
        let Self { case, contestant, against, wanted } = self;
        let met = measured.map(|spread| match wanted {
            Wanted::AtLeast(bound) => spread.median >= bound,
            Wanted::AtMost(bound) => spread.median <= bound,
        });
        Reached { case, contestant, against, wanted, measured, met }
    }
}

/// The table of what came of all targets.
pub(crate) fn shown(reached: &[Reached]) -> String {
    let row = |one: &Reached| {
        let (unit, digits) = match one.against {
            None => (" MB", 1),
            // Rounded to two digits, 0.996 of the connections would look like all of them.
            Some(ATTEMPTED | WITHOUT_LIMIT) => ("", 3),
            Some(EMPTY_FILTER) => (" ns", 1),
            Some(_) => ("", 2),
        };
        let wanted = match one.wanted {
            Wanted::AtLeast(bound) => format!("at least {bound:.2}{unit}"),
            Wanted::AtMost(bound) => format!("at most {bound:.2}{unit}"),
        };
        let met = match one.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        let [case, contestant, against] =
            [one.case, one.contestant, one.against.unwrap_or("itself")].map(String::from);
        vec![case, contestant, against, wanted, Spread::shown_or_dash(one.measured, 1.0, digits), met.into()]
    };
    let heads = ["", "contestant", "against", "wanted", "measured", ""];
    table::titled("Targets for ratelimit", &heads, reached.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        case,
        comparison::{Cell, Sample, Unit},
        contestant,
        honest::tests::example as honest,
        known::tests::example as known,
    };

    fn comparison(name: &'static str, cells: &[(&'static str, [f64; 3])]) -> Comparison {
        let mut comparison = Comparison::new(name, name, Unit::DecisionsPerSecond);
        for (contestant, values) in cells {
            let mut cell = Cell::new(contestant, contestant);
            values.iter().for_each(|value| cell.add(Sample { value: *value, beside: None }));
            comparison.cells.push(cell);
        }
        comparison
    }

    fn told(reached: &[Reached]) -> Vec<(&'static str, Option<f64>, Option<bool>)> {
        let told = |one: &Reached| {
            (one.against.unwrap_or(one.contestant), one.measured.map(|spread| spread.median), one.met)
        };
        reached.iter().map(told).collect()
    }

    #[test]
    fn a_target_is_judged_by_the_median_of_ratios_within_a_round_and_left_out_without_numbers() {
        let cells = [("bare", [10.0, 5.0, 10.0]), (OURS, [9.0, 4.5, 4.0]), ("nft", [2.0, 1.0, 2.0])];
        let reached = of_packets(&[comparison("spoofed", &cells)], &[], None, None);
        assert_eq!(told(&reached), [("bare", Some(0.9), Some(true)), ("nft", Some(4.5), Some(false))]);
    }

    #[test]
    fn one_connection_that_fails_misses_the_target_of_none_and_not_that_of_99_percent() {
        let reached = of_packets(&[], &[], Some(&honest()), None);
        let expected = [
            ("no flood", Some(0.6), Some(true)),
            (ATTEMPTED, Some(0.99), Some(false)),
            (ATTEMPTED, Some(0.995), Some(true)),
        ];
        assert_eq!(told(&reached), expected);
    }

    #[test]
    fn known_clients_newcomers_and_costs_have_targets() {
        let reached = of_packets(&[], &[], None, Some(&known()));
        let expected = [
            (WITHOUT_LIMIT, Some(0.98), Some(false)),
            (KEPT_FOR_THEM, Some(0.9), Some(false)),
            (EMPTY_FILTER, Some(7.5), Some(false)),
        ];
        let told: Vec<_> =
            told(&reached).into_iter().map(|(name, value, met)| (name, value.map(rounded), met)).collect();
        assert_eq!(told, expected);
    }

    fn rounded(value: f64) -> f64 {
        (value * 1e6).round() / 1e6
    }

    #[test]
    fn every_target_of_packets_names_a_case_and_a_contestant_that_exist() {
        for target in &PACKETS {
            assert!(case::all(64).iter().any(|case| case.name == target.case), "{}", target.case);
        }
        for against in PACKETS.iter().filter_map(|target| target.against).chain(PEERS) {
            assert!(contestant::ALL.iter().any(|one| one.name == against), "{against}");
        }
    }

    #[test]
    fn a_target_of_requests_whose_peer_did_not_take_part_is_neither_met_nor_missed() {
        let reached = of_requests(&[comparison("library", &[(OURS, [1.0; 3])])]);
        assert_eq!(told(&reached), [("governor", None, None)]);
        assert!(shown(&reached).ends_with("governor  at least 1.00         -  not measured\n"));
        assert!(of_requests(&[]).is_empty());
    }

    #[test]
    fn latency_and_memory_are_the_better_the_smaller() {
        let latency = comparison("latency", &[(OURS, [90.0; 3]), (THROTTLECRAB, [100.0; 3])]);
        assert_eq!(told(&of_requests(&[latency])), [(THROTTLECRAB, Some(0.9), Some(true))]);
        let memory = comparison("memory", &[("counter", [37.0; 3]), ("bucket", [48.0; 3])]);
        let expected = [
            ("counter", Some(37.0), Some(false)),
            ("bucket", Some(48.0), Some(true)),
            ("sub-windows", None, None),
        ];
        assert_eq!(told(&of_requests(&[memory])), expected);
    }
}
