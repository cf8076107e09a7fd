//! What a packet costs in the program itself: nanoseconds by BPF_PROG_TEST_RUN, without a wire.
//!
//! ```text
//! one key     frame -> program
//! many keys   frame -> another source -> program, by a tail call
//! ```
//!
//! An empty program measured the same way is the floor; what is above it is the program's own.

pub(crate) mod clients;
pub(crate) mod growth;
pub(crate) mod instructions;
pub(crate) mod paths;
pub(crate) mod same_source;
mod stopwatch;
mod subject;
mod translated;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::spread::Spread;

/// Nanoseconds per packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cost {
    /// Nanoseconds as the kernel reports them.
    pub(crate) raw_ns: Spread,
    /// Above the empty program.
    pub(crate) net_ns: f64,
}

/// How often everything is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) rounds: usize,
    pub(crate) runs: u32,
    pub(crate) quick: bool,
}

impl Extent {
    fn steps(self, full: &[u32], quick: &[u32]) -> Vec<u32> {
        if self.quick { quick.to_vec() } else { full.to_vec() }
    }

    /// Measures a program in turn with the empty one. Both functions take a number of runs and return nanoseconds per run.
    fn cost(
        self,
        mut measured: impl FnMut(u32) -> Result<f64>,
        mut empty: impl FnMut(u32) -> Result<f64>,
    ) -> Result<Cost> {
        let (mut raw, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            floor.push(empty(self.runs)?);
            raw.push(measured(self.runs)?);
        }
        let spread = |rounds: &[f64]| Spread::of(rounds).context("no rounds");
        let raw_ns = spread(&raw)?;
        Ok(Cost { raw_ns, net_ns: (raw_ns.median - spread(&floor)?.median).max(0.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_net_cost_is_what_is_above_the_empty_program() {
        let extent = Extent { rounds: 3, runs: 10, quick: true };
        let mut raw = [52.0, 50.0, 51.0].into_iter();
        let cost = extent.cost(|_| Ok(raw.next().unwrap()), |_| Ok(8.0)).unwrap();
        assert_eq!((cost.raw_ns.median, cost.net_ns), (51.0, 43.0));
        assert_eq!(extent.cost(|_| Ok(7.0), |_| Ok(8.0)).unwrap().net_ns, 0.0);
    }
}
