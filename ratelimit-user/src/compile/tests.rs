//! The compiler's output compared with saved output, and with the output for the same policy in another order.
//!
//! `UPDATE_GOLDEN=1 cargo test -p ratelimit-user golden` rewrites the golden files; explain what changed in them.

mod changes;
mod debts;
mod sets;
mod tables;

use std::{fmt::Write as _, fs, path::Path};

use proptest::prelude::*;
use ratelimit_common::abi::{
    Clock, Limit, LimitSet, LinkLimits,
    limit::{NO_METER, cpus},
    link::LINK_NEIGHBOURS,
    service::{HOST_TOTAL, PORT_SLOTS},
};

use ratelimit_common::abi::user::MAX_USERS;

use super::*;
use crate::{config, policy::Policy};

const FACTS: HostFacts = HostFacts {
    cpus: 4,
    tick_ns: 4_000_000,
    secret: [1, 2],
    cookies: true,
    translated: Vec::new(),
    window_scale: Some(7),
    headroom: true,
    reserve: None,
};

fn policy(text: &str) -> Policy {
    config::parse(text, "p.toml").unwrap_or_else(|error| panic!("{error}\n{text}")).policy
}

/// The compiled policy as text for the golden files.
fn shown(desired: &Desired) -> String {
    let mut text = String::new();
    let policy = &desired.policy;
    let mut line = |what: &str, value: String| {
        let _written = writeln!(text, "{what}: {value}");
    };
    line("source", set(&policy.source.set));
    line(
        "masks",
        format!("{:x} {:x} {:x}", policy.source.v4_mask, policy.source.v6_mask_hi, policy.source.v6_mask_lo),
    );
    line("new sources", limit(&policy.prefilter.new_sources));
    line("proofs", limit(&policy.prefilter.proofs));
    let aggregation = &policy.aggregation;
    line(
        "ladder",
        format!(
            "{} {} {} {} {}",
            aggregation.tolerance_q8,
            aggregation.unproven_tolerance_q8,
            aggregation.adds,
            aggregation.cell_tolerance_q8,
            aggregation.packet_q8
        ),
    );
    for prefix_level in
        aggregation.prefix_levels.iter().flatten().filter(|prefix_level| prefix_level.multiple != 0)
    {
        line(
            "rung",
            format!(
                "{:x} {:x} x{} {}",
                prefix_level.mask_hi, prefix_level.mask_lo, prefix_level.multiple, prefix_level.reciprocal
            ),
        );
    }
    line("clock, mode", format!("{} {}", policy.clock, policy.mode));
    line("link", format!("{}; own {}", limit(&policy.link.shared), limit(&policy.link.own)));
    line("cookies", format!("{} {}", policy.cookie_services, policy.window_scale));
    for (index, name) in desired.names.services.iter() {
        let service = &policy.services[index];
        line(
            &format!("service {index} {name}"),
            format!("on_limit {}, cookies {}", service.on_limit, limit(&service.syn_cookies)),
        );
        line("  per source", set(&service.per_source));
        for total in &service.totals[..service.total_count as usize] {
            line(
                "  total",
                format!(
                    "{}, untracked {}, portion {}",
                    limit(&total.limit),
                    total.untracked_tolerance_q8,
                    total.portion_q8
                ),
            );
        }
        let ports: Vec<usize> =
            (0..PORT_SLOTS).filter(|slot| usize::from(policy.ports[*slot]) == index + 1).collect();
        line("  ports", format!("{} from slot {:?} to {:?}", ports.len(), ports.first(), ports.last()));
    }
    for ((index, name), (_, limits)) in desired.names.users.iter().zip(&desired.users) {
        line(&format!("user {index} {name}"), set(limits));
    }
    let mut prefixes: Vec<_> = desired.user_prefixes().collect();
    prefixes.sort();
    for (prefix, user) in prefixes {
        line("  prefix", format!("{prefix} of {user}"));
    }
    text
}

