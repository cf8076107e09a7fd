//! `[host]`: what is understood, and every mistake at its place.

use super::{parse, problems};

const SOURCE: &str = "[source]\nlimits = [\"1/s\"]\n";

fn host(body: &str) -> crate::policy::HostPolicy {
    let text = format!("{SOURCE}{body}");
    parse(&text, "p.toml").unwrap_or_else(|error| panic!("{error}")).policy.host().clone()
}

#[test]
fn a_host_has_a_cap_on_its_links_unless_it_says_otherwise_and_no_total() {
    let link = |body: &str| host(body).link().map(ToString::to_string);
    let default = Some("20000 packets/s burst 20000".to_owned());
    assert_eq!(link(""), default);
    assert_eq!(link("[host]\nlink = true\n"), default);
    assert_eq!(link("[host]\nlink = false\n"), None);
    assert_eq!(link("[host]\nlink = \"500/s burst 600\"\n").as_deref(), Some("500 packets/s burst 600"));
    assert!(host("").totals().is_empty());
    assert_eq!(host("[host]\ntotal = [\"200000 packets/s\", \"2 Gbit/s\"]\n").totals().len(), 2);
}

#[test]
fn every_mistake_of_a_host_is_reported_at_its_place() {
    for (body, expected) in [
        ("total = \"5/s\"", "p.toml:4:9: total is a string"),
        (
            "total = [\"5 packets/s\", \"5 syns/s\"]",
            "p.toml:4:25: [host]: a total in syns is not possible; use packets or bytes",
        ),
        ("total = [\"5/s\", \"6/s\"]", "p.toml:4:17: [host] has two totals in packets; use one"),
        (
            "total = [\"5/s soft 10%\"]",
            "p.toml:4:10: [host]: \"5 packets/s burst 5 soft 10%\" cannot be the limit of a total",
        ),
        ("link = 5", "p.toml:4:8: link is a number; write link = \"20000 packets/s\", or link = false"),
        (
            "link = \"5 packets/s\"",
            "p.toml:4:8: [host]: link = \"5 packets/s burst 5\" leaves neighbours too little",
        ),
        ("link = \"5 Mbit/s\"", "p.toml:4:8: [host]: link in bytes is not possible"),
        ("link = \"5 pakets/s\"", "p.toml:4:"),
        ("totals = []", "p.toml:4:1: key \"totals\" is not known; did you mean \"total\"?"),
    ] {
        let found = problems(&format!("{SOURCE}[host]\n{body}\n"));
        assert!(found.len() == 1 && found[0].starts_with(expected), "{body}: {found:?}");
    }
}
