//! What a host and the store tell each other about one limit of one user.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::terms::Terms;

/// What a host says. The same number is said again until there is an answer, and counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Counts what this host says about this limit, from 1.
    pub sequence: u64,
    /// Units spent since the entry before.
    pub used: u64,
    /// Units that may still be spent: what the host was given, and has neither spent nor given back.
    pub held: u64,
    /// Units that it would like to have beside those.
    pub wanted: u64,
}

impl Entry {
    /// Nothing but "I am here": the store gets to know that it is alive, and keeps nothing.
    pub fn is_empty(&self) -> bool {
        self.used == 0 && self.held == 0 && self.wanted == 0
    }
}

/// One line of a lease batch to the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What the store calls the limit.
    pub key: String,
    /// The limit that the line is about.
    pub terms: Terms,
    /// What there is to say about it.
    pub entry: Entry,
}

/// What the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Units that may be spent beside those that are held.
    pub units: u64,
    /// For how long, like those that are held, from when the entry was sent.
    pub lifetime_us: u64,
    /// What other hosts say of the limit itself.
    pub others: Others,
    /// Hosts that hold something of the limit or want to, this one among them.
    pub hosts: u64,
}

/// Whether hosts have the same limit in their policies. The smallest rate and the smallest burst that any of them says are in force for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Others {
    /// Other hosts say the same of the limit.
    #[default]
    Agree,
    /// Another host says less, and that is in force.
    SayLess,
    /// Another host says more, and what this one says is in force.
    SayMore,
}

/// How long leases last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// For how long what was given may be spent.
    pub lifetime_us: u64,
    /// How much earlier a host stops, and how much later the store writes off what it has not heard of.
    pub margin_us: u64,
    /// For how long the store remembers what a host wanted.
    pub recent_us: u64,
}

impl Timing {
    /// The timing of leases that last so long and are renewed so often.
    pub fn new(lifetime: Duration, tick: Duration) -> Self {
        let lifetime_us = lifetime.as_micros() as u64;
        Self { lifetime_us, margin_us: margin_us(lifetime_us), recent_us: recent_us(tick) }
    }

    /// Changes how long a host counts as one that wants something: it is heard of once in `time`.
    pub fn heard_every(self, time: Duration) -> Self {
        Self { recent_us: recent_us(time), ..self }
    }

    /// After this time everything that was given before has been spent or is void.
    pub fn longest_us(&self) -> u64 {
        self.lifetime_us + self.margin_us
    }
}

/// For how long the store remembers what a host wanted that is heard of so often.
pub fn recent_us(tick: Duration) -> u64 {
    4 * tick.as_micros() as u64
}

/// How much earlier than after its life a host stops to use a lease, and how much later the store writes it off: for clocks that run differently
/// and for the packet path's, which lags.
pub fn margin_us(life_us: u64) -> u64 {
    life_us / 8
}
