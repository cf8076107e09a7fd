//! Nanoseconds per packet for each way that a packet can end.

use std::{net::Ipv6Addr, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use ratelimit_tests::frames::{ARP, IPV4, Ipv4, Ipv6, ethernet};
use ratelimit_user::compile::lists::Prefix;
use serde::Serialize;

use super::{
    Cost, Extent,
    stopwatch::{self, Crowd, Empty},
    subject::{Listed, Subject},
};
use crate::{case, interrupt::Interrupt, place, rounds::Cores};

pub(super) const GENEROUS: &str = "[source]\nlimits = [\"100000000 packets/s\"]\n";
const SPENT: &str = "[source]\nlimits = [\"1 packets/day\"]\n";
/// Enough for a prefilter, and soon spent by one source.
pub(super) const OVER: &str = "[source]\nlimits = [\"100 packets/day\"]\n";
/// One packet of each source, and as many sources as there are get an entry in no time.
const SPENT_BY_ALL: &str = "[source]\nlimits = [\"1 packets/day\"]\nnew_sources_per_cpu = 10000000\n";

/// A source that has an entry keeps to its limit, and the total is spent.
const TRACKED_TOTAL: &str = "[source]\nladder = false\nlimits = [\"1000 packets/day\"]\n[[service]]\nname = \"dns\"\n\
    match = { protocol = \"udp\", ports = [53] }\ntotal = [\"300 packets/day\"]\n";
/// No source needs an entry, and the total is spent.
pub(super) const SPENT_TOTAL: &str = "[source]\nlimits = [\"100000000 packets/s\"]\n[[service]]\nname = \"dns\"\n\
    match = { protocol = \"udp\", ports = [53] }\ntotal = [\"4 packets/day\"]\n";
/// The express lane opens so long after a change of policy or lists, at the latest.
pub(super) const CLOSED: Duration = Duration::from_millis(700);
/// Packets until a total is spent and every source that will have an entry has it.
pub(super) const SETTLING: u32 = 600;

const SERVICE: &str = "[source]\nlimits = [\"100000000 packets/s\"]\n[[service]]\nname = \"dns\"\n\
    match = { protocol = \"udp\", ports = [53] }\nper_source = [\"100000000 packets/s\"]\n";
pub(super) const TOTAL: &str = "[source]\nlimits = [\"100000000 packets/s\"]\n[[service]]\nname = \"dns\"\n\
    match = { protocol = \"udp\", ports = [53] }\ntotal = [\"100000000 packets/s\"]\n";
const USER: &str = "[source]\nlimits = [\"100000000 packets/s\"]\n[[user]]\nname = \"acme\"\n\
    sources = [\"10.0.0.0/8\"]\nnetwork = [\"100000000 packets/s\"]\n";
const SOFT: &str = "[source]\nlimits = [\"50000000 packets/s soft 10%\"]\n";
const FIXED: &str = "[source]\nlimits = [\"100000000 packets/s fixed-window\"]\n";
const SLIDING: &str = "[source]\nlimits = [\"100000000 packets/s sliding-window\"]\n";
const WEIGHTED: &str = "[source]\nlimits = [\"100000000 packets/s sliding-window-weighted\"]\n";

const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 0, 0, 0, 1);

/// What a packet of one path costs.
#[derive(Debug, Serialize)]
pub(crate) struct PathCost {
    pub(crate) path: &'static str,
    pub(crate) sources: u32,
    /// The reason that most packets ended with.
    pub(crate) reason: &'static str,
    pub(crate) cost: Cost,
}

/// One way to end, and how to get there.
pub(super) struct Path {
    pub(super) name: &'static str,
    pub(super) reason: &'static str,
    policy: &'static str,
    listed: Option<Listed>,
    pub(super) frame: Vec<u8>,
    /// Whether it is measured with one source.
    pub(super) alone: bool,
    /// Whether it is measured with many sources, and in which table.
    many: Option<Room>,
}

/// How many sources the table has room for.
#[derive(Clone, Copy)]
enum Room {
    AsShipped,
    ForAll,
}

