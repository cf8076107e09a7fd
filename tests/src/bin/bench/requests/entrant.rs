//! Whoever takes part in a comparison, and the rounds: everybody in turn, the first one another each time, so that whatever the machine
//! does in the meantime hits all alike.

use std::time::Duration;

use anyhow::{Context, Result};

use super::comparison::{Cell, Comparison};
use crate::{interrupt::Interrupt, progress};

/// What one round of one entrant gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// What is compared: decisions per second, or microseconds.
    pub(super) value: f64,
    /// The 99th percentile of the time an answer took, if the client tells.
    pub(super) p99_ms: Option<f64>,
}

/// One that is asked for a while, again and again.
pub(super) struct Entrant<'e> {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    turn: Box<dyn FnMut(Duration) -> Result<Sample> + 'e>,
}

impl<'e> Entrant<'e> {
    pub(super) fn new(
        name: &'static str,
        title: &'static str,
        turn: impl FnMut(Duration) -> Result<Sample> + 'e,
    ) -> Self {
        Self { name, title, turn: Box::new(turn) }
    }

    pub(super) fn take_turn(&mut self, round: Duration) -> Result<Sample> {
        (self.turn)(round).with_context(|| format!("while measuring {}", self.title))
    }
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) rounds: usize,
    pub(super) round: Duration,
}

/// Measures all entrants, after one round that does not count.
pub(super) fn compare(
    mut comparison: Comparison,
    mut entrants: Vec<Entrant<'_>>,
    pace: Pace,
    interrupt: &Interrupt,
) -> Result<Comparison> {
    comparison.cells = entrants.iter().map(|one| Cell::new(one.name, one.title)).collect();
    for round in 0..=pace.rounds {
        progress::show(&format!("{}, round {round} of {}", comparison.title, pace.rounds));
        for turn in 0..entrants.len() {
            interrupt.check()?;
            let at = (round + turn) % entrants.len();
            let sample = entrants[at].take_turn(pace.round)?;
            if round > 0 {
                comparison.cells[at].add(sample);
            }
        }
    }
    progress::clear();
    Ok(comparison)
}
