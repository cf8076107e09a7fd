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

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

pub(crate) use self::{goodput::Goodput, syn_flood::SynFlood, visits::Visits};
use crate::{contestant::Abilities, interrupt::Interrupt};

/// What was measured.
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
        goodput: goodput::measure(seats, seats.generator, pace, abilities, interrupt)?,
        goodput_together: goodput::measure(seats, seats.host, pace, abilities, interrupt)?,
        syn_flood: syn_flood::measure(seats, pace, abilities, interrupt)?,
    })
}
