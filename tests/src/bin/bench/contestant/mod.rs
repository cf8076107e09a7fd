//! Who is measured: a list, and one file for each way of being set up.

mod blocks;
pub(crate) mod daemon;
mod iptables;
mod limiter;
mod nftables;
pub(crate) mod policy;

use std::path::Path;

use anyhow::Result;
use aya::Ebpf;

use self::{daemon::Guard, limiter::Terms};
use crate::{case::Case, known, lane::Lane, place, rig, selection::Runs, targets::OURS_KNOWN};

/// One row of the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) runs: Runs,
    /// Whether it is also measured with the receiver on a core of its own.
    pub(crate) on_two_cores: Runs,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A program of the rig.
    Bare(&'static str),
    /// A program of the rig that passes as many packets as the policy admits.
    AsMany,
    /// The least that a limiter of sources does: a program of the rig.
    Least,
    /// The limiter of the rig.
    Lru,
    /// The limiter as operators run it: the daemon.
    Ours(Prefiltering),
    /// The limiter with as many known clients as its filter has room for.
    OursKnown,
    Nftables(Peer),
    Iptables(Peer),
}

/// Whether light sources are kept out of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefiltering {
    /// As the policy has it by default.
    Default,
    /// `gate = false`: every source that is new gets an entry, up to so many a second.
    Off,
    /// `gate = false` without a bound on new sources: what a table alone does.
    OffWithoutBudget,
}

/// What a peer does with the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// A limit for each source, then the total.
    Limits,
    /// Only drop: its own floor.
    Drop,
}

/// The yardstick of every ratio.
pub(crate) const YARDSTICK: &str = "bare";

/// Everybody there is, the yardstick first.
pub(crate) const ALL: [Contestant; 14] = {
    use Runs::{Always, Asked, Full};
    const fn row(
        name: &'static str,
        title: &'static str,
        kind: Kind,
        runs: Runs,
        on_two_cores: Runs,
    ) -> Contestant {
        Contestant { name, title, runs, on_two_cores, kind }
    }
    [
        row(YARDSTICK, "bare XDP_DROP", Kind::Bare("drop"), Always, Always),
        row("reader", "reads the headers, then drops", Kind::Bare("read_and_drop"), Full, Full),
        row("as-many", "bare, passes what the policy admits", Kind::AsMany, Full, Asked),
        row("least", "headers, a word per source and prefix, a count", Kind::Least, Full, Asked),
        row("ours", "ratelimit", Kind::Ours(Prefiltering::Default), Always, Always),
        row("ours-no-gate", "ratelimit, gate off", Kind::Ours(Prefiltering::OffWithoutBudget), Always, Full),
        row(OURS_KNOWN, "ratelimit, 100 000 known clients", Kind::OursKnown, Asked, Asked),
        row("ours-budget", "ratelimit, gate off, budget on", Kind::Ours(Prefiltering::Off), Asked, Asked),
        row("nft", "nftables netdev meter", Kind::Nftables(Peer::Limits), Always, Always),
        row("nft-drop", "nftables, only drops", Kind::Nftables(Peer::Drop), Full, Asked),
        row("iptables", "iptables hashlimit", Kind::Iptables(Peer::Limits), Full, Full),
        row("iptables-drop", "iptables, only drops", Kind::Iptables(Peer::Drop), Full, Asked),
        row("lru", "XDP program with an LRU hash", Kind::Lru, Full, Full),
        row("pass", "bare XDP_PASS, into the stack", Kind::Bare("pass"), Asked, Asked),
    ]
};

/// A contestant that is in place; leaves with the value.
#[expect(dead_code, reason = "held for what happens when it is dropped")]
pub(crate) enum InPlace {
    Program(Ebpf),
    Daemon(Guard),
    /// Rules, which go with the namespace.
    Rules,
}

impl Contestant {
    /// Whether a case has something for it to do.
    pub(crate) fn takes_part(&self, case: &Case) -> bool {
        self.kind != Kind::AsMany || case.admitted().is_some()
    }

    /// Puts it on the receiving end of a lane. `limiter` is the program that is measured.
    pub(crate) fn set_up(&self, lane: &Lane, case: &Case, limiter: &Path) -> Result<InPlace> {
        let (inlet, inside) = (&lane.inlet, lane.namespace());
        match self.kind {
            Kind::Bare(program) => {
                place::inside(inside, || rig::attach(program, inlet)).map(InPlace::Program)
            }
            Kind::AsMany => {
                place::inside(inside, || limiter::pass_some(Terms::of(case)?, inlet)).map(InPlace::Program)
            }
            Kind::Least => place::inside(inside, || limiter::know_and_drop(Terms::of(case)?, inlet))
                .map(InPlace::Program),
            Kind::Lru => {
                let blocked = case.blocked();
                place::inside(inside, || limiter::count_in_lru(Terms::of(case)?, blocked, inlet))
                    .map(InPlace::Program)
            }
            Kind::Ours(prefilter) => {
                let policy = policy::of(case, prefilter);
                daemon::start_with_blocks(lane, &[inlet], &policy, case.blocked(), limiter)
                    .map(InPlace::Daemon)
            }
            Kind::OursKnown => {
                let policy = policy::of(case, Prefiltering::Default);
                daemon::start_with_clients(lane, &[inlet], &policy, known::MANY.clients(), limiter)
                    .map(InPlace::Daemon)
            }
            Kind::Nftables(peer) => nftables::set_up(lane, case, peer).map(|()| InPlace::Rules),
            Kind::Iptables(peer) => iptables::set_up(lane, case, peer).map(|()| InPlace::Rules),
        }
    }

    /// Whether the packets it drops have been counted as received by the stack before.
    pub(crate) fn drops_in_the_stack(&self) -> bool {
        matches!(self.kind, Kind::Iptables(_))
    }
}