fn set(set: &LimitSet) -> String {
    let limits: Vec<String> = set.limits[..set.limit_count as usize].iter().map(limit).collect();
    format!(
        "[{}] longest {} gate {} adds {:b}",
        limits.join("; "),
        set.longest_tolerance_q8,
        set.prefilter_tolerance_q8,
        set.adds & (cpus(1) - 1)
    )
}

fn limit(limit: &Limit) -> String {
    match limit.meter {
        NO_METER => "none".to_owned(),
        meter => format!(
            "meter {meter} price {} / 2^{} up to {}",
            limit.cost_fp, limit.frac_bits, limit.tolerance_q8
        ),
    }
}

#[test]
fn the_worked_policies_compile_to_what_the_golden_files_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["api", "dns", "game", "web"] {
        let text = fs::read_to_string(root.join(format!("../docs/policies/{name}.toml"))).unwrap();
        let compiled = shown(&desired(&policy(&text), &FACTS, 1, None));
        let golden = root.join(format!("src/compile/golden/{name}.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &compiled).unwrap();
        }
        assert_eq!(compiled, fs::read_to_string(&golden).unwrap(), "{}", golden.display());
    }
}

#[test]
fn a_total_of_the_host_keeps_its_place_and_what_cpus_hold_of_it_is_taken_back_when_it_changes() {
    let with = |host: &str| policy(&format!("[source]\nlimits = [\"1000/s\"]\n{host}"));
    let (bytes, both) =
        (with("[host]\ntotal = [\"1 MB/s\"]\n"), with("[host]\ntotal = [\"100/s\", \"1 MB/s\"]\n"));
    let before = desired(&bytes, &FACTS, 1, None);
    assert_eq!((before.policy.host_total_count, before.changed_totals.len()), (1, 0));
    let after = desired(&both, &FACTS, 2, Some(Before::known(&before.policy, &before, 0)));
    assert_eq!(after.policy.host_total_count, 2);
    assert_eq!(after.policy.host_totals[0], before.policy.host_totals[0], "bytes stay where they were");
    assert_eq!(after.changed_totals, [HOST_TOTAL]);
    let same = desired(&both, &FACTS, 3, Some(Before::known(&after.policy, &after, 0)));
    assert!(same.keeps_policy && same.changed_totals.is_empty());
    let gone = desired(&with(""), &FACTS, 4, Some(Before::known(&after.policy, &after, 0)));
    assert_eq!((gone.policy.host_total_count, &gone.changed_totals[..]), (0, &[HOST_TOTAL][..]));
}

#[test]
fn one_burst_of_anybody_that_the_lag_would_eat_makes_the_clock_precise() {
    let coarse = "[source]\nlimits = [\"100000/s\"]\n[[service]]\nname = \"s\"\nmatch = { protocol = \"icmp\" }\n\
                  per_source = [\"100000/s\"]\ntotal = [\"100000/s\"]\n[[user]]\nname = \"u\"\n\
                  sources = [\"192.0.2.0/24\"]\nnetwork = [\"100000/s\"]\n[host]\ntotal = [\"100000/s\"]\n";
    let clock = |text: &str| desired(&policy(text), &FACTS, 1, None).policy.clock();
    assert_eq!(clock(coarse), Clock::Coarse);
    let places: Vec<usize> = coarse.match_indices("100000/s").map(|(at, _)| at).collect();
    assert_eq!(places.len(), 5, "source, service, total, user, host");
    for at in places {
        // The first has fewer than 64 packets at once; the second a burst of at most 96 ms, of which three ticks of 4 ms are an eighth.
        for small in ["100/s burst 63", "100000/s burst 9500"] {
            let text = format!("{}{small}{}", &coarse[..at], &coarse[at + "100000/s".len()..]);
            assert_eq!(clock(&text), Clock::Precise, "{text}");
        }
        // A window uses the precise clock by itself.
        let text = format!("{}10/s fixed-window{}", &coarse[..at], &coarse[at + "100000/s".len()..]);
        if let Ok(loaded) = config::parse(&text, "p.toml") {
            assert_eq!(desired(&loaded.policy, &FACTS, 1, None).policy.clock(), Clock::Coarse, "{text}");
        }
    }
}

