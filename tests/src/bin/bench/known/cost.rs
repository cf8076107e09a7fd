//! What a packet costs more on a host that knows many clients, in rounds that take turns with a host that knows none.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::{
    case,
    comparison::Comparison,
    contestant,
    cost::clients,
    interrupt::Interrupt,
    rounds::{self, Cores, Pace},
    spread::Spread,
    targets::{OURS, OURS_KNOWN},
};

/// Totals of which nearly all is refused, and all passes.
const SPENT: u32 = 2_000;
const NEVER_SPENT: u32 = 100_000_000;

/// A kind of packet, with and without many known clients.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    pub(crate) name: &'static str,
    pub(crate) packets_per_second: Spread,
    /// Speed with many known clients against speed without, round by round.
    pub(crate) ratio: Spread,
    /// Nanoseconds per packet that are added, round by round.
    pub(crate) added_ns: Spread,
}

/// Measures a packet that is refused, on the wire and in the program, and one that passes in the program: what the stack does with it is most of it on a wire.
pub(crate) fn measure(
    cores: Cores,
    (pace, runs): (Pace, u32),
    limiter: &Path,
    interrupt: &Interrupt,
) -> Result<Vec<Cost>> {
    let contestants: Vec<_> =
        contestant::ALL.into_iter().filter(|one| [OURS, OURS_KNOWN].contains(&one.name)).collect();
    let spoofed = case::all(64).into_iter().find(|case| case.name == "spoofed").context("no case spoofed")?;
    let wire = rounds::measure(&spoofed, &contestants, cores, pace, limiter, interrupt)?;
    let mut costs = vec![Cost::of("refused, on the wire", &wire).context("no rounds")?];
    for (name, total) in [("refused, in the program", SPENT), ("passes, in the program", NEVER_SPENT)] {
        let comparison = clients::measure(name, total, (cores.generator, runs), pace, interrupt)?;
        costs.push(Cost::of(name, &comparison).context("no rounds")?);
    }
    Ok(costs)
}

impl Cost {
    fn of(name: &'static str, comparison: &Comparison) -> Option<Self> {
        let [empty, known] = [OURS, OURS_KNOWN].map(|name| comparison.cell(name));
        let (empty, known) = (&empty?.rounds, known?);
        let added = known.rounds.iter().zip(empty).map(|(known, empty)| 1e9 / known - 1e9 / empty);
        Some(Self {
            name,
            packets_per_second: known.spread?,
            ratio: comparison.ratio(OURS_KNOWN, OURS)?,
            added_ns: Spread::of(&added.collect::<Vec<_>>())?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::comparison::{Cell, Sample, Unit};

    /// 100 ns with known clients and 90 ns without in the first round, 110 and 105 in the second.
    pub(crate) fn example() -> Cost {
        let mut comparison = Comparison::new("spoofed", "", Unit::PacketsPerSecond);
        for (name, ns) in [(OURS, [90.0, 105.0]), (OURS_KNOWN, [100.0, 110.0])] {
            let mut cell = Cell::new(name, name);
            ns.iter().for_each(|ns| cell.add(Sample { value: 1e9 / ns, beside: None }));
            comparison.cells.push(cell);
        }
        Cost::of("refused, on the wire", &comparison).unwrap()
    }

    #[test]
    fn nanoseconds_are_added_within_a_round() {
        let added = example().added_ns;
        assert!((added.median - 7.5).abs() < 1e-6 && (added.max - 10.0).abs() < 1e-6, "{added:?}");
    }
}
