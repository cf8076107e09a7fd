//! The report as text: ratios first, they are what carries over to another machine.

use std::fmt::Write as _;

use crate::{
    apply::Step,
    contestant::{self, YARDSTICK},
    cost::{Cost, growth::Curve, instructions::Executed, paths::PathCost, same_source::Together},
    honest::{Goodput, Honest, SynFlood, Visits},
    report::{CaseResult, Cell, Report},
    spread::Spread,
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
    let rounds = format!("median (quartiles) of {} rounds of {} s", report.rounds, report.round_seconds);
    wire(&mut text, &report.one_core, "generator and receiver on one core", &rounds);
    against_others(&mut text, &report.one_core, "generator and receiver on one core");
    target_table(&mut text, report);
    wire(&mut text, &report.two_cores, "receiver on a core of its own", &rounds);
    path_table(&mut text, &report.paths);
    for curve in &report.growth {
        growth_table(&mut text, curve);
    }
    same_source_table(&mut text, &report.same_source, report.rounds);
    instruction_table(&mut text, &report.instructions);
    frame_size_table(&mut text, &report.frame_size, &rounds);
    honest_tables(&mut text, report.honest.as_ref());
    apply_table(&mut text, &report.apply);
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
    for (contestant, title) in everybody(cases) {
        let cell = |case: &CaseResult| case.cell(contestant).and_then(&show).unwrap_or("-".into());
        table.row(std::iter::once(title.to_owned()).chain(cases.iter().map(cell)).collect());
    }
    table.shown()
}

/// Name and title of whoever was in any of the cases, in the order of the list of contestants.
fn everybody(cases: &[CaseResult]) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    for cell in cases.iter().flat_map(|case| &case.cells) {
        let one = (cell.contestant, cell.title);
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found.sort_by_key(|(name, _)| contestant::ALL.iter().position(|known| known.name == *name));
    found
}

/// How many times as fast as each of the others, round by round: a row for each contestant, a column for each case.
fn against_others(text: &mut String, cases: &[CaseResult], rig: &str) {
    let others = everybody(cases).into_iter().filter(|(name, _)| ![targets::OURS, YARDSTICK].contains(name));
    let others: Vec<_> = others.collect();
    if others.is_empty() || cases.iter().all(|case| case.cell(targets::OURS).is_none()) {
        return;
    }
    let _written = writeln!(text, "\nratelimit against each of the others, {rig}");
    let heads = cases.iter().map(|case| case.case.title.to_owned());
    let mut table = Table::new(std::iter::once(String::new()).chain(heads).collect());
    for (contestant, title) in others {
        let cell = |case: &CaseResult| {
            let (ours, other) = (case.cell(targets::OURS)?, case.cell(contestant)?);
            Some(Spread::of_ratios(&ours.rounds, &other.rounds)?.shown(1.0, 2))
        };
        let cells = cases.iter().map(|case| cell(case).unwrap_or("-".into()));
        table.row(std::iter::once(title.to_owned()).chain(cells).collect());
    }
    text.push_str(&table.shown());
}

