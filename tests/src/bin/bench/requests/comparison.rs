//! What was measured of one thing that several can do.

use serde::Serialize;

use super::entrant::Sample;
use crate::spread::Spread;

/// Several that did the same, in the same rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) unit: Unit,
    pub(super) cells: Vec<Cell>,
}

/// What the values of a comparison are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    DecisionsPerSecond,
    /// The 99th percentile of the time until an answer.
    P99Microseconds,
    /// Beyond the empty process.
    Megabytes,
}

/// One of them.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    pub(super) contestant: &'static str,
    pub(super) title: &'static str,
    /// One value a round.
    pub(super) rounds: Vec<f64>,
    /// Of the same rounds, if the client tells.
    pub(super) p99_ms: Vec<f64>,
}

impl Comparison {
    pub(super) fn new(name: &'static str, title: impl Into<String>, unit: Unit) -> Self {
        Self { name, title: title.into(), unit, cells: Vec::new() }
    }

    pub(super) fn cell(&self, contestant: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.contestant == contestant)
    }

    /// One against another, round by round.
    pub(super) fn ratio(&self, contestant: &str, against: &str) -> Option<Spread> {
        let (one, other) = (self.cell(contestant)?, self.cell(against)?);
        Spread::of_ratios(&one.rounds, &other.rounds)
    }
}

impl Cell {
    pub(super) fn new(contestant: &'static str, title: &'static str) -> Self {
        Self { contestant, title, rounds: Vec::new(), p99_ms: Vec::new() }
    }

    pub(super) fn add(&mut self, sample: Sample) {
        self.rounds.push(sample.value);
        self.p99_ms.extend(sample.p99_ms);
    }

    pub(super) fn spread(&self) -> Option<Spread> {
        Spread::of(&self.rounds)
    }
}
