//! The report as text: ratios first, they are what carries over to another machine.

use std::fmt::Write as _;

use crate::{
    cost::{Cost, growth::Curve, paths::PathCost, same_source::Together},
    report::{CaseResult, Cell, Report},
    table::Table,
    targets,
};

/// Everything that was measured.
pub(crate) fn shown(report: &Report) -> String {
    let mut text = format!("{}\n{}\n", report.machine.line(), report.command);
    if !report.machine.peers.is_empty() {
        let _written = writeln!(text, "peers: {}", report.machine.peers.join(", "));
    }
    for note in &report.notes {
        let _written = writeln!(text, "note: {note}");
    }
    let rounds = format!("median (min..max) of {} rounds of {} s", report.rounds, report.round_seconds);
    wire(&mut text, &report.one_core, "generator and receiver on one core", &rounds);
    target_table(&mut text, report);
    wire(&mut text, &report.two_cores, "receiver on a core of its own", &rounds);
    path_table(&mut text, &report.paths);
    for curve in &report.growth {
        growth_table(&mut text, curve);
    }
    same_source_table(&mut text, &report.same_source);
    text
}

fn wire(text: &mut String, cases: &[CaseResult], rig: &str, rounds: &str) {
    let Some(frame_len) = cases.first().map(|case| case.case.traffic.frame_len) else { return };
    let ratio = |cell: &Cell| cell.ratio.map(|spread| spread.shown(1.0, 2));
    let rate = |cell: &Cell| cell.packets_per_second.map(|spread| spread.shown(1e6, 1));
    let passed = |cell: &Cell| cell.passed_per_second.map(|spread| format!("{:.0}", spread.median / 1e3));
    let _written =
        writeln!(text, "\nSpeed against a bare XDP_DROP, {rig}, {frame_len} byte frames; {rounds}");
    text.push_str(&by_contestant(cases, ratio));
    let _written = writeln!(text, "\nMillion packets per second, {rig}");
    text.push_str(&by_contestant(cases, rate));
    let _written = writeln!(text, "\nThousand packets per second that passed into the stack, {rig}");
    text.push_str(&by_contestant(cases, passed));
}

/// A row for each contestant, a column for each case.
fn by_contestant(cases: &[CaseResult], show: impl Fn(&Cell) -> Option<String>) -> String {
    let heads = cases.iter().map(|case| case.case.title.to_owned());
    let mut table = Table::new(std::iter::once(String::new()).chain(heads).collect());
    let rows = cases.first().map(|case| &case.cells[..]).unwrap_or_default();
    for row in rows {
        let cell = |case: &CaseResult| case.cell(row.contestant).and_then(&show).unwrap_or("-".into());
        table.row(std::iter::once(row.title.to_owned()).chain(cases.iter().map(cell)).collect());
    }
    table.shown()
}

fn target_table(text: &mut String, report: &Report) {
    let reached = targets::judge(&report.one_core);
    if reached.is_empty() {
        return;
    }
    text.push_str("\nTargets for ratelimit\n");
    let mut table = Table::new(["", "against", "at least", "measured", ""].map(String::from).into());
    for one in reached {
        let verdict = if one.met { "met" } else { "missed" };
        table.row(vec![
            one.case.into(),
            one.against.into(),
            format!("{:.2}", one.at_least),
            one.measured.shown(1.0, 2),
            verdict.into(),
        ]);
    }
    text.push_str(&table.shown());
}

fn cost_cells(cost: &Cost) -> [String; 2] {
    [cost.raw_ns.shown(1.0, 0), format!("{:.0}", cost.net_ns)]
}

fn path_table(text: &mut String, paths: &[PathCost]) {
    if paths.is_empty() {
        return;
    }
    text.push_str("\nNanoseconds per packet in the program, by BPF_PROG_TEST_RUN\n");
    let heads = ["a packet that is", "counted as", "sources", "raw", "above an empty program"];
    let mut table = Table::new(heads.map(String::from).into());
    for PathCost { path, sources, reason, cost } in paths {
        let [raw, net] = cost_cells(cost);
        table.row(vec![(*path).into(), (*reason).into(), sources.to_string(), raw, net]);
    }
    text.push_str(&table.shown());
}

fn growth_table(text: &mut String, curve: &Curve) {
    let _written = writeln!(text, "\nNanoseconds per packet by {}", curve.name);
    let mut table = Table::new(["", "raw", "above an empty program"].map(String::from).into());
    for point in &curve.points {
        let [raw, net] = cost_cells(&point.cost);
        table.row(vec![point.at.to_string(), raw, net]);
    }
    text.push_str(&table.shown());
}

fn same_source_table(text: &mut String, rows: &[Together]) {
    if rows.is_empty() {
        return;
    }
    text.push_str("\nMillion packets per second in the program, all CPUs together\n");
    let mut table = Table::new(["", "1 CPU", "2 CPUs", "2 against 1"].map(String::from).into());
    for row in rows {
        let gain = row.two_cpus.median / row.one_cpu.median;
        table.row(vec![
            row.what.into(),
            row.one_cpu.shown(1e6, 1),
            row.two_cpus.shown(1e6, 1),
            format!("{gain:.2}"),
        ]);
    }
    text.push_str(&table.shown());
}

#[cfg(test)]
mod tests {
    use crate::report::tests::example;

    #[test]
    fn ratios_come_before_rates_and_notes_before_both() {
        let text = super::shown(&example());
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} not in {text}"));
        assert!(at("note: ") < at("Speed against a bare XDP_DROP"));
        assert!(at("Speed against a bare XDP_DROP") < at("Million packets per second"));
        assert!(text.contains("0.80 (0.75..0.85)") && text.contains("8.0 (7.5..8.5)"), "{text}");
        assert!(text.contains("missed") || text.contains("met"));
    }

    #[test]
    fn a_part_that_did_not_run_has_no_table() {
        let text = super::shown(&example());
        assert!(!text.contains("core of its own") && !text.contains("Nanoseconds"), "{text}");
    }
}
