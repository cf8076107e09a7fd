//! Counters and rates for people.

use super::super::output::table;
use crate::{
    control::protocol::{StatsReply, UserBucket, UserInfo},
    stats::{Columns, ServiceCount, Snapshot, flow::Flow, rates::Rates},
};

/// Users that are shown: thousands of them are a list of their own.
const USERS: usize = 20;

pub(super) fn text(counters: &StatsReply, rates: Option<&Rates>) -> String {
    let mut text = reasons(&counters.snapshot, rates);
    let named = counters.snapshot.services.iter().any(|service| !service.service.is_empty());
    if named {
        text.push('\n');
        text.push_str(&services(&counters.snapshot.services, rates));
    }
    if !counters.users.is_empty() {
        text.push('\n');
        text.push_str(&users(&counters.users));
    }
    if let Some(words) = counters.snapshot.known.words() {
        let rate = rates.map(|rates| [rates.known.admitted, rates.known.refused].map(rounded));
        let rate = rate
            .map_or_else(String::new, |[first, refused]| format!(", now {first} and {refused} packets/s"));
        text.push_str(&format!("\n{words}{rate}\n"));
    }
    text.push('\n');
    text.push_str(&match rates {
        Some(rates) => format!("rates are those of the last {} s\n", rounded(rates.span_ms as f64 / 1e3)),
        None => "no rates: this is the first look, or counters began anew; ask again, or use --for 5s\n"
            .to_owned(),
    });
    text
}

fn reasons(snapshot: &Snapshot, rates: Option<&Rates>) -> String {
    let row = |verdict: &str, reason: &str, (packets, bytes): (u64, u64), rate: Option<Flow>| {
        let mut row =
            vec![verdict.replace('_', " "), reason.to_owned(), packets.to_string(), bytes.to_string()];
        row.extend(rate.into_iter().flat_map(cells));
        row
    };
    let totals = snapshot.totals();
    let of = |flow: fn(&Rates) -> Flow| rates.map(flow);
    let mut rows = vec![
        row("pass", "total", (totals.passed_packets, totals.passed_bytes), of(|rates| rates.passed)),
        row("reply", "total", (totals.replied_packets, totals.replied_bytes), of(|rates| rates.replied)),
        row("drop", "total", (totals.dropped_packets, totals.dropped_bytes), of(|rates| rates.dropped)),
    ];
    let Columns { reasons, would_drop, marked, rejected } = &snapshot.columns;
    let decided =
        reasons.iter().filter(|count| count.packets > 0).map(|count| (count.verdict.as_str(), count));
    let others = [("would_drop", would_drop), ("marked", marked), ("rejected", rejected)];
    let others = others.into_iter().flat_map(|(word, counts)| counts.iter().map(move |count| (word, count)));
    for (verdict, count) in decided.chain(others) {
        let rate = rates.map(|rates| rates.of(verdict, &count.reason));
        rows.push(row(verdict, &count.reason, (count.packets, count.bytes), rate));
    }
    table(&header(&["verdict", "reason", "packets", "bytes"], &["packets/s", "bytes/s"], rates), &rows)
}

fn services(services: &[ServiceCount], rates: Option<&Rates>) -> String {
    let row = |service: &ServiceCount| {
        let totals = service.columns.totals();
        let name = if service.service.is_empty() { "(none)" } else { &service.service };
        let counts = [totals.passed_packets, totals.replied_packets, totals.dropped_packets];
        let mut row = vec![name.to_owned()];
        row.extend(counts.map(|count| count.to_string()));
        if let Some(rates) = rates {
            let rate = rates.services.iter().find(|rate| rate.service == service.service);
            let flows = rate.map(|rate| [rate.passed, rate.replied, rate.dropped]).unwrap_or_default();
            row.extend(flows.map(|flow| rounded(flow.packets_per_second)));
        }
        row
    };
    let header = header(
        &["service", "passed", "answered", "dropped"],
        &["passed/s", "answered/s", "dropped/s"],
        rates,
    );
    table(&header, &services.iter().map(row).collect::<Vec<_>>())
}

