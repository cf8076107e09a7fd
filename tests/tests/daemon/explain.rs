//! `ratelimit explain` on a real host, after and during real traffic.

use std::{
    process::Output,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    daemon::Edge,
    netns::{EDGE_V4, EDGE_V6},
    traffic::{PORT, edge_with_sources, flood, sent},
};
use serde_json::Value;

const BAD: &str = "10.99.0.66";
const GOOD: &str = "10.99.0.2";

fn text(edge: &Edge, words: &[&str]) -> String {
    let output = edge.cli(&[&["explain"], words].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

#[test]
fn a_source_that_flooded_is_refused_with_its_reason_and_an_empty_bucket() {
    let edge = edge_with_sources(&[BAD]);
    let _daemon = edge.start("[source]\nlimits = [\"300 packets/day\", \"50 syns/day\"]\n");
    sent(flood(&edge, BAD, EDGE_V4, 2_000, 0.5));
    let dropped = edge.dropped("limit_packets");
    assert!(dropped > 500, "{dropped}");
    let bad = edge.json(&["explain", BAD]);
    assert_eq!((&bad["verdict"], &bad["reason"]), (&"drop".into(), &"limit_packets".into()), "{bad:#}");
    assert_eq!(bad["source"], "10.99.0.66/32");
    assert_eq!(bad["own"]["state"], "entry");
    assert_eq!(bad["own"]["cell"]["hot"], true);
    let (packets, syns) = (&bad["own"]["limits"][0], &bad["own"]["limits"][1]);
    assert_eq!((&packets["rate"], number(&packets["left"])), (&"300 packets/day burst 300".into(), 0));
    // One packet in 288 seconds, the whole burst in a day, less what is kept back for CPUs.
    let refused = number(&packets["refused_for_ms"]);
    assert!((280_000..=288_000).contains(&refused), "{refused}");
    assert!((70_000_000..=86_400_000).contains(&number(&packets["full_in_ms"])), "{packets}");
    assert!(syns["refused_for_ms"].is_null() && number(&syns["left"]) > 40, "{syns}");
    // The negative entry in its cell says the same, if it still lives: 268 ms after the last look at the entry it does not.
    let denied = &bad["own"]["denied"];
    if !denied.is_null() {
        assert_eq!(denied["reason"], "limit_packets");
        assert!(number(&denied["for_ms"]).abs_diff(refused) <= 1, "{bad:#}");
    }
    let text = text(&edge, &[BAD]);
    assert!(text.contains("REFUSED for another 4 min"), "{text}");
    assert!(text.contains(": over a limit in packets (limit_packets)\n"), "{text}");
    assert!(text.contains("  300 packets/day burst 300: 0 of 29"), "{text}");
    // Asking has cost nobody anything.
    assert_eq!(edge.dropped("limit_packets"), dropped);
    let again = edge.json(&["explain", BAD]);
    assert_eq!(again["own"]["limits"][1]["left"], syns["left"]);
}

#[test]
fn an_address_never_seen_shows_what_would_apply_although_a_flood_runs_beside_it() {
    let edge = edge_with_sources(&[BAD]);
    let _daemon = edge.start("[source]\nlimits = [\"500 packets/s burst 1000\"]\n");
    let running = flood(&edge, BAD, EDGE_V4, 20_000, 3.0);
    let deadline = Instant::now() + Duration::from_secs(3);
    let bad = loop {
        let bad = edge.json(&["explain", BAD]);
        if bad["verdict"] == "drop" {
            break bad;
        }
        assert!(Instant::now() < deadline, "never refused: {bad:#}");
    };
    assert_eq!(bad["reason"], "limit_packets", "{bad:#}");
    let limit = &bad["own"]["limits"][0];
    assert!(number(&limit["left"]) < 50, "at 40 times its rate: {limit}");
    assert!(number(&limit["full_in_ms"]) > 1_800, "{limit}");
    let fresh = edge.json(&["explain", "198.51.100.7"]);
    assert_eq!((&fresh["verdict"], &fresh["reason"]), (&"pass".into(), &"conforming".into()), "{fresh:#}");
    assert_eq!(fresh["own"]["state"], "cell");
    assert_eq!(fresh["own"]["cell"]["hot"], false);
    let limit = &fresh["own"]["limits"][0];
    assert_eq!(limit["left"], limit["capacity"]);
    assert_eq!(limit["burst"], 1_000);
    assert_eq!(fresh["prefixes"][0]["prefix"], "198.51.100.0/24");
    assert!(
        text(&edge, &["198.51.100.7"]).contains("state    none of its own: it shares a cell, which admits ")
    );
    sent(running);
}

#[test]
fn blocks_are_told_with_what_is_left_of_them_and_the_allow_list_wins() {
    let edge = Edge::new();
    let _daemon = edge.start("[source]\nlimits = [\"5000 packets/s burst 10000\"]\n");
    assert!(
        edge.cli(&["block", "add", "10.99.0.64/28", "--for", "10m", "--reason", "syn flood"])
            .status
            .success()
    );
    let blocked = edge.json(&["explain", BAD]);
    assert_eq!((&blocked["verdict"], &blocked["reason"]), (&"drop".into(), &"blocked".into()));
    let by = &blocked["blocked_by"][0];
    assert_eq!((&by["prefix"], &by["reason"]), (&"10.99.0.64/28".into(), &"syn flood".into()));
    assert!((570..=600).contains(&number(&by["seconds_left"])), "{by}");
    assert!(by["until"].as_str().unwrap() > blocked["at"].as_str().unwrap(), "{blocked:#}");
    let words = text(&edge, &[BAD]);
    assert!(words.contains("BLOCKED until 20"), "{words}");
    assert!(words.contains(", by entry 10.99.0.64/28 (reason: syn flood)\n"), "{words}");
    assert_eq!(edge.json(&["explain", GOOD])["blocked_by"], serde_json::json!([]), "its neighbour is not");

    assert!(edge.cli(&["allow", "add", BAD]).status.success());
    let allowed = edge.json(&["explain", BAD]);
    assert_eq!((&allowed["verdict"], &allowed["reason"]), (&"pass".into(), &"allowed".into()));
    assert_eq!(allowed["allowed_by"], serde_json::json!(["10.99.0.66/32"]));
    assert_eq!(allowed["blocked_by"].as_array().unwrap().len(), 1, "the block is still there");
    assert!(text(&edge, &[BAD]).contains("PASSES: it is on the allow list"));
}

#[test]
fn a_user_its_services_and_ipv6_sources_are_told_apart() {
    let (one, two) = ("fd00:99:aa:1::1", "fd00:99:aa:1:ffff::2");
    let edge = edge_with_sources(&["10.99.7.1", "10.99.7.2", one]);
    let policy = format!(
        r#"
[source]
limits = ["2000 packets/day"]
[[service]]
name = "game"
match = {{ protocol = "udp", ports = [{PORT}] }}
per_source = ["400 packets/day"]
total = ["100000 packets/s"]
[[service]]
name = "web"
match = {{ protocol = "tcp", ports = [80] }}
per_source = ["100 syns/s"]
syn_cookies = "1000 syns/s"
[plan.gold]
network = ["1000 packets/day"]
[[user]]
name = "acme"
plan = "gold"
sources = ["10.99.7.0/24", "fd00:99:aa::/48"]
"#
    );
    let _daemon = edge.start(&policy);
    sent(flood(&edge, "10.99.7.1", EDGE_V4, 2_000, 0.5));
    let v4 = edge.json(&["explain", "10.99.7.1"]);
    assert_eq!(v4["verdict"], "pass", "only the service refuses: {v4:#}");
    let refusal = &v4["refusals"][0];
    assert_eq!((&refusal["reason"], &refusal["service"]), (&"limit_packets".into(), &"game".into()));
    assert_eq!((&v4["user"]["name"], &v4["user"]["plan"]), (&"acme".into(), &"gold".into()));
    assert_eq!(v4["user"]["prefix"], "10.99.7.0/24");
    let left = |explanation: &Value| number(&explanation["user"]["limits"][0]["left"]);
    assert!((590..=610).contains(&left(&v4)), "400 of 1000 are spent: {v4:#}");
    let names: Vec<&Value> = v4["services"].as_array().unwrap().iter().map(|one| &one["service"]).collect();
    assert_eq!(names, ["game", "web"]);
    assert_eq!(number(&v4["services"][0]["per_source"]["limits"][0]["left"]), 0);
    assert_eq!(v4["services"][0]["totals"][0]["rate"], "100000 packets/s burst 100000");
    assert_eq!(v4["services"][1]["syn_cookies"]["threshold"], "1000 syns/s burst 1000");
    let words = text(&edge, &["10.99.7.1", "--service", "game"]);
    assert!(
        words.contains("its next packet passes\n  packets for service game are refused for another 3 min"),
        "{words}"
    );
    assert!(words.contains("user     acme, plan gold, by its prefix 10.99.7.0/24\n"), "{words}");
    assert!(words.contains("service game") && !words.contains("service web"), "{words}");
    let other = edge.json(&["explain", "10.99.7.2"]);
    let of_game = &other["services"][0]["per_source"]["limits"][0];
    assert_eq!(of_game["left"], of_game["capacity"], "it has not sent");
    assert_eq!(left(&other), left(&v4), "and shares what the user has left");

    sent(flood(&edge, one, EDGE_V6, 1_000, 0.1));
    let v6 = edge.json(&["explain", two]);
    assert_eq!((&v6["address"], &v6["source"]), (&two.into(), &"fd00:99:aa:1::/64".into()));
    let of_game = &v6["services"][0]["per_source"]["limits"][0];
    assert!(number(&of_game["left"]) <= 310, "its neighbour in the /64 has spent it: {of_game}");
    assert!(left(&v6) <= 520, "{v6:#}");
    let prefix_levels: Vec<&Value> =
        v6["prefixes"].as_array().unwrap().iter().map(|one| &one["prefix"]).collect();
    assert_eq!(prefix_levels, ["fd00:99:aa::/56", "fd00:99:aa::/48", "fd00:99::/32"]);
    let mapped = edge.json(&["explain", "::ffff:10.99.7.1"]);
    assert_eq!((&mapped["address"], &mapped["source"]), (&"10.99.7.1".into(), &"10.99.7.1/32".into()));
}

#[test]
fn a_policy_on_trial_says_that_nothing_is_dropped() {
    let edge = edge_with_sources(&[BAD]);
    let _daemon = edge.start("mode = \"monitor\"\n[source]\nlimits = [\"300 packets/day\"]\n");
    sent(flood(&edge, BAD, EDGE_V4, 2_000, 0.5));
    let bad = edge.json(&["explain", BAD]);
    assert_eq!((&bad["mode"], &bad["verdict"]), (&"monitor".into(), &"would_drop".into()));
    assert_eq!(bad["refusals"][0]["waived"], true);
    let words = text(&edge, &[BAD]);
    assert!(
        words.contains("mode = \"monitor\": nothing is dropped, only counted\nWOULD BE REFUSED"),
        "{words}"
    );
}

#[test]
fn mistakes_are_answered_with_a_sentence_and_the_documented_code() {
    let edge = Edge::new();
    let refused = |words: &[&str], code: i32, sentence: &str| {
        let output = edge.cli(&[&["explain"], words].concat());
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(sentence), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
    };
    refused(&["10.99.0"], 2, "\"10.99.0\" is not an address; use one, such as 203.0.113.7 or 2001:db8::1");
    refused(&["10.99.0.0/24"], 2, "\"10.99.0.0/24\" is a prefix; name one address of it");
    refused(&[], 2, "<ADDRESS>");
    refused(&[GOOD], 3, "no daemon reachable");
    let _daemon = edge.start("[source]\nlimits = [\"300 packets/day\"]\n");
    refused(&[GOOD, "--service", "dns"], 2, "no service is called \"dns\"; the policy has none");
}
