//! Warnings: what is allowed but probably not intended.

use super::{problems, warnings};

#[test]
fn what_is_allowed_but_probably_not_meant_is_a_warning() {
    let text = "[source]\nlimits = [\"1/s\"]\nipv6_prefix = 128\n[listen]\nmetrics = \"0.0.0.0:9464\"\n";
    assert_eq!(
        warnings(text),
        [
            "p.toml:3:15: ipv6_prefix = 128: a sender with one /64 has 2^64 sources",
            "p.toml:5:11: metrics on 0.0.0.0:9464 can be read by anybody who reaches it",
        ]
    );
    let usual = "[source]\nlimits = [\"1/s\"]\nipv6_prefix = 64\n[listen]\nmetrics = \"127.0.0.1:9464\"\n";
    assert_eq!(warnings(usual), [""; 0]);
}

/// The warnings of a policy whose `[source]` has 1000 packets/s and 1 MB/s, in lines 1 and 2.
fn below(text: &str) -> Vec<String> {
    let found = warnings(&format!("[source]\nlimits = [\"1000/s\", \"1 MB/s\", \"100 syns/s\"]\n{text}"));
    found.iter().map(|warning| warning.strip_prefix("p.toml:").unwrap().to_owned()).collect()
}

fn service(protocol: &str, lines: &str) -> Vec<String> {
    let host = "[host]\ntotal = [\"100000/s\"]\n";
    below(&format!(
        "[[service]]\nname = \"s\"\nmatch = {{ protocol = {protocol:?}, ports = [53] }}\n{lines}{host}"
    ))
}

#[test]
fn a_limit_per_source_that_never_decides_is_named_with_the_one_that_does() {
    let found = service("udp", "per_source = [\"900/s\", \"1000/s\"]\n");
    assert_eq!(
        found,
        [
            "6:24: service \"s\": per_source \"1000 packets/s burst 1000\" never decides: \"900 packets/s burst 900\" beside it is at \
             least as strict",
            "6:24: service \"s\": per_source \"1000 packets/s burst 1000\" never decides: every source has \"1000 packets/s burst 1000\" \
             already, in [source]",
        ]
    );
    assert_eq!(
        service("udp", "per_source = [\"10 syns/s\"]\n"),
        ["6:15: service \"s\": per_source \"10 syns/s burst 10\" never decides: only TCP has SYNs"]
    );
    for fine in [
        "per_source = [\"999/s\"]\n",
        "per_source = [\"2000/s burst 10\"]\n",
        "per_source = [\"1000/s burst 999\"]\n",
    ] {
        assert_eq!(service("udp", fine), [""; 0], "{fine}");
    }
    assert_eq!(service("tcp", "per_source = [\"10 syns/s\"]\n"), [""; 0]);
}

#[test]
fn a_limit_per_source_that_lets_one_use_up_the_total_is_named_with_it() {
    assert_eq!(
        service("udp", "per_source = [\"500/s\"]\ntotal = [\"400/s\", \"1 MB/s\"]\n"),
        ["6:15: service \"s\": per_source \"500 packets/s burst 500\" lets one source use up the total of \
          \"400 packets/s burst 400\"; use a lower one"]
    );
    assert_eq!(service("udp", "per_source = [\"399/s\"]\ntotal = [\"400/s\", \"1 MB/s\"]\n"), [""; 0]);
}

#[test]
fn a_user_or_plan_with_less_than_any_address_may_have_is_named() {
    let user = "[[user]]\nname = \"a\"\nsources = [\"192.0.2.0/24\"]\nnetwork = [\"999/s\", \"2 MB/s\"]\n";
    let less =
        "is less than one address of anybody else may have (\"1000 packets/s burst 1000\" in [source])";
    assert_eq!(below(user), [format!("6:12: user \"a\": network \"999 packets/s burst 999\" {less}")]);
    let on_plan = |n: usize| {
        let user = |n| format!("[[user]]\nname = \"u{n}\"\nplan = \"p\"\nsources = [\"192.0.{n}.0/24\"]\n");
        format!("[plan.p]\nnetwork = [\"999/s\"]\n{}", (0..n).map(user).collect::<String>())
    };
    let once = [format!("4:12: plan \"p\": network \"999 packets/s burst 999\" {less}")];
    assert_eq!(below(&on_plan(3)), once, "once, however many are on it");
}

#[test]
fn a_user_of_one_address_is_told_which_of_its_limits_a_source_has_anyway() {
    let user =
        |source: &str| format!("[[user]]\nname = \"a\"\nsources = [{source:?}]\nnetwork = [\"1000/s\"]\n");
    let never = |prefix: &str| {
        format!(
            "6:12: user \"a\": network \"1000 packets/s burst 1000\" never decides: {prefix} is one source, and has \
             \"1000 packets/s burst 1000\" already, in [source]"
        )
    };
    assert_eq!(below(&user("192.0.2.1")), [never("192.0.2.1/32")]);
    assert_eq!(below(&user("2001:db8::/64")), [never("2001:db8::/64")]);
    assert_eq!(below(&user("192.0.2.0/31")), [""; 0]);
    assert_eq!(below(&user("2001:db8::/63")), [""; 0]);
}

