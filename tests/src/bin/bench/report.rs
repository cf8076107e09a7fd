//! What was measured: everything that the text, the JSON and the plot show.

use std::time::Duration;

use serde::Serialize;

use crate::{
    apply::Step,
    case::Case,
    contestant::YARDSTICK,
    cost::{growth::Curve, instructions::Executed, paths::PathCost, same_source::Together},
    honest::Honest,
    machine::Machine,
    spread::Spread,
    targets::{self, Reached},
};

/// One run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) command: String,
    pub(crate) rounds: usize,
    pub(crate) round_seconds: f64,
    pub(crate) notes: Vec<String>,
    /// Generator and receiver on one core.
    pub(crate) one_core: Vec<CaseResult>,
    /// The receiver on a core of its own.
    pub(crate) two_cores: Vec<CaseResult>,
    pub(crate) paths: Vec<PathCost>,
    pub(crate) growth: Vec<Curve>,
    pub(crate) same_source: Vec<Together>,
    pub(crate) instructions: Vec<Executed>,
    /// Longer frames, generator and receiver on one core.
    pub(crate) frame_size: Vec<CaseResult>,
    /// Honest clients while a flood runs.
    pub(crate) honest: Option<Honest>,
    /// Changes of a long policy.
    pub(crate) apply: Vec<Step>,
}

impl Report {
    /// Everything, and what follows from it.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Judged<'r> {
            #[serde(flatten)]
            report: &'r Report,
            targets: Vec<Reached>,
        }
        serde_json::to_string_pretty(&Judged { report: self, targets: targets::judge(self) })
    }
}

/// One case: a cell for each contestant.
#[derive(Debug, Serialize)]
pub(crate) struct CaseResult {
    pub(crate) case: Case,
    pub(crate) cells: Vec<Cell>,
}

/// One contestant in one case.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) contestant: &'static str,
    #[serde(skip)]
    pub(crate) title: &'static str,
    /// Packets per second that its interface has taken, round by round.
    pub(crate) rounds: Vec<f64>,
    /// Packets per second that it has let into the stack, round by round, where that can be told.
    pub(crate) passed: Vec<f64>,
    pub(crate) packets_per_second: Option<Spread>,
    pub(crate) passed_per_second: Option<Spread>,
    /// Against the yardstick, round by round.
    pub(crate) ratio: Option<Spread>,
}

impl Cell {
    pub(crate) fn new(contestant: &'static str, title: &'static str) -> Self {
        Self {
            contestant,
            title,
            rounds: Vec::new(),
            passed: Vec::new(),
            packets_per_second: None,
            passed_per_second: None,
            ratio: None,
        }
    }

    /// Adds a round.
    pub(crate) fn add(&mut self, arrived: u64, passed: Option<u64>, took: Duration) {
        self.rounds.push(arrived as f64 / took.as_secs_f64());
        self.passed.extend(passed.map(|packets| packets as f64 / took.as_secs_f64()));
    }
}

impl CaseResult {
    pub(crate) fn new(case: Case, mut cells: Vec<Cell>) -> Self {
        let yardstick =
            cells.iter().find(|cell| cell.contestant == YARDSTICK).map(|cell| cell.rounds.clone());
        for cell in &mut cells {
            cell.packets_per_second = Spread::of(&cell.rounds);
            cell.passed_per_second = Spread::of(&cell.passed);
            cell.ratio = yardstick.as_ref().and_then(|yardstick| Spread::of_ratios(&cell.rounds, yardstick));
        }
        Self { case, cells }
    }

    /// The cell of a contestant.
    pub(crate) fn cell(&self, contestant: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.contestant == contestant)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        case,
        honest::{Goodput, SynFlood, Visits},
    };

    /// Half of the goodput is left, one of 200 connections fails during the SYN flood.
    pub(crate) fn honest() -> Honest {
        let spread = |value: f64| Spread {
            lower_quartile: value * 0.9,
            upper_quartile: value * 1.1,
            ..Spread::exact(value)
        };
        let visits = |attempted, failed| Visits { attempted, failed, slowest_ms: 12.0, first_failure: None };
        let goodput = |ratio: f64| Goodput {
            calm: vec![4e9; 3],
            flooded: vec![4e9 * ratio; 3],
            calm_bits_per_second: spread(4e9),
            flooded_bits_per_second: spread(4e9 * ratio),
            ratio: spread(ratio),
            flood_per_second: spread(1.5e6),
            flood_cpu_share: spread(0.4),
            calm_connections: visits(100, 0),
            connections: visits(100, 1),
        };
        Honest {
            goodput: goodput(0.6),
            goodput_together: goodput(0.1),
            syn_flood: SynFlood {
                syns_per_second: spread(1e6),
                answered: 3_000_000,
                answered_per_second: spread(9e5),
                shares: vec![1.0, 0.98, 1.0],
                connections: visits(200, 1),
            },
        }
    }

    /// Three rounds of one case, in which ours does 0.8 of the yardstick.
    pub(crate) fn example() -> Report {
        let cell = |name: &'static str, millions: [f64; 3]| {
            let mut cell = Cell::new(name, name);
            for count in millions {
                cell.add((count * 1e6) as u64, Some(100_000), Duration::from_secs(1));
            }
            cell
        };
        let cells = vec![cell(YARDSTICK, [10.0, 10.0, 10.0]), cell("ours", [8.0, 8.5, 7.5])];
        Report {
            machine: Machine {
                cpu: "Example <CPU>".into(),
                cpus: 2,
                kernel: "6.18".into(),
                peers: vec!["nftables v1.0.6".into()],
                date: "2026-11-15".into(),
            },
            command: "cargo xtask bench".into(),
            rounds: 3,
            round_seconds: 1.0,
            notes: vec!["something to know".into()],
            one_core: vec![CaseResult::new(case::all(64).remove(0), cells)],
            two_cores: Vec::new(),
            paths: Vec::new(),
            growth: Vec::new(),
            same_source: Vec::new(),
            instructions: Vec::new(),
            frame_size: Vec::new(),
            honest: None,
            apply: Vec::new(),
        }
    }

    #[test]
    fn the_json_has_the_machine_every_round_and_the_targets() {
        let json: serde_json::Value = serde_json::from_str(&example().json().unwrap()).unwrap();
        assert_eq!(json["machine"]["kernel"], "6.18");
        let ours = &json["one_core"][0]["cells"][1];
        assert_eq!(ours["contestant"], "ours");
        assert_eq!(ours["rounds"].as_array().unwrap().len(), 3);
        assert_eq!(ours["ratio"]["median"], 0.8);
        assert_eq!(ours["passed_per_second"]["median"], 100_000.0);
        assert_eq!(json["targets"][0]["met"], false);
    }

    #[test]
    fn the_json_has_every_round_of_the_honest_clients() {
        let report = Report { honest: Some(honest()), ..example() };
        let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["honest"]["goodput"]["flooded"].as_array().unwrap().len(), 3);
        assert_eq!(json["honest"]["syn_flood"]["connections"]["attempted"], 200);
    }

    #[test]
    fn without_the_yardstick_there_are_rates_but_no_ratios() {
        let mut cell = Cell::new("ours", "ours");
        cell.add(100, None, Duration::from_secs(2));
        let result = CaseResult::new(case::all(64).remove(0), vec![cell]);
        assert_eq!(result.cells[0].ratio, None);
        assert_eq!(result.cells[0].packets_per_second.unwrap().median, 50.0);
        assert_eq!(result.cells[0].passed_per_second, None);
    }
}
