//! The limiter's program as this process loads it: under a policy in an operator's words, with lists.
//!
//! Everything that the benchmark knows about the inside of the limiter is in this file.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use aya::programs::Xdp;
use ratelimit_common::abi::{Counter, ListEntry, Reason, list};
use ratelimit_tests::{
    bpffs::Scratch,
    clients::remember,
    loaded::{self, Loaded},
    policies,
};
use ratelimit_user::{
    compile::lists::{Lists, Prefix},
    dataplane::{pin::PinDir, probe},
};

/// A loaded program with maps of its own.
pub(super) struct Subject {
    loaded: Loaded,
}

/// The program's counters at one moment.
pub(super) struct Counters(Vec<(Reason, Counter)>);

/// What a list says about a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    Blocked,
    /// Many single addresses are blocked.
    BlockedOfMany,
    Allowed,
}

impl Subject {
    /// Loads it with a table of so many sources.
    pub(super) fn new(policy: &str, table_entries: u32) -> Self {
        Self { loaded: Loaded::with_sources(&policies::policy(policy), table_entries) }
    }

    /// Loads it with clients of its service that it knows, each with what it is served on average in packets per second.
    pub(super) fn with_clients(
        policy: &str,
        table_entries: u32,
        clients: impl IntoIterator<Item = (Ipv4Addr, f64)>,
    ) -> Result<Self> {
        let scratch = Scratch::new();
        let pins = PinDir::new(scratch.pin());
        let loaded = Loaded::pinned(&pins, &policies::policy(policy), table_entries);
        remember(&pins, clients);
        loaded.maps.clients().refresh(probe::now_ns())?;
        Ok(Self { loaded })
    }

    /// Replaces the block and allow lists.
    pub(super) fn list(&mut self, prefixes: impl IntoIterator<Item = Prefix>, as_what: Listed) {
        let entry = match as_what {
            Listed::Blocked | Listed::BlockedOfMany => {
                ListEntry { own_blocked_until_ns: list::FOREVER_NS, ..ListEntry::EMPTY }
            }
            Listed::Allowed => ListEntry { own_allowed: list::ALLOWED, ..ListEntry::EMPTY },
        };
        self.loaded.set_lists(prefixes.into_iter().map(|prefix| (prefix, entry)).collect::<Lists>());
    }

    /// The reason that a frame ends with, for a measurement must be of what it says.
    pub(super) fn reason(&mut self, frame: &[u8]) -> Result<&'static str> {
        let outcome = self.loaded.outcome(frame);
        Ok(outcome.moved.first().context("no counter moved")?.0.name())
    }

    /// All counters, for a comparison.
    pub(super) fn counters(&self) -> Counters {
        Counters(self.loaded.counters())
    }

    /// The reason that most packets ended with since then.
    pub(super) fn main_reason(&self, before: &Counters) -> Option<&'static str> {
        let moved = loaded::moved(&before.0, &self.loaded.counters());
        moved.iter().max_by_key(|(_, counter)| counter.packets).map(|(reason, _)| reason.name())
    }

    pub(super) fn xdp(&mut self) -> &mut Xdp {
        self.loaded.xdp()
    }
}