#[test]
fn prefixes_answer_before_sources_only_where_packets_weigh_alike() {
    let cost = |text: &str| desired(&policy(text), &FACTS, 1, None).policy.aggregation.packet_q8;
    let one = cost("[source]\nlimits = [\"1000 packets/s\"]\n");
    assert_eq!(one, 1_000_000 << 8, "a millisecond");
    assert_eq!(
        cost("[source]\nlimits = [\"1000 packets/s\", \"10000 packets/min\", \"9 syns/s\"]\n"),
        6 * one
    );
    for other in [
        "[source]\nlimits = [\"1000 packets/s\", \"1 MB/s\"]\n",
        "[source]\nlimits = [\"9 syns/s\"]\n",
        "[source]\ngate = false\nlimits = [\"1000 packets/s\"]\n",
        "[source]\nlimits = [\"1000 packets/s\", \"5000 packets/min sliding-window\"]\n",
        "[source]\nlimits = [\"1000 packets/s\"]\n[[user]]\nname = \"u\"\nsources = [\"10.0.0.0/8\"]\nnetwork = [\"9/s\"]\n",
        "[source]\nlimits = [\"1000 packets/s\"]\n[[service]]\nname = \"s\"\nmatch = { protocol = \"icmp\" }\nper_source = [\"9/s\"]\n",
    ] {
        assert_eq!(cost(other), 0, "{other}");
    }
}

#[test]
fn a_user_that_is_new_begins_full_and_others_go_on() {
    let with = |names: &[&str]| {
        let user = |(at, name): (usize, &&str)| {
            let (high, low) = (at / 256, at % 256);
            format!(
                "[[user]]\nname = \"{name}\"\nsources = [\"10.{high}.{low}.0/24\"]\nnetwork = [\"10/s\"]\n"
            )
        };
        let users: String = names.iter().enumerate().map(user).collect();
        policy(&format!("[source]\nlimits = [\"1000/s\"]\n{users}"))
    };
    let first = desired(&with(&["a", "b"]), &FACTS, 1, None);
    assert_eq!(first.new_users, [0_u32; 0], "what the maps are made with is full");
    let follow = |before: &Desired, names: &[&str]| {
        desired(&with(names), &FACTS, 2, Some(Before::known(&before.policy, before, 0)))
    };
    let second = follow(&first, &["b"]);
    assert_eq!(second.new_users, [0_u32; 0]);
    let third = follow(&second, &["b", "c"]);
    assert_eq!(third.names.users.of("c"), Some(2), "an index that nobody had");
    assert_eq!((&third.new_users[..], &third.new_user_windows[..]), (&[2][..], &[8, 9, 10, 11][..]));
    assert_eq!(follow(&third, &["b", "c"]).new_users, [0_u32; 0]);
    // Where every index is taken, a new user gets the one that another leaves in the same step, and nothing of what that one had spent.
    let crowd: Vec<String> = (0..MAX_USERS).map(|at| format!("u{at}")).collect();
    let mut names: Vec<&str> = crowd.iter().map(String::as_str).collect();
    let before = desired(&with(&names), &FACTS, 1, None);
    let left = before.names.users.of("u7").unwrap() as u32;
    names[7] = "c";
    let after = follow(&before, &names);
    assert_eq!(after.names.users.of("c"), Some(left as usize), "the index that u7 had");
    let windows: Vec<u32> = (4 * left..4 * left + 4).collect();
    assert_eq!((&after.new_users[..], &after.new_user_windows[..]), (&[left][..], &windows[..]));
}

