//! The report as text: ratios first, they are what carries over to another machine.

use std::iter::once;

use crate::{
    apply::Step,
    comparison::{Cell, Comparison, Unit},
    contestant::{self, YARDSTICK},
    cost::{Cost, growth::Curve, instructions::Executed, paths::PathCost, same_source::Together},
    honest::{Goodput, SynFlood, Visits},
    known::{Cost as CostOfClients, Known, Row},
    report::{LongerFrames, Report, RequestCpus},
    spread::Spread,
    table::titled,
    targets::{self, OURS, OURS_LEASE},
};

const ONE_CORE: &str = "generator and receiver on one core";
const TWO_CORES: &str = "receiver on a core of its own";

/// Everything that was measured. A part that did not run has no table.
pub(crate) fn shown(report: &Report) -> String {
    let rounds = format!("median (quartiles) of {} rounds of {} s", report.rounds, report.round_seconds);
    let speed = format!("{} byte frames; {rounds}", report.frame_len);
    let mut text = report.machine.heading(&report.command, &report.notes);
    if let Some(RequestCpus { server_cpu, client_cpu }) = report.request_cpus {
        text += &format!("{rounds}; servers on CPU {server_cpu}, clients on CPU {client_cpu}\n");
    }
    text += &wire(&report.one_core, ONE_CORE, &speed);
    text += &against_others(&report.one_core);
    text += &targets::shown(&report.targets);
    text.extend(report.comparisons.iter().map(comparison));
    text += &wire(&report.two_cores, TWO_CORES, &speed);
    text += &paths(&report.paths);
    text.extend(report.growth.iter().map(growth));
    text += &same_source(&report.same_source, report.rounds);
    text += &instructions(&report.instructions);
    text += &frame_size(&report.frame_size, &rounds);
    if let Some(honest) = &report.honest {
        text += &goodput(&honest.goodput, "the flood on another core");
        text += &goodput(&honest.goodput_together, "the flood on the same core");
        text += &syn_flood(&honest.syn_flood);
    }
    if let Some(known) = &report.known {
        text += &known_clients(known);
    }
    text + &apply(&report.apply)
}

/// One comparison of requests: ratios before rates.
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
    titled(&comparison.title, &heads.collect::<Vec<_>>(), rows)
}

fn wire(cases: &[Comparison], rig: &str, speed: &str) -> String {
    let everybody = everybody(cases);
    let ratios = by_contestant(
        cases,
        &everybody,
        &format!("Speed against a bare XDP_DROP, {rig}, {speed}"),
        |case, cell| case.ratio(cell.contestant, YARDSTICK).map(|spread| spread.shown(1.0, 2)),
    );
    let rates = by_contestant(cases, &everybody, &format!("Million packets per second, {rig}"), |_, cell| {
        cell.spread.map(|spread| spread.shown(1e6, 1))
    });
    let title = format!("Thousand packets per second that passed into the stack, {rig}");
    let passed = by_contestant(cases, &everybody, &title, |_, cell| {
        cell.beside_spread.map(|spread| format!("{:.0}", spread.median / 1e3))
    });
    ratios + &rates + &passed
}

/// How many times as fast as each of the others the limiter is, round by round.
fn against_others(cases: &[Comparison]) -> String {
    if cases.iter().all(|case| case.cell(OURS).is_none()) {
        return String::new();
    }
    let mut others = everybody(cases);
    others.retain(|(name, _)| ![OURS, YARDSTICK].contains(name));
    by_contestant(
        cases,
        &others,
        &format!("ratelimit against each of the others, {ONE_CORE}"),
        |case, cell| case.ratio(OURS, cell.contestant).map(|spread| spread.shown(1.0, 2)),
    )
}

/// A row for each contestant, a column for each case.
fn by_contestant(
    cases: &[Comparison],
    contestants: &[(&'static str, &'static str)],
    title: &str,
    show: impl Fn(&Comparison, &Cell) -> Option<String>,
) -> String {
    let heads: Vec<&str> = once("").chain(cases.iter().map(|case| case.title.as_str())).collect();
    let row = |(contestant, title): &(&str, &str)| {
        let cell =
            |case: &Comparison| case.cell(contestant).and_then(|cell| show(case, cell)).unwrap_or("-".into());
        once((*title).to_owned()).chain(cases.iter().map(cell)).collect()
    };
    titled(title, &heads, contestants.iter().map(row).collect())
}

