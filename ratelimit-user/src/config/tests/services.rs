//! `[[service]]`: what is understood, and every mistake at its place.

use super::{parse, problems};

#[test]
fn services_are_read_with_ports_ranges_and_totals() {
    let text = "[source]\nlimits = [\"1/s\"]\n[[service]]\nname = \"dns\"\n\
                match = { protocol = \"udp\", ports = [53, \"5300-5302\"] }\n\
                total = [\"100000 packets/s\", \"1 Gbit/s\"]\n";
    let policy = parse(text, "p.toml").unwrap_or_else(|error| panic!("{error}")).policy;
    let services: Vec<_> = policy.services().iter().collect();
    assert_eq!(services.len(), 1);
    assert_eq!(services[0].name(), "dns");
    assert_eq!(services[0].totals().len(), 2);
    let udp = 1 << 16;
    assert_eq!(policy.services().port_groups()[0].slots, [udp + 53..udp + 54, udp + 5300..udp + 5303]);
}

#[test]
fn every_mistake_in_a_service_is_reported_at_its_place() {
    let service = |body: &str| format!("[source]\nlimits = [\"1/s\"]\n[[service]]\n{body}\n");
    let udp = "match = { protocol = \"udp\", ports = [53] }";
    let to = |prefixes: &str| {
        format!("match = {{ protocol = \"udp\", ports = [53], destinations = [{prefixes}] }}")
    };
    for (body, expected) in [
        (udp.to_owned(), "p.toml:3:1: [[service]] has no name"),
        (format!("name = \"a b\"\n{udp}"), "p.toml:3:1: service name \"a b\" is not one"),
        ("name = \"dns\"".to_owned(), "p.toml:3:1: service \"dns\" matches nothing"),
        (
            "name = \"dns\"\nmatch = { protocol = \"icmp\", ports = [1] }".to_owned(),
            "p.toml:3:1: service \"dns\": icmp has no ports; leave out ports, or use protocol = \"tcp\" or \"udp\"",
        ),
        (
            "name = \"dns\"\nmatch = { protocol = \"icpm\" }".to_owned(),
            "p.toml:5:22: protocol = \"icpm\" is not known; use one of tcp, udp, icmp, igmp, ipip, sit, gre,",
        ),
        (
            "name = \"dns\"\nmatch = { protocol = 256 }".to_owned(),
            "p.toml:5:22: protocol = 256 is not known; use one of",
        ),
        (
            "name = \"dns\"\nmatch = { protocol = 6 }".to_owned(),
            "p.toml:3:1: service \"dns\" has no ports",
        ),
        (
            "name = \"a\"\nmatch = { protocol = \"gre\" }\n[[service]]\nname = \"b\"\nmatch = { protocol = 47 }".to_owned(),
            "p.toml:6:1: protocol gre of service \"b\" belongs to service \"a\" already",
        ),
        (
            "name = \"a\"\nmatch = { protocol = \"fragments\" }\n[[service]]\nname = \"b\"\nmatch = { protocol = \"fragments\" }".to_owned(),
            "p.toml:6:1: fragments of service \"b\" belongs to service \"a\" already",
        ),
        (
            "name = \"a\"\nmatch = { protocol = \"gre\" }\nsyn_cookies = \"5 syns/s\"".to_owned(),
            "p.toml:3:1: service \"a\": only TCP has SYNs",
        ),
        (
            "name = \"dns\"\nmatch = { protocol = \"udp\", ports = [] }".to_owned(),
            "p.toml:3:1: service \"dns\" has no ports",
        ),
        (
            "name = \"dns\"\nmatch = { protocol = \"udp\", ports = [0] }".to_owned(),
            "p.toml:5:38: 0 is no port; use 1 to 65535",
        ),
        (
            "name = \"dns\"\nmatch = { protocol = \"udp\", ports = [\"9-3\"] }".to_owned(),
            "p.toml:5:38: \"9-3\" is no port",
        ),
        (
            format!("name = \"dns\"\n{udp}\ntotal = [\"5 syns/s\"]"),
            "p.toml:3:1: service \"dns\": a total in syns is not possible; use packets or bytes",
        ),
        (
            format!("name = \"dns\"\n{udp}\ntotal = [\"5 packets/s\", \"6 packets/min\"]"),
            "p.toml:3:1: service \"dns\" has two totals in packets",
        ),
        (
            format!("name = \"dns\"\n{udp}\n[[service]]\nname = \"other\"\n{udp}"),
            "p.toml:6:1: port 53 of service \"other\" belongs to service \"dns\" already",
        ),
        (
            format!("name = \"dns\"\n{udp}\non_limit = \"refuse\""),
            "p.toml:6:12: on_limit = \"refuse\" is not known; use one of \"drop\", \"monitor\", \"mark\", \"reject\"",
        ),
        (
            format!("name = \"dns\"\n{udp}\non_limit = \"mark\"\ndscp = 64"),
            "p.toml:7:8: 64 is no class of service; use 0 to 63, or a name such as \"cs1\" or \"af13\"",
        ),
        (
            format!("name = \"dns\"\n{udp}\ndscp = \"cs1\""),
            "p.toml:6:8: dscp is for services that mark; write on_limit = \"mark\" beside it",
        ),
        (
            format!("name = \"dns\"\n{udp}\nper_source = [\"1/s\", \"2/s\", \"3/s\", \"4/s\", \"5/s\"]"),
            "p.toml:3:1: service \"dns\": 5 limits per source are more than there can be; use at most 4",
        ),
        (
            format!("name = \"dns\"\n{udp}\nper_source = [\"5 packets/s burst 0\"]"),
            "p.toml:6:15: limit \"5 packets/s burst 0\": burst 0 is never satisfiable; use at least 1",
        ),
        (
            format!(
                "name = \"dns\"\n{}\n[[service]]\nname = \"other\"\n{}",
                to("\"192.0.2.0/24\", \"2001:db8::/32\""),
                to("\"192.0.2.0/25\", \"2001:db8::/32\"")
            ),
            "p.toml:8:75: destination 2001:db8::/32 at port 53 of service \"other\" belongs to service \"dns\" already",
        ),
        (
            format!("name = \"dns\"\n{}", to("\"192.0.2.0/24\", \"192.0.2.0/24\"")),
            "p.toml:5:75: destination 192.0.2.0/24 at port 53 of service \"dns\" belongs to service \"dns\" already",
        ),
        (
            format!("name = \"dns\"\n{}", to("\"::/0\", \"192.0.2.1/24\"")),
            "p.toml:5:67: 192.0.2.1/24 has host bits set; use 192.0.2.0/24 for the network",
        ),
        (
            format!("name = \"dns\"\n{}", to("")),
            "p.toml:5:58: service \"dns\" has no destinations: no packet would be for it; name prefixes, or leave the key out",
        ),
        (
            format!("name = \"dns\"\n{}", to("53")),
            "p.toml:5:59: an entry of destinations is a number; write a string in quotes",
        ),
        (
            "name = \"dns\"\nmatch = { protocol = \"udp\", ports = [53], destinations = \"::/0\" }"
                .to_owned(),
            "p.toml:5:58: destinations is a string; write a list of strings",
        ),
    ] {
        let found = problems(&service(&body));
        assert_eq!(found.len(), 1, "{body}: {found:#?}");
        assert!(found[0].starts_with(expected), "{found:#?} should start with {expected}");
    }
}

