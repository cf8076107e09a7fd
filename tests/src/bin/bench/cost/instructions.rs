//! Instructions of the translated program that a packet takes, for the ways that matter in a flood.

use std::thread;

use anyhow::{Context, Result, bail, ensure};
use ratelimit_tests::frames::Ipv4;
use serde::Serialize;

use super::{
    paths::{self, Path},
    stopwatch::{self, Varied},
    subject::Subject,
    translated::Translated,
};
use crate::{
    case,
    interrupt::Interrupt,
    place,
    rounds::Cores,
    traffic::{self, Family, Traffic},
};

/// Of the paths whose nanoseconds are measured.
const PATHS: [&str; 7] = [
    "over its limit",
    "over its limit, IPv6",
    "without an entry, total spent",
    "with an entry, total spent",
    "blocked",
    "blocked, list of 100 000",
    "passes",
];
/// Packets before the one that is looked at, so that whatever is spent or remembered is.
const SETTLING: u32 = 300_000;

/// Many sources over their limits: nearly all of their packets are refused for the prefix around them.
const CROWDED: &str = "[source]\nlimits = [\"10 packets/min burst 10\"]\n";
const CROWD: u32 = 1 << 16;
/// Sources that are tried until one is refused for its prefix.
const TRIED: u8 = 100;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

/// What a packet of one path executes.
#[derive(Debug, Serialize)]
pub(crate) struct Executed {
    pub(crate) path: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) instructions: usize,
    /// Helpers that were called, in order.
    pub(crate) calls: Vec<String>,
}

/// Counts on every path.
pub(crate) fn measure(cores: Cores, interrupt: &Interrupt) -> Result<Vec<Executed>> {
    let cpu = cores.generator;
    place::in_thread(|| {
        place::stay_on(cpu)?;
        let mut rows = Vec::new();
        for path in paths::all().into_iter().filter(|path| path.alone && PATHS.contains(&path.name)) {
            interrupt.check()?;
            rows.push(one(&path, cpu).with_context(|| format!("\"{}\"", path.name))?);
        }
        interrupt.check()?;
        rows.push(in_a_spent_prefix(cpu).context("in a spent prefix")?);
        Ok(rows)
    })
}

fn one(path: &Path, cpu: usize) -> Result<Executed> {
    let mut subject = paths::subject(path, case::TABLE_ENTRIES)?;
    let translated = Translated::of(subject.xdp().info()?.id())?;
    for _ in 0..paths::SETTLING {
        subject.reason(&path.frame)?;
    }
    stopwatch::ns(subject.xdp(), &path.frame, SETTLING)?;
    let reason = subject.reason(&path.frame)?;
    ensure!(reason == path.reason, "it ended as {reason} and not as {}", path.reason);
    counted(path.name, reason, &translated, &path.frame, cpu)
}

fn in_a_spent_prefix(cpu: usize) -> Result<Executed> {
    const REASON: &str = "limit_prefix";
    let mut subject = Subject::new(CROWDED, case::TABLE_ENTRIES);
    let translated = Translated::of(subject.xdp().info()?.id())?;
    let traffic = Traffic { family: Family::V4, base_v4: traffic::BASE_V4, sources: CROWD, frame_len: 64 };
    let crowd = Varied::new(&traffic, subject.xdp())?;
    thread::sleep(paths::CLOSED);
    crowd.ns(CROWD * 40)?;
    for last in 0..TRIED {
        let frame = Ipv4::from([10, 0, 77, last]).udp_frame(22);
        crowd.ns(CROWD)?;
        if subject.reason(&frame)? == REASON {
            return counted("in a spent prefix", REASON, &translated, &frame, cpu);
        }
    }
    bail!("none of {TRIED} sources was refused for its prefix")
}

fn counted(
    path: &'static str,
    reason: &'static str,
    translated: &Translated,
    frame: &[u8],
    cpu: usize,
) -> Result<Executed> {
    let passage = translated.walk(frame, cpu)?;
    let expected = if reason == "conforming" { XDP_PASS } else { XDP_DROP };
    ensure!(
        passage.verdict == expected,
        "the walk ended with {} and the packet with {expected}",
        passage.verdict
    );
    Ok(Executed { path, reason, instructions: passage.instructions, calls: passage.calls })
}
