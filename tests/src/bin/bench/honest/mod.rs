//! Honest clients while a flood runs: what a limiter is for.
//!
//! ```text
//! generator --- flood ---> rlb0 \
//!                                limiter -> stack -> server
//! guests --- TCP --------> host0 /
//! ```
//!
//! The guests have a wire of their own. On the generator's they would stand in its queue, which is always full, and what
//! that loses is lost before any limiter. Both wires end at the same host, program and maps.
//!
//! One core has the server, the guests' packets, and the guests themselves, whose work is the same with and without a flood. Where the
//! flood is judged (by the thread that takes it from the wire, threaded NAPI) makes two questions of it:
//!
//! - *apart*: on the generator's core. What does a flood that fills one core cost those on another, by maps and locks and memory that
//!   both use? That is the limiter's part, and what the target is about.
//! - *together*: on the core of everything honest, at the same, highest priority. There the scheduler decides who gets on, and the part
//!   of the core that the flood's thread had is reported.
//!
//! SYN floods are judged together with everything honest.

mod goodput;
mod server;
mod site;
mod syn_flood;
mod transfer;
mod visits;

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

pub(crate) use self::{goodput::Goodput, syn_flood::SynFlood, visits::Visits};
use crate::{interrupt::Interrupt, rounds::Pace};

/// What honest clients got while floods ran.
#[derive(Debug, Serialize)]
pub(crate) struct Honest {
    /// With the flood on a core of its own.
    pub(crate) goodput: Goodput,
    /// With the flood on the core of everything honest.
    pub(crate) goodput_together: Goodput,
    pub(crate) syn_flood: SynFlood,
}

/// Which CPU does what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seats {
    pub(crate) generator: usize,
    /// The attacked host and its guests.
    pub(crate) host: usize,
}

/// Measures transfers and SYN floods. A round of `pace` is one transfer, or one SYN flood.
pub(crate) fn measure(seats: Seats, pace: Pace, limiter: &Path, interrupt: &Interrupt) -> Result<Honest> {
    Ok(Honest {
        goodput: goodput::measure(seats, seats.generator, pace, limiter, interrupt)?,
        goodput_together: goodput::measure(seats, seats.host, pace, limiter, interrupt)?,
        syn_flood: syn_flood::measure(seats, pace, limiter, interrupt)?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::spread::Spread;

    /// 0.6 of the goodput is left, and one connection fails: one of 100 beside a flood, one of 200 during the SYN flood.
    pub(crate) fn example() -> Honest {
        let visits = |attempted, failed| Visits { attempted, failed, ..Visits::default() };
        let [one, ratio] = [1.0, 0.6].map(Spread::exact);
        let goodput = || Goodput {
            calm: vec![1.0],
            flooded: vec![0.6],
            calm_bits_per_second: one,
            flooded_bits_per_second: ratio,
            ratio,
            flood_per_second: one,
            flood_cpu_share: one,
            calm_connections: visits(100, 0),
            connections: visits(100, 1),
        };
        let syn_flood = SynFlood {
            syns_per_second: one,
            answered: 3_000_000,
            answered_per_second: one,
            shares: vec![1.0, 0.98, 1.0],
            connections: visits(200, 1),
        };
        Honest { goodput: goodput(), goodput_together: goodput(), syn_flood }
    }
}