/// Name and title of whoever was in any of the cases, in the order of the list of contestants.
fn everybody(cases: &[Comparison]) -> Vec<(&'static str, &'static str)> {
    let known = contestant::ALL.iter().map(|one| (one.name, one.title));
    known.filter(|(name, _)| cases.iter().any(|case| case.cell(name).is_some())).collect()
}

fn cost(cost: &Cost) -> [String; 2] {
    [cost.raw_ns.shown(1.0, 0), format!("{:.0}", cost.net_ns)]
}

fn paths(paths: &[PathCost]) -> String {
    let row = |path: &PathCost| {
        let [raw, net] = cost(&path.cost);
        vec![path.path.into(), path.reason.into(), path.sources.to_string(), raw, net]
    };
    let heads = ["a packet that is", "counted as", "sources", "raw", "above an empty program"];
    let title = "Nanoseconds per packet in the program, by BPF_PROG_TEST_RUN";
    titled(title, &heads, paths.iter().map(row).collect())
}

fn growth(curve: &Curve) -> String {
    let rows = curve.points.iter().map(|point| once(point.at.to_string()).chain(cost(&point.cost)).collect());
    let title = format!("Nanoseconds per packet by {}", curve.name);
    titled(&title, &["", "raw", "above an empty program"], rows.collect())
}

fn same_source(rows: &[Together], rounds: usize) -> String {
    let row = |row: &Together| {
        let ratios = [row.gain, row.of_bare].map(|ratio| ratio.shown(1.0, 2));
        let rates = [row.one_cpu, row.two_cpus].map(|rate| rate.shown(1e6, 1));
        once(row.what.into()).chain(rates).chain(ratios).collect()
    };
    let title = format!(
        "Million packets per second in the program, all CPUs together; median (quartiles) of {rounds} rounds"
    );
    let heads = ["", "1 CPU", "2 CPUs", "2 against 1", "of what a bare drop gains"];
    titled(&title, &heads, rows.iter().map(row).collect())
}

fn instructions(rows: &[Executed]) -> String {
    let row = |row: &Executed| {
        let calls = if row.calls.is_empty() { "-".into() } else { row.calls.join(", ") };
        vec![row.path.into(), row.reason.into(), row.instructions.to_string(), calls]
    };
    let title = "Instructions of the translated program that a packet executes; a helper that is called counts as one";
    let heads = ["a packet that is", "counted as", "instructions", "helpers called"];
    titled(title, &heads, rows.iter().map(row).collect())
}

fn frame_size(cases: &[LongerFrames], rounds: &str) -> String {
    let row = |LongerFrames { frame_len, case }: &LongerFrames| {
        let rate = |contestant: &str| {
            Spread::shown_or_dash(case.cell(contestant).and_then(|cell| cell.spread), 1e6, 2)
        };
        let ratio = Spread::shown_or_dash(case.ratio(OURS, YARDSTICK), 1.0, 2);
        vec![case.title.clone(), frame_len.to_string(), ratio, rate(OURS), rate(YARDSTICK)]
    };
    let title = format!("By frame size, {ONE_CORE} (frames above one page come from a socket); {rounds}");
    let heads = ["", "bytes", "against a bare XDP_DROP", "million packets/s", "bare"];
    titled(&title, &heads, cases.iter().map(row).collect())
}

fn goodput(goodput: &Goodput, judged: &str) -> String {
    let row = |what: &str, rate: Spread, flood: String, visits: &Visits| {
        [what.into(), rate.shown(1e9, 2), flood].into_iter().chain(counted(visits)).collect()
    };
    let flood = goodput.flood_per_second.shown(1e6, 1);
    let rows = vec![
        row("no flood", goodput.calm_bits_per_second, "-".into(), &goodput.calm_connections),
        row("spoofed flood", goodput.flooded_bits_per_second, flood, &goodput.connections),
    ];
    let title =
        format!("An honest client's bulk transfer beside a spoofed flood, both through ratelimit, {judged}");
    let heads = ["", "Gbit/s", "flood, million packets/s", "connections", "failed", "slowest"];
    let ratio = goodput.ratio.shown(1.0, 2);
    let share = goodput.flood_cpu_share.shown(1.0, 2);
    let below = format!("  flood against no flood: {ratio}; judging the flood had {share} of a CPU\n");
    titled(&title, &heads, rows) + &below + &first_failure(&goodput.connections)
}

