//! The report as text: first what was promised, then each comparison, ratios before rates.

use std::iter::once;

use super::Report;
use crate::{
    comparison::{Cell, Comparison, Unit},
    spread::Spread,
    table,
    targets::{self, OURS, OURS_LEASE},
};

/// Everything that was measured.
pub(super) fn shown(report: &Report) -> String {
    let mut text = report.machine.heading(&report.command, &report.notes);
    text += &format!(
        "median (quartiles) of {} rounds of {} s; servers on CPU {}, clients on CPU {}\n",
        report.rounds, report.round_seconds, report.server_cpu, report.client_cpu
    );
    text += &targets::shown(&report.targets);
    text.extend(report.comparisons.iter().map(comparison));
    text
}

fn comparison(comparison: &Comparison) -> String {
    // The contestant that is compared with all others; none where the value itself is what counts.
    let ours = [OURS_LEASE, OURS].into_iter().find_map(|name| comparison.cell(name));
    let (value_head, unit, digits) = match comparison.unit {
        Unit::PacketsPerSecond => ("million packets/s", 1e6, 1),
        Unit::DecisionsPerSecond => ("thousand decisions/s", 1e3, 1),
        Unit::P99Microseconds => ("p99, microseconds", 1.0, 0),
        Unit::Megabytes => ("MB beyond the empty process", 1.0, 1),
    };
    let has_p99 = comparison.cells.iter().any(|cell| !cell.beside.is_empty());
    let ratio_head = ours.map(|cell| format!("{} against it", cell.title));
    let heads = once("").chain(ratio_head.as_deref()).chain([value_head]).chain(has_p99.then_some("p99, ms"));
    let row = |cell: &Cell| {
        let ratio = ours
            .map(|ours| Spread::shown_or_dash(comparison.ratio(ours.contestant, cell.contestant), 1.0, 2));
        let value = Spread::shown_or_dash(cell.spread, unit, digits);
        let p99 = has_p99.then(|| Spread::shown_or_dash(cell.beside_spread, 1.0, 2));
        once(cell.title.to_owned()).chain(ratio).chain([value]).chain(p99).collect()
    };
    let rows = comparison.cells.iter().map(row).collect();
    table::titled(&comparison.title, &heads.collect::<Vec<_>>(), rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Sample;

    #[test]
    fn ratios_stand_before_rates_and_there_are_none_without_us() {
        let mut http = Comparison::new("http", "HTTP", Unit::DecisionsPerSecond);
        for (contestant, value) in [(OURS, 90e3), ("nginx", 60e3)] {
            let mut cell = Cell::new(contestant, contestant);
            cell.add(Sample { value, beside: Some(1.25) });
            http.cells.push(cell);
        }
        assert_eq!(
            comparison(&http),
            "\nHTTP\n           ours against it  thousand decisions/s            p99, ms\n  \
             ours   1.00 (1.00..1.00)     90.0 (90.0..90.0)  1.25 (1.25..1.25)\n  \
             nginx  1.50 (1.50..1.50)     60.0 (60.0..60.0)  1.25 (1.25..1.25)\n"
        );
        http.cells.remove(0);
        assert!(!comparison(&http).contains("against it"));
    }
}
