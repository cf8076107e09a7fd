//! Nanoseconds per packet in the program of a host that knows many clients, beside one that knows none.

use std::thread;

use anyhow::Result;

use super::{paths::CLOSED, stopwatch::Varied, subject::Subject};
use crate::{
    case,
    comparison::{Cell, Comparison, Sample, Unit},
    contestant::policy,
    interrupt::Interrupt,
    known, place,
    rounds::Pace,
    targets::{OURS, OURS_KNOWN},
    traffic::{self, Family, Traffic},
};

/// Packets from all of IPv4 under a total, in rounds that take turns, each of so many runs.
pub(crate) fn measure(
    name: &'static str,
    total: u32,
    (cpu, runs): (usize, u32),
    pace: Pace,
    interrupt: &Interrupt,
) -> Result<Comparison> {
    let policy = format!(
        "[source]\nlimits = [\"1000 packets/s\"]\n{}",
        policy::service("attacked", traffic::PORT, total)
    );
    let sources = Traffic { family: Family::V4, base_v4: traffic::BASE_V4, sources: 0, frame_len: 64 };
    place::in_thread(|| {
        place::stay_on(cpu)?;
        let mut comparison = Comparison::new(name, name, Unit::PacketsPerSecond);
        comparison.cells = vec![Cell::new(OURS, OURS), Cell::new(OURS_KNOWN, OURS_KNOWN)];
        let mut subjects = [
            Subject::new(&policy, case::TABLE_ENTRIES),
            Subject::with_clients(&policy, case::TABLE_ENTRIES, known::MANY.clients())?,
        ];
        let [none, many] = &mut subjects;
        let varied = [Varied::new(&sources, none.xdp())?, Varied::new(&sources, many.xdp())?];
        thread::sleep(CLOSED);
        varied.iter().try_for_each(|one| one.ns(runs).map(drop))?;
        pace.in_turn(name, varied.len(), interrupt, |_, at| {
            // The kernel rounds down to whole nanoseconds, and none would be no speed.
            let value = 1e9 / varied[at].ns(runs)?.max(1.0);
            comparison.cells[at].add(Sample { value, beside: None });
            Ok(())
        })?;
        Ok(comparison)
    })
}
