//! One source on one CPU and on two at once: what its one bucket costs when CPUs share it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use serde::Serialize;

use super::{Extent, stopwatch::Varied, subject::Subject};
use crate::{
    case,
    interrupt::Interrupt,
    place,
    spread::Spread,
    traffic::{self, Family, Traffic},
};

/// One row: packets per second, all CPUs together.
#[derive(Debug, Serialize)]
pub(crate) struct Together {
    pub(crate) what: &'static str,
    pub(crate) one_cpu: Spread,
    pub(crate) two_cpus: Spread,
}

/// What the CPUs send.
struct Scene {
    what: &'static str,
    policy: &'static str,
    /// From one CPU's source to the other's.
    apart: u32,
}

const GENEROUS: &str = "[source]\nlimits = [\"100000000 packets/s\"]\n";
const SPENT: &str = "[source]\nlimits = [\"1 packets/day\"]\n";

const SCENES: [Scene; 3] = [
    Scene { what: "over its limit, same source", policy: SPENT, apart: 0 },
    Scene { what: "passes, same source", policy: GENEROUS, apart: 0 },
    Scene { what: "passes, a source each", policy: GENEROUS, apart: 257 },
];

/// The other CPU runs so many times as long, at first, to be there all the time.
const LONGER: u32 = 8;
const ATTEMPTS: u32 = 4;
/// For the other CPU to begin.
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures every scene on the CPUs given.
pub(crate) fn measure(cpus: [usize; 2], extent: Extent, interrupt: &Interrupt) -> Result<Vec<Together>> {
    SCENES.iter().map(|scene| scene.measure(cpus, extent, interrupt)).collect()
}

impl Scene {
    fn measure(&self, cpus: [usize; 2], extent: Extent, interrupt: &Interrupt) -> Result<Together> {
        let mut subject = Subject::new(self.policy, case::TABLE_ENTRIES);
        let mut from = |base_v4| {
            let traffic = Traffic { family: Family::V4, base_v4, sources: 1, frame_len: 64 };
            Varied::new(&traffic, subject.xdp())
        };
        let packets = [from(traffic::BASE_V4)?, from(traffic::BASE_V4 + self.apart)?];
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..extent.rounds {
            interrupt.check()?;
            one.push(1e9 / Self::alone(&packets[0], cpus[0], extent.runs)?);
            two.push(Self::together(&packets, cpus, extent.runs)?);
        }
        let spread = |rates: &[f64]| Spread::of(rates).ok_or_else(|| anyhow!("no rounds"));
        Ok(Together { what: self.what, one_cpu: spread(&one)?, two_cpus: spread(&two)? })
    }

    /// Nanoseconds per run on one CPU.
    fn alone(packets: &Varied, cpu: usize, runs: u32) -> Result<f64> {
        place::in_thread(|| {
            place::stay_on(cpu)?;
            packets.ns(runs)
        })
    }

    /// Packets per second of both: twice what the first does while the second is busy with the same. Starting both at
    /// once would not do: the kernel waits for all CPUs when a test run begins, and the two runs may end up one behind
    /// the other.
    fn together(packets: &[Varied; 2], cpus: [usize; 2], runs: u32) -> Result<f64> {
        let mut others_runs = runs.saturating_mul(LONGER);
        for _ in 0..ATTEMPTS {
            if let Some(ns) = Self::beside(packets, cpus, runs, others_runs)? {
                return Ok(2.0 * 1e9 / ns);
            }
            others_runs = others_runs.saturating_mul(2);
        }
        bail!("two CPUs never got to work at the same time; the machine is too busy to measure")
    }

    /// Nanoseconds per run on the first CPU; `None` when the second was not there all the time.
    fn beside(packets: &[Varied; 2], cpus: [usize; 2], runs: u32, others_runs: u32) -> Result<Option<f64>> {
        let [measured, other] = packets;
        let done = &AtomicBool::new(false);
        let before = other.packets()?;
        thread::scope(|scope| {
            let busy = scope.spawn(move || {
                let ran = place::stay_on(cpus[1]).and_then(|()| other.ns(others_runs));
                done.store(true, Ordering::Relaxed);
                ran
            });
            let deadline = Instant::now() + PATIENCE;
            while other.packets()? == before && !done.load(Ordering::Relaxed) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            let measured = Self::alone(measured, cpus[0], runs);
            let was_there = !done.load(Ordering::Relaxed);
            busy.join().map_err(|_| anyhow!("a thread of the benchmark panicked"))??;
            Ok(was_there.then_some(measured?))
        })
    }
}