#[test]
fn syn_cookies_are_for_tcp_and_counted_in_syns() {
    let service = |protocol: &str, rate: &str| {
        let matching = format!("match = {{ protocol = {protocol:?}, ports = [80] }}");
        let text = format!(
            "[source]\nlimits = [\"5 packets/s\"]\n[[service]]\nname = \"web\"\n{matching}\nsyn_cookies = {rate}\n"
        );
        parse(&text, "p.toml").map(|loaded| loaded.policy).map_err(|error| error.to_string())
    };
    let policy = service("tcp", "\"1000 syns/s\"").unwrap();
    assert_eq!(policy.services().iter().next().unwrap().syn_cookies().unwrap().amount, 1000);
    for (protocol, rate, sentence) in [
        ("udp", "\"1000 syns/s\"", "service \"web\": only TCP has SYNs"),
        ("tcp", "\"1000 packets/s\"", "syn_cookies in packets is not possible; write it in syns"),
        ("tcp", "\"1000 syns/s burst 0\"", "burst 0 is never satisfiable"),
        ("tcp", "\"many\"", "syn_cookies: "),
        ("tcp", "1000", "syn_cookies is a number; write a string in quotes"),
    ] {
        let error = service(protocol, rate).unwrap_err();
        assert!(error.contains(sentence), "{protocol} {rate}: {error}");
    }
}