pub(super) fn all() -> Vec<Path> {
    let udp = Ipv4::from([10, 0, 0, 0]).udp_frame(22);
    let path = |name, reason, policy| Path {
        name,
        reason,
        policy,
        listed: None,
        frame: udp.clone(),
        alone: true,
        many: None,
    };
    vec![
        Path { many: Some(Room::AsShipped), ..path("passes", "conforming", GENEROUS) },
        path("over its limit", "limit_packets", OVER),
        Path {
            many: Some(Room::ForAll),
            ..path("over its limit, no prefilter", "limit_packets", SPENT_BY_ALL)
        },
        Path { alone: false, many: Some(Room::ForAll), ..path("one new source too many", "", SPENT) },
        Path {
            listed: Some(Listed::Blocked),
            many: Some(Room::AsShipped),
            ..path("blocked", "blocked", GENEROUS)
        },
        Path { listed: Some(Listed::BlockedOfMany), ..path("blocked, list of 100 000", "blocked", GENEROUS) },
        path("with an entry, total spent", "service_total", TRACKED_TOTAL),
        Path {
            many: Some(Room::AsShipped),
            ..path("without an entry, total spent", "service_total", SPENT_TOTAL)
        },
        Path {
            frame: Ipv6::from(SOURCE_V6).udp_frame(22),
            ..path("over its limit, IPv6", "limit_packets", OVER)
        },
        Path { listed: Some(Listed::Allowed), ..path("allowed", "allowed", GENEROUS) },
        Path { frame: ethernet(ARP, &[0; 46]), ..path("ARP", "arp", GENEROUS) },
        Path { frame: ethernet(IPV4, &[0x45; 10]), ..path("truncated", "truncated", GENEROUS) },
        path("passes, limit per source and service", "conforming", SERVICE),
        path("passes, total of a service", "conforming", TOTAL),
        path("passes, user", "conforming", USER),
        path("passes, soft limit", "conforming", SOFT),
        path("passes, fixed window", "conforming", FIXED),
        path("passes, sliding window", "conforming", SLIDING),
        path("passes, weighted window", "conforming", WEIGHTED),
    ]
}

/// Measures every path.
pub(crate) fn measure(cores: Cores, extent: Extent, interrupt: &Interrupt) -> Result<Vec<PathCost>> {
    let many_sources = if extent.quick { 1 << 18 } else { 1 << 20 };
    place::in_thread(|| {
        place::stay_on(cores.generator)?;
        let mut costs = Vec::new();
        for path in all().into_iter().filter(|path| path.alone) {
            interrupt.check()?;
            costs.push(one(&path, extent)?);
        }
        for path in all() {
            let Some(room) = path.many else { continue };
            interrupt.check()?;
            costs.push(many(&path, many_sources, room, extent)?);
        }
        Ok(costs)
    })
}

fn one(path: &Path, extent: Extent) -> Result<PathCost> {
    let mut subject = subject(path, case::TABLE_ENTRIES)?;
    for _ in 0..SETTLING {
        subject.reason(&path.frame)?;
    }
    let reason = subject.reason(&path.frame)?;
    ensure!(reason == path.reason, "\"{}\" ended as {reason} and not as {}", path.name, path.reason);
    let mut empty = Empty::new()?;
    let cost = extent.cost(
        |runs| stopwatch::ns(subject.xdp(), &path.frame, runs),
        |runs| stopwatch::ns(empty.xdp()?, &path.frame, runs),
    )?;
    Ok(PathCost { path: path.name, sources: 1, reason, cost })
}

fn many(path: &Path, sources: u32, room: Room, extent: Extent) -> Result<PathCost> {
    let table_entries = match room {
        Room::AsShipped => case::TABLE_ENTRIES,
        Room::ForAll => sources * 4,
    };
    let mut subject = subject(path, table_entries)?;
    // Until nearly every source has been there: what is left of a share after n times as many packets is e^-n.
    let crowd = Crowd::settled(&mut subject, sources, sources * 5)?;
    let before = subject.counters();
    let cost = crowd.cost(extent)?;
    let reason = subject.main_reason(&before).context("no counter moved")?;
    Ok(PathCost { path: path.name, sources, reason, cost })
}

/// A loaded program with the policy and the lists of a path, whose express lane may open.
pub(super) fn subject(path: &Path, table_entries: u32) -> Result<Subject> {
    let mut subject = Subject::new(path.policy, table_entries);
    if let Some(listed) = path.listed {
        match listed {
            Listed::BlockedOfMany => {
                let addresses = case::every_second_address(case::MANY_LISTED);
                subject.list(addresses.map(|address| Prefix::masked(address.into(), 32)), listed);
            }
            Listed::Blocked | Listed::Allowed => subject.list(["10.0.0.0/8".parse()?], listed),
        }
    }
    thread::sleep(CLOSED);
    Ok(subject)
}
