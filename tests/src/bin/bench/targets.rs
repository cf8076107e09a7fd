//! What the limiter is to reach, as ratios within one run.

use serde::Serialize;

use crate::{
    cost::same_source::Together,
    honest::Honest,
    report::{CaseResult, Report},
    spread::Spread,
};

/// One promise: a contestant is at least so many times as fast as another one.
#[derive(Clone, Copy)]
struct Target {
    case: &'static str,
    against: &'static str,
    at_least: f64,
}

pub(crate) const OURS: &str = "ours";

const ALL: [Target; 12] = [
    Target { case: "1", against: "bare", at_least: 0.88 },
    Target { case: "1-ipv6", against: "bare", at_least: 0.85 },
    Target { case: "1-total", against: "bare", at_least: 0.80 },
    Target { case: "blocked", against: "bare", at_least: 0.80 },
    Target { case: "65k", against: "bare", at_least: 0.75 },
    Target { case: "1M", against: "bare", at_least: 0.75 },
    Target { case: "spoofed", against: "bare", at_least: 0.82 },
    Target { case: "ipv6", against: "bare", at_least: 0.82 },
    Target { case: "heavy", against: "bare", at_least: 0.75 },
    Target { case: "1M-heavy", against: "bare", at_least: 0.75 },
    Target { case: "heavy", against: "ours-no-gate", at_least: 1.0 },
    Target { case: "spoofed", against: "ours-no-gate", at_least: 5.0 },
];
/// Others who limit, and how many times as fast it is to be in every case.
const PEERS: ([&str; 3], f64) = (["nft", "iptables", "lru"], 6.0);

/// What connections that succeed are a share of.
pub(crate) const ATTEMPTED: &str = "attempted";
/// An honest client's goodput during a spoofed flood, against its goodput without one.
const GOODPUT: f64 = 0.5;
/// Connections that succeed during that flood: all.
const CONNECTIONS: f64 = 1.0;
/// New connections that succeed within three seconds during a SYN flood.
const DURING_SYN_FLOOD: f64 = 0.99;

/// What came of a target.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Reached {
    pub(crate) case: &'static str,
    pub(crate) against: &'static str,
    pub(crate) at_least: f64,
    pub(crate) measured: Spread,
    pub(crate) met: bool,
}

/// Every target that this run has the numbers for.
pub(crate) fn judge(report: &Report) -> Vec<Reached> {
    let mut reached = judge_speed(&report.one_core);
    reached.extend(report.same_source.iter().filter_map(judge_two_cpus));
    reached.extend(report.honest.iter().flat_map(judge_honest));
    reached
}

fn judge_speed(cases: &[CaseResult]) -> Vec<Reached> {
    let (peers, times) = PEERS;
    let against_peers = cases.iter().flat_map(|result| {
        let case = result.case.name;
        peers.into_iter().map(move |against| Target { case, against, at_least: times })
    });
    let reached = |target: Target| {
        let case = cases.iter().find(|result| result.case.name == target.case)?;
        let (ours, other) = (case.cell(OURS)?, case.cell(target.against)?);
        let measured = Spread::of_ratios(&ours.rounds, &other.rounds)?;
        let Target { case, against, at_least } = target;
        Some(Reached { case, against, at_least, measured, met: measured.median >= at_least })
    };
    ALL.into_iter().chain(against_peers).filter_map(reached).collect()
}

fn judge_two_cpus(row: &Together) -> Option<Reached> {
    let (at_least, measured) = (row.at_least?, row.gain);
    Some(Reached { case: row.what, against: "1 CPU", at_least, measured, met: measured.median >= at_least })
}

/// Shares are of all attempts, not the median of rounds: one bad round of five is not to be forgotten here.
fn judge_honest(honest: &Honest) -> Vec<Reached> {
    let row = |case, against, at_least, measured: Spread| Reached {
        case,
        against,
        at_least,
        measured,
        met: measured.median >= at_least,
    };
    let all = |share: f64| Spread::exact(share);
    let (goodput, syn_flood) = (&honest.goodput, &honest.syn_flood);
    let mut reached = vec![row("goodput", "no flood", GOODPUT, goodput.ratio)];
    reached.extend(
        goodput.connections.share().map(|share| row("connections", ATTEMPTED, CONNECTIONS, all(share))),
    );
    reached.extend(syn_flood.connections.share().map(|share| {
        let rounds = Spread::of(&syn_flood.shares).unwrap_or(all(share));
        row("syn flood", ATTEMPTED, DURING_SYN_FLOOD, Spread { median: share, ..rounds })
    }));
    reached
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        case, contestant,
        report::{
            Cell,
            tests::{example, honest},
        },
    };

    #[test]
    fn a_target_is_judged_by_its_median_and_left_out_without_numbers() {
        let cell = |name: &'static str, packets: [u64; 3]| {
            let mut cell = Cell::new(name, name);
            packets.into_iter().for_each(|count| cell.add(count, None, Duration::from_secs(1)));
            cell
        };
        let spoofed = case::all(64).into_iter().find(|case| case.name == "spoofed").unwrap();
        let cells = vec![cell("bare", [10, 10, 10]), cell("ours", [9, 9, 4]), cell("nft", [2, 2, 2])];
        let judged = judge_speed(&[CaseResult::new(spoofed, cells)]);
        let told: Vec<_> = judged.iter().map(|one| (one.against, one.measured.median, one.met)).collect();
        assert_eq!(told, [("bare", 0.9, true), ("nft", 4.5, false)]);
    }

    #[test]
    fn one_connection_that_fails_misses_the_target_of_none_and_not_that_of_99_percent() {
        let report = Report { one_core: Vec::new(), honest: Some(honest()), ..example() };
        let told: Vec<_> =
            judge(&report).iter().map(|one| (one.case, one.measured.median, one.met)).collect();
        assert_eq!(told, [("goodput", 0.6, true), ("connections", 0.99, false), ("syn flood", 0.995, true)]);
    }

    #[test]
    fn every_target_names_a_case_and_a_contestant_that_exist() {
        for target in &ALL {
            assert!(case::all(64).iter().any(|case| case.name == target.case), "{}", target.case);
        }
        for against in ALL.iter().map(|target| target.against).chain(PEERS.0) {
            assert!(contestant::ALL.iter().any(|one| one.name == against), "{against}");
        }
    }
}
