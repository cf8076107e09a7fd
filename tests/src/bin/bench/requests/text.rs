//! The report as text: first what was promised, then each comparison, ratios before rates.

use std::fmt::Write as _;

use super::{
    Report,
    comparison::{Cell, Comparison, Unit},
    targets::{OURS, OURS_LEASE, Reached, Wanted},
};
use crate::{spread::Spread, table::Table};

/// Everything that was measured.
pub(super) fn shown(report: &Report) -> String {
    let mut text = format!("{}\n{}\n", report.machine.line(), report.command);
    let _written = writeln!(text, "peers: {}", report.machine.peers.join(", "));
    for note in &report.notes {
        let _written = writeln!(text, "{note}");
    }
    let _written = writeln!(
        text,
        "median (quartiles) of {} rounds of {} s; servers on CPU {}, clients on CPU {}",
        report.rounds, report.round_seconds, report.server_cpu, report.client_cpu
    );
    target_table(&mut text, &report.targets);
    for comparison in report.comparisons.iter().filter(|one| !one.cells.is_empty()) {
        comparison_table(&mut text, comparison);
    }
    text
}

fn target_table(text: &mut String, targets: &[Reached]) {
    if targets.is_empty() {
        return;
    }
    text.push_str("\nTargets for ratelimit\n");
    let heads = ["", "contestant", "against", "wanted", "measured", ""];
    let mut table = Table::new(heads.map(String::from).to_vec());
    for one in targets {
        let wanted = match one.wanted {
            Wanted::AtLeast(bound) => format!("at least {bound:.2}"),
            Wanted::AtMost(bound) if one.against.is_none() => format!("at most {bound:.0} MB"),
            Wanted::AtMost(bound) => format!("at most {bound:.2}"),
        };
        let digits = if one.against.is_some() { 2 } else { 1 };
        table.row(vec![
            one.comparison.into(),
            one.contestant.into(),
            one.against.unwrap_or("itself").into(),
            wanted,
            one.measured.map_or("-".into(), |spread| spread.shown(1.0, digits)),
            match one.met {
                Some(true) => "met".into(),
                Some(false) => "missed".into(),
                None => "not measured".into(),
            },
        ]);
    }
    text.push_str(&table.shown());
}

fn comparison_table(text: &mut String, comparison: &Comparison) {
    let _written = writeln!(text, "\n{}", comparison.title);
    // The one that is compared with all others.
    let ours = [OURS_LEASE, OURS].into_iter().find(|name| comparison.cell(name).is_some());
    let ratio_head = match comparison.unit {
        Unit::Megabytes => None,
        _ => ours.and_then(|name| comparison.cell(name)).map(|cell| format!("{} against it", cell.title)),
    };
    let (value_head, unit, digits) = match comparison.unit {
        Unit::DecisionsPerSecond => ("thousand decisions/s", 1e3, 1),
        Unit::P99Microseconds => ("p99, microseconds", 1.0, 0),
        Unit::Megabytes => ("MB beyond the empty process", 1.0, 1),
    };
    let has_p99 = comparison.cells.iter().any(|cell| !cell.p99_ms.is_empty());
    let mut heads = vec![String::new()];
    heads.extend(ratio_head.clone());
    heads.push(value_head.into());
    heads.extend(has_p99.then(|| "p99, ms".into()));
    let mut table = Table::new(heads);
    let or_dash = |spread: Option<Spread>, unit, digits| {
        spread.map_or("-".into(), |spread: Spread| spread.shown(unit, digits))
    };
    for cell in &comparison.cells {
        let mut row = vec![cell.title.to_owned()];
        if ratio_head.is_some() {
            row.push(or_dash(ours.and_then(|name| comparison.ratio(name, cell.contestant)), 1.0, 2));
        }
        row.push(or_dash(cell.spread(), unit, digits));
        if has_p99 {
            row.push(or_dash(p99(cell), 1.0, 2));
        }
        table.row(row);
    }
    text.push_str(&table.shown());
}

fn p99(cell: &Cell) -> Option<Spread> {
    Spread::of(&cell.p99_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::entrant::Sample;

    #[test]
    fn ratios_stand_before_rates() {
        let mut comparison = Comparison::new("http", "HTTP", Unit::DecisionsPerSecond);
        for (contestant, title, value) in
            [(OURS, "ratelimit", 90e3), ("throttlecrab", "throttlecrab-server", 60e3)]
        {
            let mut cell = Cell::new(contestant, title);
            cell.add(Sample { value, p99_ms: Some(1.25) });
            comparison.cells.push(cell);
        }
        let mut text = String::new();
        comparison_table(&mut text, &comparison);
        assert_eq!(
            text,
            "\nHTTP\n                       ratelimit against it  thousand decisions/s            p99, ms\n  \
             ratelimit               1.00 (1.00..1.00)     90.0 (90.0..90.0)  1.25 (1.25..1.25)\n  \
             throttlecrab-server     1.50 (1.50..1.50)     60.0 (60.0..60.0)  1.25 (1.25..1.25)\n"
        );
    }

    #[test]
    fn a_comparison_without_us_has_no_ratios() {
        let mut comparison = Comparison::new("http", "HTTP", Unit::DecisionsPerSecond);
        comparison.cells.push(Cell::new("nginx", "nginx, no limit"));
        let mut text = String::new();
        comparison_table(&mut text, &comparison);
        assert!(!text.contains("against it") && text.contains("nginx, no limit"), "{text}");
    }

    #[test]
    fn a_target_without_numbers_is_shown_as_not_measured() {
        let mut text = String::new();
        let missing = Comparison::new("library", "library", Unit::DecisionsPerSecond);
        target_table(&mut text, &crate::requests::targets::judge(&[missing]));
        let row = text.lines().last().unwrap();
        assert!(row.contains("governor  at least 1.00") && row.ends_with("-  not measured"), "{text}");
    }
}