#[test]
fn a_cap_on_links_is_halved_and_one_half_divided_among_neighbours() {
    let with =
        |host: &str| desired(&policy(&format!("[source]\nlimits = [\"1000/s\"]\n{host}")), &FACTS, 1, None);
    let link = with("").policy.link;
    let second_q8 = 1_000_000_000 << 8;
    assert_eq!(second_q8 / link.shared.cost_fp, 10_000);
    assert_eq!(link.own.cost_fp, link.shared.cost_fp * u64::from(LINK_NEIGHBOURS));
    assert!(link.own.tolerance_q8 / link.own.cost_fp >= 19, "{link:?}");
    let least = with("[host]\nlink = \"100 packets/s\"\n").policy.link;
    assert_eq!(least.own.tolerance_q8 / least.own.cost_fp, 1, "one frame at least");
    assert_eq!(with("[host]\nlink = false\n").policy.link, LinkLimits::OFF);
}

#[test]
fn a_service_for_a_protocol_is_known_again_after_a_restart() {
    let service = |name: &str, protocol: &str| {
        format!("[[service]]\nname = \"{name}\"\nmatch = {{ protocol = \"{protocol}\" }}\n")
    };
    let all = [service("c", "gre"), service("b", "fragments"), service("a", "icmp")].concat();
    let old = desired(&policy(&format!("[source]\nlimits = [\"1000/s\"]\n{all}")), &FACTS, 1, None);
    let next = policy(&format!("[source]\nlimits = [\"1000/s\"]\n{}{all}", service("0", "esp")));
    let names = Names::recovered(&next, &old.policy, &lists::Lists::new());
    for name in ["a", "b", "c"] {
        assert_eq!(names.services.of(name), old.names.services.of(name), "{name}");
    }
}

/// The parts of a policy file; each list can be written in any order.
#[derive(Clone, Debug)]
struct Parts {
    source: Vec<String>,
    services: Vec<(Vec<String>, Vec<String>, Vec<String>)>,
    users: Vec<(Vec<String>, Vec<String>)>,
}

fn rates(meters: &'static [&'static str], max: usize) -> impl Strategy<Value = Vec<String>> {
    let amounts = prop::collection::vec((1_u32..5, 2_u32..2000), meters.len());
    (Just(meters), amounts, 1..=max).prop_map(|(meters, amounts, count)| {
        let rate =
            |(meter, (amount, burst)): (&&str, (u32, u32))| format!("{amount}000 {meter} burst {burst}000");
        meters.iter().zip(amounts).map(rate).take(count).collect()
    })
}

fn parts() -> impl Strategy<Value = Parts> {
    // Two limits in packets, neither of which is always the stricter one.
    let limits = || {
        rates(&["syns/s", "bytes/min"], 2).prop_map(|mut limits| {
            limits.extend(["100 packets/s burst 300", "1000 packets/min burst 2000"].map(str::to_owned));
            limits
        })
    };
    let ports = |service: usize| {
        prop::collection::btree_set(1_u16..60, 1..5).prop_map(move |ports| {
            ports.iter().map(|port| (port + 60 * service as u16).to_string()).collect()
        })
    };
    let service = |index: usize| (ports(index), limits(), rates(&["packets/s", "bytes/s"], 2));
    let user = |index: usize| {
        let sources = prop::collection::btree_set(0_u8..255, 0..4).prop_map(move |hosts| {
            hosts.iter().map(|host| format!("\"10.0.{index}.{host}\"")).collect::<Vec<_>>()
        });
        (sources, limits())
    };
    (limits(), (service(0), service(1), service(2)), (user(0), user(1), user(2)), 0_usize..=3, 0_usize..=3)
        .prop_map(|(source, (a, b, c), (d, e, f), services, users)| Parts {
            source,
            services: [a, b, c].into_iter().take(services).collect(),
            users: [d, e, f].into_iter().take(users).collect(),
        })
}

