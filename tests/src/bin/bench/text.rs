//! The report as text: ratios first, they are what carries over to another machine.

use std::fmt::Write as _;

use crate::{
    report::{CaseResult, Cell, Report},
    table::Table,
};

/// Everything that was measured.
pub(crate) fn shown(report: &Report) -> String {
    let mut text = format!("{}\n{}\n", report.machine.line(), report.command);
    for note in &report.notes {
        let _written = writeln!(text, "note: {note}");
    }
    let rounds = format!("median (min..max) of {} rounds of {} s", report.rounds, report.round_seconds);
    wire(&mut text, &report.one_core, "generator and receiver on one core", &rounds);
    wire(&mut text, &report.two_cores, "receiver on a core of its own", &rounds);
    text
}

fn wire(text: &mut String, cases: &[CaseResult], rig: &str, rounds: &str) {
    if cases.is_empty() {
        return;
    }
    let ratio = |cell: &Cell| cell.ratio.map(|spread| spread.shown(1.0, 2));
    let rate = |cell: &Cell| cell.packets_per_second.map(|spread| spread.shown(1e6, 1));
    let passed = |cell: &Cell| cell.passed_per_second.map(|spread| format!("{:.0}", spread.median / 1e3));
    let _written = writeln!(text, "\nSpeed against a bare XDP_DROP, {rig}; {rounds}");
    text.push_str(&by_contestant(cases, ratio));
    let _written = writeln!(text, "\nMillion packets per second, {rig}");
    text.push_str(&by_contestant(cases, rate));
    let _written = writeln!(text, "\nThousand packets per second that passed into the stack, {rig}");
    text.push_str(&by_contestant(cases, passed));
}

/// A row for each contestant, a column for each case.
fn by_contestant(cases: &[CaseResult], show: impl Fn(&Cell) -> Option<String>) -> String {
    let heads = std::iter::once(String::new()).chain(cases.iter().map(|case| case.case.title.to_owned()));
    let mut table = Table::new(heads.collect());
    let rows = cases.first().map(|case| &case.cells[..]).unwrap_or_default();
    for row in rows {
        let cell = |case: &CaseResult| case.cell(row.contestant).and_then(&show).unwrap_or("-".into());
        table.row(std::iter::once(row.title.to_owned()).chain(cases.iter().map(cell)).collect());
    }
    table.shown()
}