#[test]
fn a_prefix_of_a_user_that_changes_nothing_is_named_with_the_one_that_counts() {
    let network = "network = [\"5000/s\"]\n";
    let a = format!(
        "[[user]]\nname = \"a\"\nsources = [\"10.0.0.0/8\", \"10.1.0.0/16\", \"192.0.2.0/24\"]\n{network}"
    );
    let b = format!("[[user]]\nname = \"b\"\nsources = [\"192.0.2.0/25\", \"192.0.2.128/25\"]\n{network}");
    assert_eq!(
        below(&format!("{a}{b}")),
        [
            "5:26: source 10.1.0.0/16 of user \"a\" changes nothing: 10.0.0.0/8 is its own already",
            "5:41: source 192.0.2.0/24 of user \"a\" is never met: longer prefixes of others have all of it",
        ]
    );
    assert_eq!(below(&a).len(), 1);
}

#[test]
fn a_destination_that_no_packet_is_for_is_named_at_its_place() {
    let service = |name: &str, ports: &str, to: &str| {
        format!("[[service]]\nname = {name:?}\nmatch = {{ protocol = \"udp\", ports = [{ports}]{to} }}\n")
    };
    let a = service("a", "53", ", destinations = [\"192.0.2.0/24\", \"10.0.0.0/8\", \"10.1.0.0/16\"]");
    let b = service("b", "53", ", destinations = [\"192.0.2.0/25\", \"192.0.2.128/25\"]");
    assert_eq!(
        below(&format!("{a}{b}")),
        [
            "5:59: destination 192.0.2.0/24 of service \"a\" is never met: longer ones of others have all of it",
            "5:89: destination 10.1.0.0/16 of service \"a\" changes nothing: 10.0.0.0/8 is its own already",
        ]
    );
    let wider = a.replace("[53]", "[53, 54]");
    assert_eq!(below(&format!("{wider}{b}")).len(), 1, "at port 54 packets are for it");
    let rest = service("rest", "53", "");
    let all = |to: &str| service("all", "53", &format!(", destinations = [{to}]"));
    assert_eq!(
        below(&format!("{}{rest}", all("\"0.0.0.0/0\", \"::/1\", \"8000::/1\""))),
        ["6:1: service \"rest\" is never met: destinations of others have all of its ports"]
    );
    for fine in ["\"0.0.0.0/0\"", "\"::/0\"", "\"0.0.0.0/1\", \"::/0\""] {
        assert_eq!(below(&format!("{}{rest}", all(fine))), [""; 0], "{fine}");
    }
}

#[test]
fn a_burst_that_large_frames_do_not_fit_into_is_a_warning_and_one_below_a_full_frame_an_error() {
    let text = |burst: u64| format!("[source]\nlimits = [\"1 MB/s burst {burst} bytes\"]\n");
    assert_eq!(
        warnings(&text(9013)),
        [
            "p.toml:2:11: [source] \"1 MB/s burst 9013 bytes\" never lets a frame of more than 9013 bytes pass; \
          for jumbo frames use a burst of at least 9014 bytes"
        ]
    );
    assert_eq!(warnings(&text(9014)), [""; 0]);
    assert!(problems(&text(1513))[0].contains("refuses every full frame"));
}

#[test]
fn what_does_not_fit_into_the_maps_is_an_error() {
    let services: String = (1..=257)
        .map(|port| {
            format!("[[service]]\nname = \"s{port}\"\nmatch = {{ protocol = \"udp\", ports = [{port}] }}\n")
        })
        .collect();
    let users: String = (0..=4096).map(|n| format!("[[user]]\nname = \"u{n}\"\n")).collect();
    let found = problems(&format!("[source]\nlimits = [\"1/s\"]\n{services}{users}"));
    assert_eq!(
        found,
        [
            "p.toml:3:1: 257 services are more than there can be; use at most 256",
            "p.toml:774:1: 4097 users are more than there can be; use at most 4096",
        ]
    );
}

#[test]
fn totals_for_ports_alone_leave_the_rest_open() {
    let web = "[source]\nlimits = [\"9/s\"]\n[[service]]\nname = \"web\"\nmatch = { protocol = \"tcp\", ports = [80] }\n";
    let pieces = "[[service]]\nname = \"pieces\"\nmatch = { protocol = \"fragments\" }\ntotal = [\"9/s\"]\n";
    let total = format!("{web}total = [\"9/s\"]\n");
    let open = |what: &str| {
        format!(
            "p.toml:6:9: service \"web\": total is for its ports alone: {what} pass from any number of forged sources; add a total to \
             [host], for everything"
        )
    };
    assert_eq!(warnings(&total), [open("fragments and protocols without ports")]);
    assert_eq!(warnings(&format!("{total}{pieces}")), [open("protocols without ports")]);
    assert_eq!(warnings(&format!("{total}[host]\ntotal = [\"9/s\"]\n")), [""; 0]);
    assert_eq!(warnings(web), [""; 0], "nothing has a total");
    assert_eq!(warnings(&format!("[source]\nlimits = [\"9/s\"]\n{pieces}")), [""; 0], "no port has one");
}
