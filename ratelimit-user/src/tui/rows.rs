//! A view as rows of a table, for the terminal and for plain text.

use std::cmp::Reverse;

use clap::ValueEnum;

use crate::stats::{
    flow::{Flow, ReasonFlow, ServiceFlow},
    remaining::{ClusterHost, LimitLeft},
    talkers::Talker,
    view::StatsView,
};

/// What packets are added up by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Grouping {
    /// What the policy takes for one source
    #[default]
    Source,
    /// /24 of IPv4, /48 of IPv6
    Prefix,
    /// Services of the policy
    Service,
    /// Users of the policy
    User,
    /// Why packets passed or were refused
    Reason,
    /// Hosts of the cluster
    Host,
}

/// Which rows come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Ranking {
    /// Most packets
    #[default]
    Packets,
    /// Most bytes
    Bytes,
    /// Most dropped packets
    Dropped,
}

/// One row: its name and its cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// The source, prefix, service, user or reason.
    pub name: String,
    /// The other columns, as [`heads`] names them.
    pub cells: Vec<String>,
    /// Whether some packets of the row are dropped.
    pub is_refused: bool,
}

/// The names of the columns; the first one is the kind of rows.
pub fn heads(grouping: Grouping) -> &'static [&'static str] {
    match grouping {
        Grouping::Source => {
            &["source", "packets/s", "bit/s", "dropped", "+/-", "left", "service", "user", "reason"]
        }
        Grouping::Prefix => {
            &["prefix", "packets/s", "bit/s", "passed", "dropped", "+/-", "service", "reason"]
        }
        Grouping::User => {
            &["user", "packets/s", "bit/s", "dropped", "+/-", "left", "here", "service", "reason"]
        }
        Grouping::Service => &["service", "passed/s", "dropped/s", "answered/s", "bit/s", "left", "total"],
        Grouping::Reason => &["reason", "verdict", "packets/s", "bit/s"],
        Grouping::Host => &["host", "state", "seen", "behind", "leases", "store", "program"],
    }
}

