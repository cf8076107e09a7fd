//! What lies between two policies, as rows a person can read. Pure, and independent of the order in either file.
//!
//! Each policy is flattened into subjects with fields in words; what differs is a row. A new key of the policy is one more
//! field here.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use ratelimit_common::abi::{Meter, Mode, OnLimit, service::Protocol};
use serde::{Deserialize, Serialize};

use super::{
    ClusterPolicy, Difference, LadderFamily, NONE, NamedLimit, Policy, Prefix, Service, Sources, User, Users,
    words,
};

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// `limit source.packets`, `service dns`, `source`, `interfaces`, `listen`.
    pub subject: String,
    /// Which property of it; absent when it is the subject as a whole.
    pub field: Option<String>,
    /// Absent when the subject is new.
    pub before: Option<String>,
    /// Absent when the subject goes.
    pub after: Option<String>,
    /// Whether a running daemon cannot follow it.
    pub needs_restart: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        if let Some(field) = &self.field {
            write!(f, " {field}")?;
        }
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, ": {before} -> {after}")?,
            (None, Some(after)) => write!(f, " added: {after}")?,
            (Some(before), None) => write!(f, " removed: was {before}")?,
            (None, None) => {}
        }
        if self.needs_restart { f.write_str("; takes effect at the next start") } else { Ok(()) }
    }
}

/// Everything that differs, in a fixed order: limits, then the rest by name.
pub fn changes(before: &Policy, after: &Policy) -> Vec<Change> {
    let mut rows = limits(before.source().limits(), after.source().limits());
    let (old_users, new_users) =
        (unlike(before.users(), after.users()), unlike(after.users(), before.users()));
    let other_secret = other_secret(before, after);
    let (before, mut after) = (subjects(before, &old_users), subjects(after, &new_users));
    if other_secret
        && let Some((words, _)) = after.get_mut(CLUSTER).and_then(|fields| fields.get_mut("redis"))
    {
        words.push_str(" with another password or other certificates");
    }
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        match (before.get(name), after.get(name)) {
            (Some(before), Some(after)) => {
                rows.extend(fields(name, before, after));
                if let Some((old, new)) = old_users.get(name).zip(new_users.get(name)) {
                    rows.extend(source_rows(name, old, new));
                }
            }
            (before, after) => rows.push(Change {
                subject: name.clone(),
                field: None,
                before: before.map(|fields| in_words(fields, old_users.get(name).copied())),
                after: after.map(|fields| in_words(fields, new_users.get(name).copied())),
                needs_restart: [before, after].into_iter().flatten().any(needs_restart),
            }),
        }
    }
    rows
}

/// Names number the limits of a meter as they stand in the file, so limits are told apart by what they say: equal ones cancel
/// out, what is left is paired up from the slowest on.
fn limits(before: &[NamedLimit], after: &[NamedLimit]) -> Vec<Change> {
    let mut rows = Vec::new();
    for meter in Meter::ALL {
        let gone = only_in(before, after, meter);
        let come = only_in(after, before, meter);
        for at in 0..gone.len().max(come.len()) {
            let (old, new) = (gone.get(at), come.get(at));
            let Some(named) = old.or(new) else { continue };
            rows.push(Change {
                subject: format!("limit {}", named.name()),
                field: None,
                before: old.map(|limit| limit.rate().to_string()),
                after: new.map(|limit| limit.rate().to_string()),
                needs_restart: false,
            });
        }
    }
    rows
}

fn only_in<'a>(these: &'a [NamedLimit], those: &[NamedLimit], meter: Meter) -> Vec<&'a NamedLimit> {
    let absent = |limit: &&NamedLimit| those.iter().all(|other| other.rate() != limit.rate());
    let mut only: Vec<_> = these.iter().filter(|limit| limit.rate().meter == meter).filter(absent).collect();
    // Nanoseconds per unit in thousandths: slow ones first, whatever period they are written in.
    only.sort_by_key(|limit| {
        let rate = limit.rate();
        let price = u128::from(rate.period.ns()) * 1000 / u128::from(rate.amount.max(1));
        (std::cmp::Reverse(price), rate.burst)
    });
    only
}

/// A value in words, and whether a running daemon cannot follow it.
type Field = (String, bool);
type Fields = BTreeMap<&'static str, Field>;

