//! What was measured: everything that the text, the JSON and the plot show.

use std::time::Duration;

use serde::Serialize;

use crate::{case::Case, contestant::YARDSTICK, machine::Machine, spread::Spread};

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
