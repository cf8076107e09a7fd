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
//! The generator has a core to itself. Everything else shares the other one: the thread that takes the flood from the
//! wire (threaded NAPI), the guests' packets, the server, and the guests themselves, whose work is the same with and
//! without a flood. All have the same, highest priority. So how the scheduler shares that core out is part of the result,
//! and the part that the flood's thread had is reported with it. With the guests on the generator's core instead, they
//! would slow the generator down.

mod goodput;
mod server;
mod site;
mod syn_flood;
mod transfer;
mod visits;

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

pub(crate) use self::{goodput::Goodput, syn_flood::SynFlood, visits::Visits};
use crate::{contestant::Abilities, interrupt::Interrupt};

/// What was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Honest {
    pub(crate) goodput: Goodput,
    pub(crate) syn_flood: SynFlood,
}

/// Which CPU does what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seats {
    pub(crate) generator: usize,
    /// The attacked host and its guests.
    pub(crate) host: usize,
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) rounds: usize,
    /// Of one transfer, or of one SYN flood.
    pub(crate) round: Duration,
}

/// Measures both.
pub(crate) fn measure(
    seats: Seats,
    pace: Pace,
    abilities: &Abilities,
    interrupt: &Interrupt,
) -> Result<Honest> {
    Ok(Honest {
        goodput: goodput::measure(seats, pace, abilities, interrupt)?,
        syn_flood: syn_flood::measure(seats, pace, abilities, interrupt)?,
    })
}
