//! A store in memory: the same books as in Redis, for one process.

use std::collections::HashMap;

use super::ledger::{Ledger, Moment};
use crate::store::exchange::{Grant, Line, Others, Timing};

/// The books of all limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Embedded {
    ledgers: HashMap<String, Ledger>,
    /// Since when it has known everything; none until it is asked something.
    since_us: Option<u64>,
    /// How long leases last that anybody was given, also by whoever kept these books before.
    longest_us: u64,
}

impl Embedded {
    /// A store that has existed for long, and has nothing to remember.
    pub fn seasoned() -> Self {
        Self { ledgers: HashMap::new(), since_us: Some(0), longest_us: 0 }
    }

    /// Answers a letter.
    pub fn exchange(&mut self, host: &str, timing: &Timing, now_us: u64, lines: &[Line]) -> Vec<Grant> {
        // A clock that goes back behind that moment begins anew.
        let since_us = self.since_us.map_or(now_us, |since_us| since_us.min(now_us));
        self.since_us = Some(since_us);
        self.longest_us = self.longest_us.max(timing.longest_us());
        let longest_us = self.longest_us;
        let cold = since_us != 0 && now_us < since_us + longest_us;
        let moment = Moment { now_us, since_us, cold, longest_us };
        let mut answer = |line: &Line| {
            if line.entry.is_empty() && !self.ledgers.contains_key(&line.key) {
                return Grant { units: 0, lifetime_us: timing.lifetime_us, others: Others::Agree };
            }
            let fresh = || Ledger::new(&moment);
            let ledger = self.ledgers.entry(line.key.clone()).or_insert_with(fresh);
            ledger.exchange(&line.terms, timing, &moment, host, &line.entry)
        };
        lines.iter().map(&mut answer).collect()
    }

    /// The same books in another hand: it may be that something has not been written down.
    pub fn taken_over(self) -> Self {
        Self { since_us: None, ..self }
    }

    /// The books of a limit.
    pub fn ledger(&self, key: &str) -> Option<&Ledger> {
        self.ledgers.get(key)
    }
}