/// Users and their limits, those with the least left of a burst first.
fn users(users: &[UserInfo]) -> String {
    let limits =
        users.iter().flat_map(|user| user.buckets.iter().flatten().map(move |bucket| (user, bucket)));
    let mut limits: Vec<(&UserInfo, &UserBucket)> = limits.collect();
    let spent = |bucket: &UserBucket| bucket.left as f64 / bucket.burst.max(1) as f64;
    limits.sort_by(|(_, one), (_, other)| spent(one).total_cmp(&spent(other)));
    let row = |(user, bucket): &(&UserInfo, &UserBucket)| {
        vec![
            user.name.clone(),
            user.plan.clone().unwrap_or_default(),
            bucket.limit.clone(),
            bucket.left.to_string(),
            bucket.burst.to_string(),
        ]
    };
    let rows: Vec<_> = limits.iter().take(USERS).map(row).collect();
    let mut text = table(&["user", "plan", "limit", "left", "burst"], &rows);
    if limits.len() > USERS {
        text.push_str(&format!("and {} more: ratelimit user list\n", limits.len() - USERS));
    }
    text
}

fn header<'a>(always: &[&'a str], with_rates: &[&'a str], rates: Option<&Rates>) -> Vec<&'a str> {
    let more = if rates.is_some() { with_rates } else { &[] };
    [always, more].concat()
}

fn cells(rate: Flow) -> [String; 2] {
    [rounded(rate.packets_per_second), rounded(rate.bytes_per_second)]
}

/// Small numbers with a decimal, large ones without.
fn rounded(number: f64) -> String {
    if number > 0.0 && number < 100.0 { format!("{number:.1}") } else { format!("{number:.0}") }
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::{Counter, Reason, counter::Fate};

    use super::*;
    use crate::{
        compile::Places,
        stats::{Count, known_packets::KnownPackets},
    };

    fn counters(packets: u64) -> StatsReply {
        let known = KnownPackets { admitted: packets * 3, refused: packets };
        let names = Places::after(&Places::default(), ["dns"].into_iter(), 1);
        let counter = Counter { packets, bytes: 60 * packets };
        let one = |service, reason| Count { service, reason, fate: Fate::Decided, counter };
        let snapshot = Snapshot::new(&[one(0, Reason::Conforming), one(1, Reason::LimitPackets)], &names);
        let bucket =
            |left| UserBucket { limit: "9/s".to_owned(), left, burst: 10, leased: None, share_percent: None };
        let user = |name: &str, left| UserInfo {
            name: name.to_owned(),
            plan: None,
            own: true,
            sources: Vec::new(),
            network: Vec::new(),
            buckets: Some(vec![bucket(left)]),
        };
        let snapshot = Snapshot { known, ..snapshot };
        StatsReply { snapshot, before: None, users: vec![user("idle", 10), user("busy", 1)] }
    }

    #[test]
    fn rates_stand_beside_counts_and_services_and_users_below_them() {
        let (before, after) = (counters(100), counters(350));
        let rates = Rates::between(&before.snapshot, &after.snapshot, 2_000).unwrap();
        let text = text(&after, Some(&rates));
        for line in [
            "verdict  reason         packets  bytes  packets/s  bytes/s",
            "pass     total              350  21000  125        7500",
            "drop     limit_packets      350  21000  125        7500",
            "dns         0      0  350  0      0    125",
            "busy        9/s       1  10",
            "known clients: 1050 packets came first, 350 were refused (25.0 %), now 375 and 125 packets/s",
            "rates are those of the last 2.0 s",
        ] {
            let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.lines().any(|it| squeezed(it) == squeezed(line)), "{line:?} is not in\n{text}");
        }
        let at = |word: &str| text.find(word).unwrap();
        assert!(at("busy") < at("idle"), "who has least left comes first:\n{text}");
    }

    #[test]
    fn without_an_earlier_look_counts_stand_alone() {
        let text = text(&counters(3), None);
        assert!(text.starts_with("verdict  reason") && !text.contains("packets/s"), "{text}");
        assert!(text.contains("use --for 5s"), "{text}");
        assert_eq!([0.0, 0.04, 7.25, 99.9, 1234.5].map(rounded), ["0", "0.0", "7.2", "99.9", "1234"]);
    }
}
