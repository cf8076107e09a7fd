//! What a host and the store tell each other about one limit of one user.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::terms::Terms;

/// What a host tells the store of one limit. An entry is sent with the same number until there is an answer, and counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The number of the entry among the entries of this host about this limit, from 1.
    pub sequence: u64,
    /// Units spent since the entry before.
    pub used: u64,
    /// Units that may still be spent: what the host was given, and has neither spent nor given back.
    pub held: u64,
    /// Units that the host would like to have beside those that it holds.
    pub wanted: u64,
}

impl Entry {
    /// Whether the entry says nothing but that the host is alive: the store keeps nothing of it.
    pub fn is_empty(&self) -> bool {
        self.used == 0 && self.held == 0 && self.wanted == 0
    }
}

/// One line of a lease batch to the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The key of the limit in the store.
    pub key: String,
    /// The limit that the line is about.
    pub terms: Terms,
    /// The entry about the limit.
    pub entry: Entry,
}

/// What the store answers to one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Units that may be spent beside those that are held.
    pub units: u64,
    /// Microseconds, from when the entry was sent, for which granted and held units may be spent.
    pub lifetime_us: u64,
    /// Whether other hosts have the limit with equal numbers.
    pub others: Others,
    /// Hosts that hold something of the limit or want to, this one among them.
    pub hosts: u64,
}

/// Whether hosts have a limit with equal numbers in their policies. The smallest rate and the smallest burst of any host are in force for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Others {
    /// Other hosts have the limit with equal numbers.
    #[default]
    Agree,
    /// Another host has a smaller limit, which is in force.
    SayLess,
    /// Another host has a larger limit, and the limit of this host is in force.
    SayMore,
}

/// How long leases last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Microseconds for which granted units may be spent.
    pub lifetime_us: u64,
    /// Microseconds by which a host stops earlier, and by which the store writes off later what it has not heard of.
    pub margin_us: u64,
    /// Microseconds for which the store remembers what a host wanted.
    pub recent_us: u64,
}

impl Timing {
    /// Makes the timing of leases that last for `lifetime` and are renewed once in every `tick`.
    pub fn new(lifetime: Duration, tick: Duration) -> Self {
        let lifetime_us = lifetime.as_micros() as u64;
        Self { lifetime_us, margin_us: margin_us(lifetime_us), recent_us: recent_us(tick) }
    }

    /// Changes how long a host counts as one that wants something, for a host that is heard of once in `time`.
    pub fn heard_every(self, time: Duration) -> Self {
        Self { recent_us: recent_us(time), ..self }
    }

    /// Returns after how many microseconds everything that was granted before has been spent or is void.
    pub fn longest_us(&self) -> u64 {
        self.lifetime_us + self.margin_us
    }
}

/// Returns for how many microseconds the store remembers what a host wanted that is heard of once in every `tick`.
pub fn recent_us(tick: Duration) -> u64 {
    4 * tick.as_micros() as u64
}

/// Returns how many microseconds before the end of its life a host stops using a lease, and how many after it the store writes the lease off: for
/// clocks that run differently, and for the packet path's clock, which lags.
pub fn margin_us(life_us: u64) -> u64 {
    life_us / 8
}
