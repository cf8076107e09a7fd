//! What was measured of one thing that several contestants do in the same rounds.

use serde::Serialize;

use crate::spread::Spread;

/// One thing that several contestants do: a case on the wire, a question over a protocol.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) cells: Vec<Cell>,
}

/// What the values of a comparison are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    PacketsPerSecond,
    DecisionsPerSecond,
    /// The 99th percentile of the time until an answer.
    P99Microseconds,
    /// What the process has grown by.
    Megabytes,
}

/// One contestant of a comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) contestant: &'static str,
    pub(crate) title: &'static str,
    /// One value for each round.
    pub(crate) rounds: Vec<f64>,
    pub(crate) spread: Option<Spread>,
    /// The second value of each round, of contestants that have one.
    pub(crate) beside: Vec<f64>,
    pub(crate) beside_spread: Option<Spread>,
}

/// What one round of one contestant gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// What is compared, in the unit of the comparison.
    pub(crate) value: f64,
    /// Packets per second that passed into the stack, or the 99th percentile of the time until an answer in milliseconds; `None` where nobody counts it.
    pub(crate) beside: Option<f64>,
}

impl Comparison {
    pub(crate) fn new(name: &'static str, title: impl Into<String>, unit: Unit) -> Self {
        Self { name, title: title.into(), unit, cells: Vec::new() }
    }

    pub(crate) fn cell(&self, contestant: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.contestant == contestant)
    }

    /// One contestant against another, round by round.
    pub(crate) fn ratio(&self, contestant: &str, against: &str) -> Option<Spread> {
        let (one, other) = (self.cell(contestant)?, self.cell(against)?);
        Spread::of_ratios(&one.rounds, &other.rounds)
    }
}

impl Cell {
    pub(crate) fn new(contestant: &'static str, title: &'static str) -> Self {
        let (rounds, beside) = (Vec::new(), Vec::new());
        Self { contestant, title, rounds, spread: None, beside, beside_spread: None }
    }

    pub(crate) fn add(&mut self, sample: Sample) {
        self.rounds.push(sample.value);
        self.spread = Spread::of(&self.rounds);
        self.beside.extend(sample.beside);
        self.beside_spread = Spread::of(&self.beside);
    }
}