/// The text of the file, shuffled by `order`.
fn file(parts: &Parts, order: &mut impl FnMut(usize) -> usize) -> String {
    fn shuffled<T: Clone>(items: &[T], order: &mut impl FnMut(usize) -> usize) -> Vec<T> {
        let mut items = items.to_vec();
        for at in (1..items.len()).rev() {
            items.swap(at, order(at + 1));
        }
        items
    }
    let quoted = |rates: &[String], order: &mut dyn FnMut(usize) -> usize| {
        let mut order = |count| order(count);
        let rates: Vec<String> =
            shuffled(rates, &mut order).iter().map(|rate| format!("\"{rate}\"")).collect();
        format!("[{}]", rates.join(", "))
    };
    let table = |head: &str, keys: &[String], order: &mut dyn FnMut(usize) -> usize| {
        let mut order = |count| order(count);
        format!("{head}\n{}\n", shuffled(keys, &mut order).join("\n"))
    };
    let mut tables = Vec::new();
    let source = [format!("limits = {}", quoted(&parts.source, order)), "ipv6_prefix = 56".to_owned()];
    tables.push(table("[source]", &source, order));
    for (index, (ports, per_source, totals)) in parts.services.iter().enumerate() {
        let keys = [
            format!("name = \"s{index}\""),
            format!("match = {{ protocol = \"udp\", ports = [{}] }}", shuffled(ports, order).join(", ")),
            format!("per_source = {}", quoted(per_source, order)),
            format!("total = {}", quoted(totals, order)),
        ];
        tables.push(table("[[service]]", &keys, order));
    }
    for (index, (sources, network)) in parts.users.iter().enumerate() {
        // Prefixes on lines of their own, or all on one line.
        let (open, close) = if order(2) == 0 { ("[\n", ",\n") } else { ("[", ", ") };
        let sources: String =
            shuffled(sources, order).iter().map(|source| format!("{source}{close}")).collect();
        let keys = [
            format!("name = \"u{index}\""),
            format!("sources = {open}{sources}]"),
            format!("network = {}", quoted(network, order)),
        ];
        tables.push(table("[[user]]", &keys, order));
    }
    shuffled(&tables, order).concat()
}

proptest! {
    #[test]
    fn the_order_in_the_file_makes_no_difference(parts in parts(), other in parts(), seed in any::<u64>()) {
        let mut state = seed;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let straight = policy(&file(&parts, &mut |below| below - 1));
        let turned = policy(&file(&parts, &mut random));
        let first = desired(&straight, &FACTS, 1, None);
        prop_assert_eq!(&first, &desired(&straight, &FACTS, 1, None), "the same twice");
        prop_assert_eq!(shown(&first), shown(&desired(&turned, &FACTS, 1, None)));
        prop_assert!(first == desired(&turned, &FACTS, 1, None));
        // The order does not matter after another policy either.
        let old = desired(&policy(&file(&other, &mut random)), &FACTS, 1, None);
        let before = Some(Before::known(&old.policy, &old, 0));
        let (straight, turned) = (desired(&straight, &FACTS, 2, before), desired(&turned, &FACTS, 2, before));
        prop_assert_eq!(shown(&straight), shown(&turned));
        prop_assert!(straight == turned);
        // A policy that replaces itself changes nothing.
        let before = Some(Before::known(&first.policy, &first, 0));
        let again = desired(&policy(&file(&parts, &mut random)), &FACTS, 2, before);
        prop_assert!(again.keeps_policy && again.keeps_tables && again.new_users.is_empty());
        prop_assert_eq!(&again.policy, &first.policy);
        // Another daemon recovers all names at their indices.
        let lists = lists::with_users(lists::Lists::new(), straight.user_prefixes());
        let found = Names::recovered(&policy(&file(&parts, &mut random)), &straight.policy, &lists);
        for (index, name) in found.services.iter() {
            prop_assert_eq!(straight.names.services.of(name), Some(index));
        }
        for (index, name) in found.users.iter() {
            prop_assert_eq!(straight.names.users.of(name), Some(index));
        }
        let with_sources = parts.users.iter().filter(|(sources, _)| !sources.is_empty()).count();
        prop_assert_eq!((found.services.iter().count(), found.users.iter().count()), (parts.services.len(), with_sources));
    }
}