/// Users that the other policy does not have, or not like that, by subject. Most of thousands stay as they are and need no words.
fn unlike<'p>(these: &'p Users, those: &Users) -> BTreeMap<String, &'p User> {
    let others: HashMap<&str, &User> = those.iter().map(|user| (user.name(), user)).collect();
    let differs = |user: &&User| others.get(user.name()) != Some(user);
    these.iter().filter(differs).map(|user| (format!("user {}", user.name()), user)).collect()
}

/// Prefixes that a user loses and gets.
fn source_rows(subject: &str, before: &User, after: &User) -> Vec<Change> {
    let Difference { gone, come } = before.sources().difference(after.sources());
    let row = |before: &[Prefix], after: &[Prefix]| Change {
        subject: subject.to_owned(),
        field: Some("sources".to_owned()),
        before: (!before.is_empty()).then(|| first_few(before)),
        after: (!after.is_empty()).then(|| first_few(after)),
        needs_restart: false,
    };
    let rows = [row(&gone, &[]), row(&[], &come)];
    rows.into_iter().filter(|row| row.before.is_some() || row.after.is_some()).collect()
}

/// Prefixes shown of what can be thousands.
const SHOWN: usize = 8;

fn first_few(prefixes: &[Prefix]) -> String {
    let shown: Vec<String> = prefixes.iter().take(SHOWN).map(ToString::to_string).collect();
    match prefixes.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn subjects(policy: &Policy, users: &BTreeMap<String, &User>) -> BTreeMap<String, Fields> {
    let mut subjects = BTreeMap::new();
    let source = policy.source();
    let gate = if policy.gate().enabled() { "true" } else { "false" };
    subjects.insert(
        "source".to_owned(),
        Fields::from([
            ("ipv4_prefix", (source.ipv4_prefix().to_string(), false)),
            ("ipv6_prefix", (source.ipv6_prefix().to_string(), false)),
            ("table_entries", (source.table_entries().to_string(), true)),
            ("gate", (gate.to_owned(), false)),
            ("ladder ipv4", (rungs(policy, LadderFamily::V4), false)),
            ("ladder ipv6", (rungs(policy, LadderFamily::V6), false)),
            ("new_sources_per_cpu", (policy.gate().new_sources_per_cpu().to_string(), false)),
        ]),
    );
    let names: BTreeSet<String> = policy.interfaces().iter().map(ToString::to_string).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    let names = if names.is_empty() { NONE.to_owned() } else { names };
    subjects.insert("interfaces".to_owned(), Fields::from([("", (names, true))]));
    let metrics = policy.listen().metrics().map_or_else(|| NONE.to_owned(), |address| address.to_string());
    subjects.insert("listen".to_owned(), Fields::from([("metrics", (metrics, true))]));
    for service in policy.services().iter() {
        subjects.insert(format!("service {}", service.name()), of_service(service));
    }
    for plan in policy.users().plans() {
        let network = Fields::from([("network", (words(plan.network()), false))]);
        subjects.insert(format!("plan {}", plan.name()), network);
    }
    subjects.extend(users.iter().map(|(subject, user)| (subject.clone(), of_user(user))));
    if let Some(cluster) = policy.cluster() {
        subjects.insert(CLUSTER.to_owned(), of_cluster(cluster));
    }
    let mode = match policy.mode() {
        Mode::Enforce => "enforce",
        Mode::Monitor => "monitor",
    };
    subjects.insert("mode".to_owned(), Fields::from([("", (mode.to_owned(), false))]));
    subjects
}

/// The table's name, and the subject's.
const CLUSTER: &str = "cluster";

/// A running daemon keeps the store that it has, and what it has agreed with other hosts.
fn of_cluster(cluster: &ClusterPolicy) -> Fields {
    let permille = cluster.reserve().permille();
    let reserve = match permille % 10 {
        0 => format!("{}%", permille / 10),
        tenths => format!("{}.{tenths}%", permille / 10),
    };
    let host = cluster.host().map_or_else(|| "as the system calls it".to_owned(), ToOwned::to_owned);
    let fields = [
        ("redis", cluster.redis().to_string()),
        ("name", cluster.name().to_owned()),
        ("host", host),
        ("hosts", cluster.hosts().to_string()),
        ("reserve", reserve),
        ("tick", format!("{} ms", cluster.tick().as_millis())),
        ("lease", format!("{} ms", cluster.lease().as_millis())),
        ("without_store", cluster.without_store().name().to_owned()),
    ];
    fields.into_iter().map(|(name, text)| (name, (text, true))).collect()
}

/// Whether the stores of two policies differ in what is never shown.
fn other_secret(before: &Policy, after: &Policy) -> bool {
    let stores = before.cluster().zip(after.cluster()).map(|(old, new)| (old.redis(), new.redis()));
    stores.is_some_and(|(old, new)| old != new && old.to_string() == new.to_string())
}

fn needs_restart(fields: &Fields) -> bool {
    fields.values().any(|(_, must)| *must)
}

fn of_user(user: &User) -> Fields {
    // A plan that changes is one row, however many are on it.
    let network = user.own().map_or_else(|| "of its plan".to_owned(), words);
    let mut fields = Fields::from([("network", (network, false))]);
    if let Some(plan) = user.plan() {
        fields.insert("plan", (plan.to_owned(), false));
    }
    fields
}

fn rungs(policy: &Policy, family: LadderFamily) -> String {
    let rungs: Vec<String> = policy.ladder().rungs(family).iter().map(ToString::to_string).collect();
    if rungs.is_empty() { NONE.to_owned() } else { rungs.join(", ") }
}

fn of_service(service: &Service) -> Fields {
    let mut fields = Fields::from([("match", (matching(service), false))]);
    for rate in service.totals() {
        let field = match rate.meter {
            Meter::Bytes => "total in bytes",
            _ => "total in packets",
        };
        fields.insert(field, (rate.to_string(), false));
    }
    if let Some(rate) = service.syn_cookies() {
        fields.insert("syn_cookies", (rate.to_string(), false));
    }
    if !service.per_source().is_empty() {
        fields.insert("per_source", (words(service.per_source()), false));
    }
    if service.on_limit() != OnLimit::Drop {
        fields.insert("on_limit", (service.on_limit().name().to_owned(), false));
    }
    if service.on_limit() == OnLimit::Mark {
        fields.insert("dscp", (service.dscp().to_string(), false));
    }
    fields
}

/// `udp 53, 5300-5399 to 192.0.2.0/24`: the same for the same ports and destinations, however they are written.
fn matching(service: &Service) -> String {
    let protocol = match service.protocol() {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    let mut ranges: Vec<(u16, u16)> =
        service.ports().iter().map(|range| (*range.start(), *range.end())).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if u32::from(first) <= u32::from(*end) + 1 => *end = (*end).max(last),
            _ => merged.push((first, last)),
        }
    }
    let words = merged.iter().map(
        |(first, last)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        },
    );
    let ports = words.collect::<Vec<_>>().join(", ");
    let destinations: BTreeSet<&Prefix> = service.destinations().iter().collect();
    let destinations: Vec<String> = destinations.into_iter().map(ToString::to_string).collect();
    let to = if destinations.is_empty() { "" } else { " to " };
    format!("{protocol} {ports}{to}{}", destinations.join(", "))
}

