//! What a packet costs in the program itself: nanoseconds by BPF_PROG_TEST_RUN, without a wire.
//!
//! ```text
//! one key     frame -> program
//! many keys   frame -> another source -> program, by a tail call
//! ```
//!
//! An empty program measured the same way is the floor; what is above it is the program's own.

pub(crate) mod growth;
pub(crate) mod instructions;
pub(crate) mod paths;
pub(crate) mod same_source;
mod stopwatch;
mod subject;
mod translated;

use serde::Serialize;

use crate::spread::Spread;

/// Nanoseconds per packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cost {
    /// As the kernel reports it.
    pub(crate) raw_ns: Spread,
    /// Above the empty program.
    pub(crate) net_ns: f64,
}

/// How much of it.
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
}

impl Cost {
    fn of(measured: &[f64], floor: &[f64]) -> Option<Self> {
        let raw_ns = Spread::of(measured)?;
        Some(Self { raw_ns, net_ns: (raw_ns.median - Spread::of(floor)?.median).max(0.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_net_cost_is_what_is_above_the_empty_program() {
        let cost = Cost::of(&[52.0, 50.0, 51.0], &[9.0, 8.0, 8.0]).unwrap();
        assert_eq!((cost.raw_ns.median, cost.net_ns), (51.0, 43.0));
        assert_eq!(Cost::of(&[7.0], &[8.0]).unwrap().net_ns, 0.0);
        assert_eq!(Cost::of(&[], &[8.0]), None);
    }
}