fn syn_flood(flood: &SynFlood) -> String {
    let rates = [flood.syns_per_second, flood.answered_per_second].map(|rate| rate.shown(1e6, 2));
    let row = once("SYN flood".into()).chain(rates).chain([flood.answered.to_string()]);
    let heads = ["", "million SYNs/s", "answered, million/s", "answered", "connections", "failed", "slowest"];
    let title = "New honest connections during a forged SYN flood, SYN cookies by ratelimit";
    let rows = vec![row.chain(counted(&flood.connections)).collect()];
    titled(title, &heads, rows) + &first_failure(&flood.connections)
}

fn counted(visits: &Visits) -> [String; 3] {
    [visits.attempted.to_string(), visits.failed.to_string(), format!("{:.0} ms", visits.slowest_ms)]
}

fn first_failure(visits: &Visits) -> String {
    visits.first_failure.as_ref().map_or(String::new(), |why| format!("  first failure: {why}\n"))
}

fn known_clients(known: &Known) -> String {
    let row = |row: &Row| {
        vec![
            row.name.into(),
            row.total_per_second.to_string(),
            row.sent.to_string(),
            row.answered_without_limit.to_string(),
            row.answered.to_string(),
            row.share().shown(1.0, 3),
            row.flood_per_second.shown(1e6, 1),
            Spread::shown_or_dash(row.newcomers_per_second, 1.0, 0),
        ]
    };
    let heads = [
        "clients, each sends",
        "total, packets/s",
        "sent",
        "answered without a limit",
        "answered",
        "of that",
        "flood, million packets/s",
        "newcomers, packets/s",
    ];
    let title = "Twenty clients over UDP beside packets forged from 16.0.0.0/4, counted at the clients: a service with a total, and a port without a limit";
    let rows = titled(title, &heads, known.rows.iter().map(row).collect());
    let cost = |cost: &CostOfClients| {
        let spreads =
            [cost.ratio.shown(1.0, 2), cost.added_ns.shown(1.0, 1), cost.packets_per_second.shown(1e6, 1)];
        once(cost.name.into()).chain(spreads).collect()
    };
    let heads = ["", "against none known", "nanoseconds added", "million packets/s"];
    let title =
        format!("100 000 known clients, {ONE_CORE}, in rounds that take turns with a host that knows none");
    rows + &titled(&title, &heads, known.costs.iter().map(cost).collect())
}

fn apply(steps: &[Step]) -> String {
    let row = |step: &Step| {
        let ms = |rounds: &[f64]| Spread::shown_or_dash(Spread::of(rounds), 1.0, 1);
        vec![
            step.what.into(),
            step.list_entries_written.to_string(),
            ms(&step.command_ms),
            ms(&step.daemon_ms),
            Spread::shown_or_dash(step.ratio, 1.0, 3),
        ]
    };
    let title = "`ratelimit apply` of a policy with 100 000 prefixes, milliseconds";
    let heads = ["what changes", "list entries written", "command", "of that in the daemon", "against all"];
    titled(title, &heads, steps.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Sample;

    fn measured(title: &str, unit: Unit, beside: f64, cells: &[(&'static str, f64)]) -> Comparison {
        let mut comparison = Comparison::new("1", title, unit);
        for (name, value) in cells {
            let mut cell = Cell::new(name, name);
            cell.add(Sample { value: *value, beside: Some(beside) });
            comparison.cells.push(cell);
        }
        comparison
    }

    #[test]
    fn ratios_come_before_rates_and_whoever_is_only_in_the_second_case_has_a_row() {
        let case = |title, cells: &[(&'static str, f64)]| measured(title, Unit::PacketsPerSecond, 1e3, cells);
        let one_core = vec![
            case("1 source", &[("bare", 10e6), ("ours", 8e6)]),
            case("1 M", &[("bare", 10e6), ("as-many", 4e6), ("ours", 8e6)]),
        ];
        let text = shown(&Report { one_core, ..Report::default() });
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} not in {text}"));
        assert!(at("Speed against a bare XDP_DROP") < at("Million packets per second"));
        let against = text.split("against each of the others").nth(1).unwrap();
        let row = against.lines().find(|line| line.contains("passes what the policy admits")).unwrap();
        assert!(row.ends_with("  -  2.00 (2.00..2.00)"), "{row}");
        assert!(!text.contains("core of its own") && !text.contains("Nanoseconds"), "{text}");
    }

    #[test]
    fn ratios_of_requests_stand_before_rates_and_there_are_none_without_us() {
        let mut http = measured("HTTP", Unit::DecisionsPerSecond, 1.25, &[(OURS, 90e3), ("nginx", 60e3)]);
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