fn target_table(text: &mut String, report: &Report) {
    let reached = targets::judge(report);
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
            // Rounded to two digits, 0.996 would look like all of them.
            one.measured.shown(1.0, if one.against == targets::ATTEMPTED { 3 } else { 2 }),
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

fn same_source_table(text: &mut String, rows: &[Together], rounds: usize) {
    if rows.is_empty() {
        return;
    }
    let _written = writeln!(
        text,
        "\nMillion packets per second in the program, all CPUs together; median (quartiles) of {rounds} rounds"
    );
    let heads = ["", "1 CPU", "2 CPUs", "2 against 1", "of what a bare drop gains"];
    let mut table = Table::new(heads.map(String::from).into());
    for row in rows {
        table.row(vec![
            row.what.into(),
            row.one_cpu.shown(1e6, 1),
            row.two_cpus.shown(1e6, 1),
            row.gain.shown(1.0, 2),
            row.of_bare.shown(1.0, 2),
        ]);
    }
    text.push_str(&table.shown());
}

fn instruction_table(text: &mut String, rows: &[Executed]) {
    if rows.is_empty() {
        return;
    }
    text.push_str("\nInstructions of the translated program that a packet executes; a helper that is called counts as one\n");
    let heads = ["a packet that is", "counted as", "instructions", "helpers called"];
    let mut table = Table::new(heads.map(String::from).into());
    for Executed { path, reason, instructions, calls } in rows {
        let calls = if calls.is_empty() { "-".into() } else { calls.join(", ") };
        table.row(vec![(*path).into(), (*reason).into(), instructions.to_string(), calls]);
    }
    text.push_str(&table.shown());
}

fn frame_size_table(text: &mut String, cases: &[CaseResult], rounds: &str) {
    if cases.is_empty() {
        return;
    }
    let _written = writeln!(
        text,
        "\nBy frame size, generator and receiver on one core (frames above one page come from a socket); {rounds}"
    );
    let heads = ["", "bytes", "against a bare XDP_DROP", "million packets/s", "bare"];
    let mut table = Table::new(heads.map(String::from).into());
    for result in cases {
        let rate = |cell: Option<&Cell>| {
            cell.and_then(|cell| cell.packets_per_second).map(|rate| rate.shown(1e6, 2))
        };
        let (ours, bare) = (result.cell(targets::OURS), result.cell(YARDSTICK));
        table.row(vec![
            result.case.title.into(),
            result.case.traffic.frame_len.to_string(),
            ours.and_then(|cell| cell.ratio).map_or("-".into(), |ratio| ratio.shown(1.0, 2)),
            rate(ours).unwrap_or("-".into()),
            rate(bare).unwrap_or("-".into()),
        ]);
    }
    text.push_str(&table.shown());
}

fn honest_tables(text: &mut String, honest: Option<&Honest>) {
    let Some(Honest { goodput, goodput_together, syn_flood }) = honest else { return };
    goodput_table(text, goodput, "the flood on another core");
    goodput_table(text, goodput_together, "the flood on the same core");
    syn_flood_table(text, syn_flood);
}

fn goodput_table(text: &mut String, goodput: &Goodput, judged: &str) {
    let _written = writeln!(
        text,
        "\nAn honest client's bulk transfer beside a spoofed flood, both through ratelimit, {judged}"
    );
    let heads = ["", "Gbit/s", "flood, million packets/s", "connections", "failed", "slowest"];
    let mut table = Table::new(heads.map(String::from).into());
    let mut row = |what: &str, rate: Spread, flood: String, visits: &Visits| {
        let mut cells = vec![what.into(), rate.shown(1e9, 2), flood];
        cells.extend(visit_cells(visits));
        table.row(cells);
    };
    row("no flood", goodput.calm_bits_per_second, "-".into(), &goodput.calm_connections);
    let flood = goodput.flood_per_second.shown(1e6, 1);
    row("spoofed flood", goodput.flooded_bits_per_second, flood, &goodput.connections);
    text.push_str(&table.shown());
    let _written = writeln!(
        text,
        "  flood against no flood: {}; judging the flood had {} of a CPU",
        goodput.ratio.shown(1.0, 2),
        goodput.flood_cpu_share.shown(1.0, 2)
    );
    failure(text, &goodput.connections);
}

fn syn_flood_table(text: &mut String, flood: &SynFlood) {
    text.push_str("\nNew honest connections during a forged SYN flood, SYN cookies by ratelimit\n");
    let heads = ["", "million SYNs/s", "answered, million/s", "answered", "connections", "failed", "slowest"];
    let mut table = Table::new(heads.map(String::from).into());
    let mut cells = vec!["SYN flood".into(), flood.syns_per_second.shown(1e6, 2)];
    cells.extend([flood.answered_per_second.shown(1e6, 2), flood.answered.to_string()]);
    cells.extend(visit_cells(&flood.connections));
    table.row(cells);
    text.push_str(&table.shown());
    failure(text, &flood.connections);
}

fn apply_table(text: &mut String, steps: &[Step]) {
    if steps.is_empty() {
        return;
    }
    text.push_str("\n`ratelimit apply` of a policy with 100 000 prefixes, milliseconds\n");
    let heads = ["what changes", "list entries written", "command", "of that in the daemon", "against all"];
    let mut table = Table::new(heads.map(String::from).into());
    for step in steps {
        let ms = |spread: Option<Spread>| spread.map_or("-".into(), |spread| spread.shown(1.0, 1));
        table.row(vec![
            step.what.into(),
            step.list_entries_written.to_string(),
            ms(step.command()),
            ms(step.daemon()),
            step.ratio.map_or("-".into(), |ratio| ratio.shown(1.0, 3)),
        ]);
    }
    text.push_str(&table.shown());
}

fn visit_cells(visits: &Visits) -> [String; 3] {
    [visits.attempted.to_string(), visits.failed.to_string(), format!("{:.0} ms", visits.slowest_ms)]
}

fn failure(text: &mut String, visits: &Visits) {
    if let Some(why) = &visits.first_failure {
        let _written = writeln!(text, "  first failure: {why}");
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        apply::Step,
        report::{
            Cell, Report,
            tests::{example, honest},
        },
        spread::Spread,
    };

    #[test]
    fn honest_clients_are_shown_with_what_failed_and_how_it_compares() {
        let text = super::shown(&Report { honest: Some(honest()), ..example() });
        assert!(text.contains("flood against no flood: 0.60 (0.54..0.66)"), "{text}");
        assert!(text.contains("2.40 (2.16..2.64)") && text.contains("0.995 (0.990..1.000)"), "{text}");
        assert!(text.lines().any(|line| line.contains("goodput") && line.ends_with("met")), "{text}");
    }

    #[test]
    fn frame_sizes_have_a_row_for_each_case() {
        let report = Report { frame_size: example().one_core, ..example() };
        let text = super::shown(&report);
        assert!(text.contains("By frame size") && text.contains("8.00 (7.75..8.25)"), "{text}");
    }

    #[test]
    fn ratios_come_before_rates_and_notes_before_both() {
        let text = super::shown(&example());
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} not in {text}"));
        assert!(at("note: ") < at("Speed against a bare XDP_DROP"));
        assert!(at("Speed against a bare XDP_DROP") < at("Million packets per second"));
        assert!(text.contains("0.80 (0.78..0.82)") && text.contains("8.0 (7.8..8.2)"), "{text}");
        assert!(text.contains("missed") || text.contains("met"));
    }

    #[test]
    fn changes_of_a_long_policy_are_shown_in_milliseconds_and_against_all_of_it() {
        let step = |what, command_ms: Vec<f64>, ratio| Step {
            what,
            list_entries_written: 2,
            daemon_ms: command_ms.iter().map(|ms| ms / 2.0).collect(),
            command_ms,
            ratio: Some(Spread::exact(ratio)),
        };
        let apply =
            vec![step("all", vec![400.0, 300.0, 500.0], 1.0), step("one", vec![20.0, 30.0, 40.0], 0.075)];
        let text = super::shown(&Report { apply, ..example() });
        assert!(text.contains("30.0 (25.0..35.0)") && text.contains("15.0 (12.5..17.5)"), "{text}");
        assert!(text.contains("0.075 (0.075..0.075)"), "{text}");
    }

    #[test]
    fn whoever_is_only_in_the_second_case_has_a_row_and_is_compared_there() {
        let mut one_core = example().one_core;
        let mut second = example().one_core.remove(0);
        second.cells.push(Cell {
            contestant: "as-many",
            title: "as many",
            ..Cell::new("as-many", "as many")
        });
        second.cells[2].rounds = vec![4e6; 3];
        one_core.push(second);
        let text = super::shown(&Report { one_core, ..example() });
        let against = text.split("against each of the others").nth(1).unwrap();
        let row = against.lines().find(|line| line.trim().starts_with("as many")).unwrap();
        assert_eq!(row.split_whitespace().skip(2).collect::<Vec<_>>(), ["-", "2.00", "(1.94..2.06)"]);
    }

    #[test]
    fn a_part_that_did_not_run_has_no_table() {
        let text = super::shown(&example());
        assert!(!text.contains("core of its own") && !text.contains("Nanoseconds"), "{text}");
    }
}