fn fields(subject: &str, before: &Fields, after: &Fields) -> Vec<Change> {
    let names: BTreeSet<&&str> = before.keys().chain(after.keys()).collect();
    let differs = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let value = |side: &Fields, name: &str| side.get(name).map_or(NONE.to_owned(), |(text, _)| text.clone());
    differs
        .map(|name| Change {
            subject: subject.to_owned(),
            field: (!name.is_empty()).then(|| (*name).to_owned()),
            before: Some(value(before, name)),
            after: Some(value(after, name)),
            needs_restart: [before, after].iter().any(|side| side.get(name).is_some_and(|(_, must)| *must)),
        })
        .collect()
}

fn in_words(fields: &Fields, user: Option<&User>) -> String {
    let mut words: Vec<String> = fields.iter().map(|(name, (text, _))| format!("{name} {text}")).collect();
    if let Some(user) = user {
        let all = Sources::default().difference(user.sources()).come;
        words.push(format!("sources {}", if all.is_empty() { NONE.to_owned() } else { first_few(&all) }));
    }
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config;

    fn policy(text: &str) -> Policy {
        config::parse(text, "p.toml").unwrap_or_else(|error| panic!("{error}")).policy
    }

    fn sentences(before: &str, after: &str) -> Vec<String> {
        changes(&policy(before), &policy(after)).iter().map(ToString::to_string).collect()
    }

    const OLD: &str = r#"
        interfaces = ["eth0"]
        [source]
        limits = ["5000 packets/s burst 10000", "100 syns/s"]
        [[service]]
        name = "dns"
        match = { protocol = "udp", ports = [53] }
        total = ["100000 packets/s"]
        [[service]]
        name = "game"
        match = { protocol = "udp", ports = ["27000-27050"] }
        total = ["1 Gbit/s"]
    "#;

    #[test]
    fn every_kind_of_change_has_its_sentence() {
        let new = r#"
            interfaces = ["eth1", "eth0"]
            [source]
            limits = ["1000 packets/s burst 2000", "40 Mbit/s"]
            ipv6_prefix = 56
            table_entries = 1000
            [[service]]
            name = "dns"
            match = { protocol = "udp", ports = [53, 54] }
            total = ["100000 packets/s", "1 MB/s"]
            [[service]]
            name = "web"
            match = { protocol = "tcp", ports = [443, 80] }
            syn_cookies = "1000 syns/s"
            [listen]
            metrics = "127.0.0.1:9464"
        "#;
        assert_eq!(
            sentences(OLD, new),
            [
                "limit source.packets: 5000 packets/s burst 10000 -> 1000 packets/s burst 2000",
                "limit source.bytes added: 5000000 bytes/s burst 5000000 bytes",
                "limit source.syns removed: was 100 syns/s burst 100",
                "interfaces: eth0 -> eth0, eth1; takes effect at the next start",
                "listen metrics: none -> 127.0.0.1:9464; takes effect at the next start",
                "service dns match: udp 53 -> udp 53-54",
                "service dns total in bytes: none -> 1000000 bytes/s burst 1000000 bytes",
                "service game removed: was match udp 27000-27050; total in bytes 125000000 bytes/s burst 125000000 bytes",
                "service web added: match tcp 80, 443; syn_cookies 1000 syns/s burst 1000",
                "source ipv6_prefix: 64 -> 56",
                "source ladder ipv6: /56 x4, /48 x64, /32 x1024 -> /48 x64, /32 x1024",
                "source table_entries: 262144 -> 1000; takes effect at the next start",
            ]
        );
    }

    #[test]
    fn the_order_in_a_file_is_no_change() {
        let turned = r#"
            interfaces = ["eth0"]
            [[service]]
            name = "game"
            total = ["1 Gbit/s"]
            match = { ports = ["27001-27050", 27000], protocol = "udp" }
            [[service]]
            name = "dns"
            match = { protocol = "udp", ports = [53] }
            total = ["100000 packets/s burst 100000"]
            [source]
            limits = ["100 syns/s", "5000 packets/s burst 10000"]
        "#;
        assert_eq!(sentences(OLD, turned), [""; 0]);
        assert_eq!(sentences(OLD, OLD), [""; 0]);
    }

    #[test]
    fn destinations_are_shown_sorted_and_their_order_is_no_change() {
        let to = |destinations: &str| OLD.replace("ports = [53]", &format!("ports = [53]{destinations}"));
        let two = to(", destinations = [\"2001:db8::/32\", \"192.0.2.0/24\"]");
        assert_eq!(
            sentences(OLD, &two),
            ["service dns match: udp 53 -> udp 53 to 192.0.2.0/24, 2001:db8::/32"]
        );
        let turned = to(", destinations = [\"192.0.2.0/24\", \"2001:db8::/32\"]");
        assert_eq!(sentences(&two, &turned), [""; 0]);
    }

    #[test]
    fn two_limits_of_a_meter_that_change_places_are_no_change_and_one_that_changes_is_one() {
        let two = |limits: &str| format!("[source]\nlimits = [{limits}]\n");
        let before = two("\"100/s burst 100\", \"1000/min burst 2000\"");
        assert_eq!(sentences(&before, &two("\"1000/min burst 2000\", \"100/s burst 100\"")), [""; 0]);
        assert_eq!(
            sentences(&before, &two("\"1000/min burst 2000\", \"50/s burst 100\"")),
            ["limit source.packets: 100 packets/s burst 100 -> 50 packets/s burst 100"]
        );
    }

    /// Services of one port each, in a given order.
    fn with_services(services: &[(u16, bool, u32)]) -> Policy {
        let mut text = "[source]\nlimits = [\"10/s\"]\n".to_owned();
        for (port, tcp, total) in services {
            let protocol = if *tcp { "tcp" } else { "udp" };
            text += &format!(
                "[[service]]\nname = \"s{port}\"\ntotal = [\"{total}/s\"]\n\
                 match = {{ protocol = \"{protocol}\", ports = [{port}] }}\n"
            );
        }
        policy(&text)
    }

    proptest! {
        #[test]
        fn shuffled_services_are_no_change_and_a_changed_one_is_one_row_both_ways(
            services in prop::collection::btree_map(1_u16.., (any::<bool>(), 1_u32..1_000_000), 1..20)
                .prop_map(|map| map.into_iter().map(|(port, (tcp, total))| (port, tcp, total)).collect::<Vec<_>>()),
            seed in any::<prop::sample::Index>(),
        ) {
            let before = with_services(&services);
            let mut turned = services.clone();
            turned.rotate_left(seed.index(services.len()));
            turned.reverse();
            prop_assert_eq!(changes(&before, &with_services(&turned)), []);
            let at = seed.index(turned.len());
            turned[at].2 += 1;
            let after = with_services(&turned);
            let (there, back) = (changes(&before, &after), changes(&after, &before));
            prop_assert_eq!(there.len(), 1);
            prop_assert_eq!((&there[0].before, &there[0].after), (&back[0].after, &back[0].before));
        }
    }

    #[test]
    fn whatever_changes_of_the_cluster_takes_a_restart_and_no_password_is_shown() {
        let cluster = |lines: &str| format!("{OLD}\n[cluster]\n{lines}\n");
        let old = cluster("redis = \"redis://me:s3cret@h\"");
        assert_eq!(
            sentences(OLD, &old),
            [
                "cluster added: host as the system calls it; hosts 16; lease 1000 ms; name ratelimit; redis redis://me@h:6379; \
              reserve 5%; tick 50 ms; without_store reserve; takes effect at the next start"
            ]
        );
        assert!(sentences(&old, OLD)[0].starts_with("cluster removed: was host as the system calls it; "));
        let new = "redis = \"redis+cluster://a,b\"\nname = \"edge\"\nhost = \"a\"\nhosts = 3\nreserve = \"2.5%\"\n\
                   tick = \"20ms\"\nlease = \"2s\"\nwithout_store = \"last-rate\"";
        let rows = changes(&policy(&old), &policy(&cluster(new)));
        assert!(rows.iter().all(|row| row.needs_restart && row.subject == "cluster"), "{rows:#?}");
        let rows: Vec<String> = rows
            .iter()
            .map(|row| {
                format!(
                    "{}: {} -> {}",
                    row.field.as_deref().unwrap(),
                    row.before.as_deref().unwrap(),
                    row.after.as_deref().unwrap()
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                "host: as the system calls it -> a",
                "hosts: 16 -> 3",
                "lease: 1000 ms -> 2000 ms",
                "name: ratelimit -> edge",
                "redis: redis://me@h:6379 -> redis+cluster://a:6379,b:6379",
                "reserve: 5% -> 2.5%",
                "tick: 50 ms -> 20 ms",
                "without_store: reserve -> last-rate",
            ]
        );
        let other = cluster("redis = \"redis://me:0ther@h\"");
        assert_eq!(
            sentences(&old, &other),
            [
                "cluster redis: redis://me@h:6379 -> redis://me@h:6379 with another password or other certificates; \
              takes effect at the next start"
            ]
        );
        assert_eq!(sentences(&old, &cluster("redis = \"redis://me:s3cret@h:6379/0\"\nhosts = 16")), [""; 0]);
    }

    #[test]
    fn what_is_added_one_way_is_removed_the_other() {
        let one = "[source]\nlimits = [\"10/s\"]\n";
        let more = "[source]\nlimits = [\"10/s\", \"5 syns/s\"]\n";
        assert_eq!(sentences(one, more), ["limit source.syns added: 5 syns/s burst 5"]);
        assert_eq!(sentences(more, one), ["limit source.syns removed: was 5 syns/s burst 5"]);
    }
}