/// The rows of a view whose names contain `filter`, sorted.
pub fn rows(view: &StatsView, grouping: Grouping, ranking: Ranking, filter: &str) -> Vec<TableRow> {
    let mut rows: Vec<(Rank, TableRow)> = match grouping {
        Grouping::Source => view.sources.iter().map(source_row).collect(),
        Grouping::Prefix => view.prefixes.iter().map(prefix_row).collect(),
        Grouping::User => view.users.iter().map(user_row).collect(),
        Grouping::Service => view.services.iter().map(service_row).collect(),
        Grouping::Reason => view.reasons.iter().map(reason_row).collect(),
        Grouping::Host => view.hosts.iter().map(host_row).collect(),
    };
    rows.retain(|(_, row)| row.name.contains(filter));
    // A stable sort, so that equal rows keep their order.
    rows.sort_by_key(|(rank, _)| {
        Reverse(match ranking {
            Ranking::Packets => rank.packets,
            Ranking::Bytes => rank.bytes,
            Ranking::Dropped => rank.dropped,
        })
    });
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The numbers that rows are sorted by.
struct Rank {
    packets: u64,
    bytes: u64,
    dropped: u64,
}

fn source_row(talker: &Talker) -> (Rank, TableRow) {
    let [packets, bits, _, dropped, error] = amounts(talker);
    let cells = vec![packets, bits, dropped, error, left(&talker.limits), target(talker)];
    talker_row(talker, [cells, vec![word(&talker.user), word(&talker.reason)]].concat())
}

fn prefix_row(talker: &Talker) -> (Rank, TableRow) {
    talker_row(talker, [amounts(talker).to_vec(), vec![target(talker), word(&talker.reason)]].concat())
}

fn user_row(talker: &Talker) -> (Rank, TableRow) {
    let [packets, bits, _, dropped, error] = amounts(talker);
    // Of several leased limits, the largest part that was spent on this host.
    let here = talker.limits.iter().filter_map(|limit| limit.share_percent).max();
    let here = here.map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"));
    let cells = vec![packets, bits, dropped, error, left(&talker.limits), here];
    talker_row(talker, [cells, vec![target(talker), word(&talker.reason)]].concat())
}

/// Packets and bits per second, passed and dropped packets, and the error of the packets.
fn amounts(talker: &Talker) -> [String; 5] {
    [
        talker.packets_per_second,
        8.0 * talker.bytes_per_second,
        talker.passed_packets as f64,
        talker.dropped_packets as f64,
        talker.error_packets as f64,
    ]
    .map(short)
}

fn word(word: &Option<String>) -> String {
    word.clone().unwrap_or_else(|| "-".to_owned())
}

/// The service and the port that most packets are for: `dns:53`, `-:4711`, or `dns:53*` of a known client.
fn target(talker: &Talker) -> String {
    let port = talker.port.map_or_else(String::new, |port| format!(":{port}"));
    let known = if talker.known { "*" } else { "" };
    word(&talker.service) + &port + known
}

/// What is left of the limit that will refuse first, in percent.
fn left(limits: &[LimitLeft]) -> String {
    LimitLeft::tightest(limits).map_or_else(|| "-".to_owned(), |limit| format!("{}%", limit.left_percent))
}

fn talker_row(talker: &Talker, cells: Vec<String>) -> (Rank, TableRow) {
    let rank = Rank { packets: talker.packets(), bytes: talker.bytes, dropped: talker.dropped_packets };
    (rank, TableRow { name: talker.name().to_owned(), cells, is_refused: talker.dropped_packets > 0 })
}

fn service_row(service: &ServiceFlow) -> (Rank, TableRow) {
    let ServiceFlow { passed, dropped, replied, .. } = service;
    let sum = |of: &dyn Fn(&Flow) -> f64| (of(passed) + of(dropped) + of(replied)) as u64;
    let cells = vec![
        short(passed.packets_per_second),
        short(dropped.packets_per_second),
        short(replied.packets_per_second),
        short(8.0 * sum(&|flow| flow.bytes_per_second) as f64),
        left(&service.totals),
        total(&service.totals),
    ];
    let rank = Rank {
        packets: sum(&|flow| flow.packets_per_second),
        bytes: sum(&|flow| flow.bytes_per_second),
        dropped: dropped.packets_per_second as u64,
    };
    let name = if service.service.is_empty() { "(no service)".to_owned() } else { service.service.clone() };
    (rank, TableRow { name, cells, is_refused: dropped.packets_per_second > 0.0 })
}

/// The total that will refuse first, without its burst.
fn total(totals: &[LimitLeft]) -> String {
    let rate = |limit: &LimitLeft| limit.limit.split(" burst").next().unwrap_or_default().to_owned();
    LimitLeft::tightest(totals).map_or_else(|| "-".to_owned(), rate)
}

fn host_row(host: &ClusterHost) -> (Rank, TableRow) {
    let cells = vec![
        host.state.clone(),
        format!("{} ms", host.seen_ms_ago),
        host.behind.to_string(),
        short(host.leases as f64),
        format!("{} us", host.round_trip_us),
        host.program.clone(),
    ];
    // Sorted by name in every ranking, because a host has no packets of its own here.
    let rank = Rank { packets: 0, bytes: 0, dropped: 0 };
    (rank, TableRow { name: host.host.clone(), cells, is_refused: host.state != "here" })
}

fn reason_row(reason: &ReasonFlow) -> (Rank, TableRow) {
    let cells = vec![
        reason.verdict.clone(),
        short(reason.flow.packets_per_second),
        short(8.0 * reason.flow.bytes_per_second),
    ];
    let is_refused = matches!(reason.verdict.as_str(), "drop" | "rejected");
    let packets = reason.flow.packets_per_second as u64;
    let rank = Rank {
        packets,
        bytes: reason.flow.bytes_per_second as u64,
        dropped: if is_refused { packets } else { 0 },
    };
    (rank, TableRow { name: reason.reason.clone(), cells, is_refused })
}

/// A number in at most five characters: 999, 1.23k, 45.6k, 789k, 1.23M.
pub fn short(number: f64) -> String {
    let (scaled, unit) = match number {
        n if n < 999.5 => return format!("{n:.0}"),
        n if n < 999_500.0 => (n / 1e3, "k"),
        n if n < 999.5e6 => (n / 1e6, "M"),
        n if n < 999.5e9 => (n / 1e9, "G"),
        n => (n / 1e12, "T"),
    };
    let decimals = if scaled < 9.995 { 2 } else { usize::from(scaled < 99.95) };
    format!("{scaled:.decimals$}{unit}")
}

/// The host in three lines: its state, its traffic, and the error of the numbers of sources. An attack that goes on is a line more, the second.
pub fn summary(view: &StatsView) -> Vec<String> {
    let flow = |flow: &Flow| {
        format!("{} ({}bit/s)", short(flow.packets_per_second), short(8.0 * flow.bytes_per_second))
    };
    let sampling = &view.sampling;
    let how = match (&sampling.problem, sampling.one_in) {
        (Some(problem), _) => format!("no sources: {problem}"),
        (None, 0 | 1) if sampling.lost == 0 => format!("every packet looked at ({})", sampling.samples),
        (None, one_in) => format!(
            "{} packets looked at, down to one in {one_in}; unseen sources sent fewer than {}",
            sampling.samples,
            short(sampling.unseen_packets as f64)
        ),
    };
    let attack = view.attacks.first().map(|first| match view.attacks.len() {
        1 => first.clone(),
        all => format!("{first} (and {} more)", all - 1),
    });
    let state = format!("{}  mode {}  attack state {}", view.at, view.mode, view.attack_state);
    let traffic = [
        format!(
            "packets/s: passed {}  dropped {}  answered {}",
            flow(&view.passed),
            flow(&view.dropped),
            short(view.replied.packets_per_second)
        ),
        how,
    ];
    [state].into_iter().chain(attack).chain(traffic).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::stats::view::SamplingNote;

    fn talker(source: &str, passed: u64, dropped: u64, bytes: u64) -> Talker {
        Talker {
            source: Some(source.to_owned()),
            prefix: None,
            user: (source == "203.0.113.7").then(|| "acme".to_owned()),
            passed_packets: passed,
            dropped_packets: dropped,
            replied_packets: 0,
            bytes,
            packets_per_second: (passed + dropped) as f64,
            bytes_per_second: bytes as f64,
            error_packets: 12,
            service: Some("dns".to_owned()),
            reason: (dropped > 0).then(|| "limit_packets".to_owned()),
            port: Some(53),
            known: source == "203.0.113.7",
            limits: vec![
                LimitLeft::new("source", "500 packets/s burst 1000".to_owned(), 800, 1_000),
                LimitLeft::new("service", "100 packets/s".to_owned(), if dropped > 0 { 0 } else { 37 }, 100),
            ],
        }
    }

    /// A user on several hosts.
    fn user() -> Talker {
        let limit = LimitLeft::new("user", "20000 packets/s burst 40000".to_owned(), 12_000, 40_000);
        Talker {
            source: None,
            known: false,
            limits: vec![LimitLeft { leased: Some(500), share_percent: Some(64), ..limit }],
            ..talker("203.0.113.7", 700, 0, 99_000_000)
        }
    }

    /// The view of a second under attack.
    pub(in crate::tui) fn view() -> StatsView {
        let flow = |packets: f64| Flow { packets_per_second: packets, bytes_per_second: 100.0 * packets };
        StatsView {
            version: 1,
            at: "2026-11-16T12:00:00.000Z".to_owned(),
            span_ms: 1_000,
            passed: flow(1_234.0),
            dropped: flow(987_654.0),
            reasons: vec![
                ReasonFlow {
                    reason: "limit_packets".to_owned(),
                    verdict: "drop".to_owned(),
                    flow: flow(987_654.0),
                },
                ReasonFlow {
                    reason: "conforming".to_owned(),
                    verdict: "pass".to_owned(),
                    flow: flow(1_234.0),
                },
            ],
            services: vec![
                ServiceFlow {
                    service: String::new(),
                    passed: flow(34.0),
                    dropped: flow(0.0),
                    replied: flow(0.0),
                    totals: Vec::new(),
                },
                ServiceFlow {
                    service: "dns".to_owned(),
                    passed: flow(1_200.0),
                    dropped: flow(987_654.0),
                    replied: flow(0.0),
                    totals: vec![LimitLeft::new("total", "500000 packets/s burst 9".to_owned(), 4, 9)],
                },
            ],
            sources: vec![
                talker("198.51.100.9", 500, 900_000, 90_000_000),
                talker("203.0.113.7", 700, 0, 99_000_000),
                talker("2001:db8:0:1::/64", 34, 87_654, 3_000),
            ],
            sampling: SamplingNote { samples: 8_123, one_in: 64, unseen_packets: 192, ..Default::default() },
            attack_state: "flood".to_owned(),
            attacks: Vec::new(),
            mode: "enforce".to_owned(),
            users: vec![user()],
            hosts: vec![ClusterHost {
                host: "edge-2".to_owned(),
                state: "late".to_owned(),
                seen_ms_ago: 1_300,
                behind: 0,
                leases: 12,
                round_trip_us: 431,
                program: "1.0.0".to_owned(),
            }],
            ..StatsView::default()
        }
    }

    fn names(ranking: Ranking, filter: &str) -> Vec<String> {
        rows(&view(), Grouping::Source, ranking, filter).into_iter().map(|row| row.name).collect()
    }

    #[test]
    fn rows_are_in_the_order_that_was_asked_for_and_filtered_by_name() {
        assert_eq!(names(Ranking::Packets, ""), ["198.51.100.9", "2001:db8:0:1::/64", "203.0.113.7"]);
        assert_eq!(names(Ranking::Bytes, ""), ["203.0.113.7", "198.51.100.9", "2001:db8:0:1::/64"]);
        assert_eq!(names(Ranking::Dropped, "db8"), ["2001:db8:0:1::/64"]);
    }

    #[test]
    fn every_grouping_has_as_many_cells_as_heads() {
        for grouping in Grouping::value_variants() {
            for row in rows(&view(), *grouping, Ranking::Packets, "") {
                assert_eq!(row.cells.len() + 1, heads(*grouping).len(), "{grouping:?}");
            }
        }
    }

    #[test]
    fn numbers_take_at_most_five_characters() {
        for (number, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (9_994.0, "9.99k"),
            (9_996.0, "10.0k"),
            (99_960.0, "100k"),
            (999_600.0, "1.00M"),
            (12_345_678.0, "12.3M"),
            (5e9, "5.00G"),
            (1e15, "1000T"),
        ] {
            assert_eq!(short(number), text);
            assert!(short(number).len() <= 5);
        }
    }
}
