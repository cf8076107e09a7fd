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
fn changes_of_the_host_and_of_services_without_ports_have_their_sentences() {
    let before = "[source]\nlimits = [\"1/s\"]\n[host]\ntotal = [\"200000/s\"]\n";
    let after = "[source]\nlimits = [\"1/s\"]\n[host]\ntotal = [\"300000/s\", \"2 Gbit/s\"]\nlink = false\n\
                 [[service]]\nname = \"tunnel\"\nmatch = { protocol = 47, destinations = [\"192.0.2.0/24\"] }\n";
    assert_eq!(
        sentences(before, after),
        [
            "host link: 20000 packets/s burst 20000 -> false",
            "host total in bytes: none -> 2 Gbit/s burst 2 Gbit",
            "host total in packets: 200000 packets/s burst 200000 -> 300000 packets/s burst 300000",
            "service tunnel added: match gre to 192.0.2.0/24",
        ]
    );
    assert_eq!(sentences(after, after), [""; 0]);
}

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
            "limit source.bytes added: 40 Mbit/s burst 40 Mbit",
            "limit source.syns removed: was 100 syns/s burst 100",
            "interfaces: eth0 -> eth0, eth1; takes effect at the next start",
            "listen metrics: none -> 127.0.0.1:9464; takes effect at the next start",
            "service dns match: udp 53 -> udp 53-54",
            "service dns total in bytes: none -> 1 MB/s burst 1 MB",
            "service game removed: was match udp 27000-27050; total in bytes 1 Gbit/s burst 1 Gbit",
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
    assert_eq!(sentences(OLD, &two), ["service dns match: udp 53 -> udp 53 to 192.0.2.0/24, 2001:db8::/32"]);
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

/// A policy with one service per port, in the given order.
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

#[test]
fn whatever_changes_of_apis_and_plans_is_a_row_that_a_running_daemon_follows() {
    let old = r#"
        [plan.gold]
        limits = ["500/hour", "10/min"]
        [[user]]
        name = "acme"
        plan = "gold"
        [[api]]
        name = "a"
        limits = ["100/hour", "3/min"]
        plans = { gold = [] }
        [[api]]
        name = "gone"
        key = ["ip"]
        limits = ["1/s"]
    "#;
    let new = r#"
        [[api]]
        name = "login"
        preset = "login"
        [[api]]
        name = "a"
        key = ["user", "ip"]
        limits = ["3/min", "1000/hour sliding-window"]
        on_limit = "deprioritise"
        sharing = "strict"
        without_store = "refuse"
        reserved = { critical = "20%" }
        ipv4_prefix = 24
        ipv6_prefix = 48
        users = { acme = ["7/day fixed-window"] }
        time_zone = "UTC"
        escalate = { above = "10/s", for = "90s", block = "10m" }
        [plan.gold]
        limits = ["10/min", "600/hour"]
        [[user]]
        name = "acme"
        plan = "gold"
        limits = []
    "#;
    let (old, new) = (format!("{OLD}{old}"), format!("{OLD}{new}"));
    assert_eq!(
        sentences(&old, &new),
        [
            "api a escalate: none -> above 10/s for 90s: block 10m of /32 or /64",
            "api a ipv4_prefix: 32 -> 24",
            "api a ipv6_prefix: 64 -> 48",
            "api a key: user -> user, ip",
            "api a limits: 100/hour burst 100, 3/min burst 3 -> 1000/hour sliding-window, 3/min burst 3",
            "api a on_limit: refuse -> deprioritise",
            "api a plans.gold: no limits -> none",
            "api a reserved: none -> critical 20%, normal 0%",
            "api a sharing: lease -> strict",
            "api a users.acme: none -> 7/day fixed-window in UTC",
            "api a without_store: share -> refuse",
            "api gone removed: was ipv4_prefix 32; ipv6_prefix 64; key ip; limits 1/s burst 1; on_limit refuse; sharing lease; without_store share",
            "api login added: ipv4_prefix 32; ipv6_prefix 64; known_for 30d; on_limit refuse; per_ip 20/hour burst 20; \
             per_user 100/hour burst 100; per_user_and_ip 5/hour burst 5; preset login; sharing lease; without_store share",
            "plan gold limits: 500/hour burst 500, 10/min burst 10 -> 600/hour burst 600, 10/min burst 10",
            "user acme limits: none -> no limits",
        ]
    );
    assert_eq!(sentences(&old, &old.replace("\"100/hour\", \"3/min\"", "\"3/min\", \"100/hour\"")), [""; 0]);
    let delay =
        |time: &str| old.replace("key = [\"ip\"]", &format!("key = [\"ip\"]\non_limit = \"delay {time}\""));
    assert_eq!(sentences(&delay("60s"), &delay("1500ms")), ["api gone on_limit: delay 1m -> delay 1500ms"]);
}

#[test]
fn listeners_and_room_for_keys_take_a_restart() {
    let new = r#"
        [requests]
        keys = 5
        threads = 2
        [listen]
        http = ["unix:/run/h", "127.0.0.1:8080"]
        grpc = "127.0.0.1:8081"
        resp = "127.0.0.1:8082"
        token_file = "/t"
        tls = { certificate = "/c", key = "/k", client_ca = "/ca" }
        socket_mode = "0600"
        socket_group = "www-data"
    "#;
    let new = format!("{OLD}{new}");
    assert_eq!(
        sentences(OLD, &new),
        [
            "listen grpc: none -> 127.0.0.1:8081",
            "listen http: none -> 127.0.0.1:8080, unix:/run/h",
            "listen resp: none -> 127.0.0.1:8082",
            "listen socket_group: none -> www-data",
            "listen socket_mode: 0660 -> 0600",
            "listen tls: none -> certificate /c, key /k, client_ca /ca",
            "listen token_file: none -> /t",
            "requests keys: 1000000 -> 5",
            "requests threads: one per CPU -> 2",
        ]
        .map(|row| format!("{row}; takes effect at the next start"))
    );
}

#[test]
fn whose_word_counts_follows_the_policy() {
    let new = format!("{OLD}[listen]\ntrusted_proxies = [\"::1\", \"10.0.0.0/8\"]\n");
    assert_eq!(sentences(OLD, &new), ["listen trusted_proxies: none -> 10.0.0.0/8, ::1/128"]);
}
