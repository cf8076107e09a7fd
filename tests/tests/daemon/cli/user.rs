//! `ratelimit user`: plans, limits of a user's own, and its buckets.

use std::{fs, net::UdpSocket};

use ratelimit_tests::{
    answer::{assert_answer, assert_refused, stdout},
    daemon::Edge,
    netns::EDGE_V4,
};

const POLICY: &str = r#"
[source]
limits = ["5000 packets/s burst 10000"]
ladder = false
[plan.gold]
network = ["200 packets/day"] # plenty
[plan.free]
network = ["50 packets/day"]
[[user]]
name = "acme" # the big one
plan = "free"
sources = ["10.99.0.64/28"]
[[user]]
name = "branch"
network = ["7 packets/day", "1 GB/day"]
sources = ["10.99.1.0/24", "2001:db8::/48"]
"#;

/// A neighbour of the edge, who is one of acme's.
const CLIENT: &str = "10.99.0.66";

/// Sends so many datagrams to the edge from one address, and waits until each has been counted.
fn send(edge: &Edge, count: u64) {
    let seen = || {
        let totals = edge.json(&["stats"])["totals"].clone();
        totals["passed_packets"].as_u64().unwrap() + totals["dropped_packets"].as_u64().unwrap()
    };
    let before = seen();
    edge.wire.as_net(|| {
        let socket = UdpSocket::bind((CLIENT, 0)).unwrap();
        for _ in 0..count {
            socket.send_to(b"x", (EDGE_V4, 9999)).unwrap();
        }
    });
    while seen() < before + count {}
}

/// What is left of acme's first limit.
fn left(edge: &Edge) -> u64 {
    edge.json(&["user", "get", "acme"])["buckets"][0]["left"].as_u64().unwrap()
}

fn start() -> (Edge, ratelimit_tests::daemon::Daemon) {
    let edge = Edge::new();
    edge.wire.add_source(CLIENT.parse().unwrap());
    let daemon = edge.start(POLICY);
    (edge, daemon)
}

#[test]
fn users_are_listed_with_plan_sources_and_the_limits_that_count() {
    let (edge, _daemon) = start();
    let users = edge.json(&["user", "list"])["users"].clone();
    assert_eq!(
        users[0],
        serde_json::json!({
            "name": "acme", "plan": "free", "own": false, "sources": ["10.99.0.64/28"],
            "network": ["50 packets/day burst 50"],
        })
    );
    assert_eq!(users[1]["plan"], serde_json::Value::Null);
    assert_eq!(users[1]["network"].as_array().unwrap().len(), 2);
    let text = stdout(&edge.cli(&["user", "list"]));
    assert!(text.contains("branch  none  10.99.1.0/24, 2001:db8::/48  7 packets/day burst 7, "), "{text}");
    let branch = edge.json(&["user", "get", "branch"]);
    assert_eq!(branch["own"], true);
    assert_eq!(
        branch["buckets"][0],
        serde_json::json!({ "limit": "7 packets/day burst 7", "left": 7, "burst": 7 })
    );
    assert_answer(
        &edge.cli(&["user", "get", "branch"]),
        0,
        &["its own", "7 packets/day burst 7: 7 of 7 left"],
    );
}

#[test]
fn a_user_moves_to_another_plan_from_the_next_packet_on_and_keeps_what_it_spent() {
    let (edge, daemon) = start();
    send(&edge, 60);
    assert_eq!(edge.dropped("limit_user"), 10);
    assert_eq!(left(&edge), 0);
    let done = edge.cli(&["user", "set", "acme", "--plan", "gold"]);
    let sentence =
        "user acme: plan gold, network 200 packets/day burst 200 from now on, until the policy is read again";
    assert_answer(&done, 0, &[sentence]);
    daemon.wait_for_log("user.acme.plan set to gold by uid 0");
    assert_eq!(edge.json(&["user", "get", "acme"])["plan"], "gold");
    // A day's worth of 50 is a day's worth of 200: what was spent in time stays spent.
    send(&edge, 5);
    assert_eq!(edge.dropped("limit_user"), 15, "no fresh burst by changing plans");
    assert!(stdout(&edge.cli(&["user", "reset", "acme"])).contains("user acme has its whole burst again"));
    assert_eq!(left(&edge), 200);
    send(&edge, 60);
    assert_eq!(edge.dropped("limit_user"), 15, "all of them pass after a reset");
    assert_eq!(left(&edge), 140);
    assert_eq!(edge.json(&["status"])["policy_changed"], true);
    assert_answer(&edge.cli(&["rollback"]), 0, &["is in force again"]);
    assert_eq!(edge.json(&["user", "get", "acme"])["plan"], "free");
    assert!(!fs::read_to_string(edge.policy()).unwrap().contains("plan = \"gold\""), "the file is untouched");
    // Sixty of 200 were spent, which is more than all of 50.
    assert_eq!(left(&edge), 0);
    send(&edge, 5);
    assert_eq!(edge.dropped("limit_user"), 20, "no burst again on the way back either");
    daemon.kill_9();
    let _daemon = edge.start_again();
    send(&edge, 5);
    assert_eq!((edge.dropped("limit_user"), left(&edge)), (25, 0), "nor by a restart");
    assert!(stdout(&edge.cli(&["user", "reset", "acme"])).contains("user acme has its whole burst again"));
    assert_eq!(left(&edge), 50);
    send(&edge, 20);
    assert_eq!((edge.dropped("limit_user"), left(&edge)), (25, 30));
}

#[test]
fn a_bigger_burst_of_a_user_is_not_given_at_once_by_any_change_or_restart() {
    let (edge, daemon) = start();
    let [big, small] = ["50 packets/day burst 50", "50 packets/day burst 5"];
    send(&edge, 60);
    assert_eq!((edge.dropped("limit_user"), left(&edge)), (10, 0));
    let mut dropped = 10;
    let mut drops_all = |edge: &Edge, how: &str| {
        send(edge, 5);
        dropped += 5;
        assert_eq!(edge.dropped("limit_user"), dropped, "{how}");
    };
    for rate in [small, big] {
        assert_answer(&edge.cli(&["user", "set", "acme", "--network", rate]), 0, &[]);
        drops_all(&edge, "user set");
    }
    for rate in [small, big] {
        assert_answer(&edge.cli(&["limit", "set", "user.acme.network.packets", rate]), 0, &[]);
        drops_all(&edge, "limit set");
    }
    assert_answer(&edge.cli(&["limit", "set", "user.acme.network.packets", small]), 0, &[]);
    drops_all(&edge, "before a restart");
    daemon.kill_9();
    // Another file: what was set is not gone on with.
    fs::write(edge.policy(), format!("{POLICY}# burst 50 again\n")).unwrap();
    let daemon = edge.start_again();
    drops_all(&edge, "restart with an edited file");
    assert_answer(&edge.cli(&["user", "set", "acme", "--network", "50000 bytes/day"]), 0, &[]);
    drops_all(&edge, "bytes");
    assert_answer(&edge.cli(&["rollback"]), 0, &[]);
    drops_all(&edge, "rollback to packets");
    daemon.kill_9();
    let _daemon = edge.start_again();
    drops_all(&edge, "restart");
    assert_eq!(left(&edge), 0);
    assert!(stdout(&edge.cli(&["user", "reset", "acme"])).contains("user acme has its whole burst again"));
    assert_eq!(left(&edge), 50, "a reset forgives it");
}

#[test]
fn limits_of_its_own_count_before_the_plan_and_can_be_given_up_again() {
    let (edge, _daemon) = start();
    let own = ["user", "set", "acme", "--plan", "gold", "--network", "9/s", "--network", "1 MB/s burst 2 MB"];
    assert_answer(&edge.cli(&own), 0, &["plan gold, network 9 packets/s burst 9, 1 MB/s burst 2 MB"]);
    let acme = edge.json(&["user", "get", "acme"]);
    assert_eq!(
        (&acme["own"], &acme["plan"], acme["buckets"].as_array().unwrap().len()),
        (&true.into(), &"gold".into(), 2)
    );
    let note = "these are its own and count before its plan's, --inherit ends that";
    assert_answer(
        &edge.cli(&["user", "set", "acme", "--plan", "free"]),
        0,
        &["plan free, network 9 packets/s", note],
    );
    assert_answer(
        &edge.cli(&["user", "set", "acme", "--inherit"]),
        0,
        &["plan free, network 50 packets/day burst 50"],
    );
    assert_eq!(edge.json(&["user", "get", "acme"])["own"], false);
}

#[test]
fn a_user_is_saved_into_the_file_with_every_comment_in_place() {
    let (edge, daemon) = start();
    let file = edge.policy();
    let written = format!("; written into {}", file.display());
    assert_answer(&edge.cli(&["user", "set", "acme", "--plan", "gold", "--save"]), 0, &[&written]);
    let expected = POLICY.replace("plan = \"free\"", "plan = \"gold\"");
    assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    assert_eq!(edge.json(&["status"])["policy_changed"], false);
    let both =
        ["user", "set", "branch", "--plan", "gold", "--network", "8/day", "--network", "1 GB/day", "--save"];
    assert_answer(&edge.cli(&both), 0, &[]);
    let expected = expected.replace("name = \"branch\"\n", "plan = \"gold\"\nname = \"branch\"\n");
    let expected = expected.replace("[\"7 packets/day\", \"1 GB/day\"]", "[\"8/day\", \"1 GB/day\"]");
    assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    assert_answer(&edge.cli(&["user", "set", "branch", "--inherit", "--save"]), 0, &[]);
    let expected = expected.replace("network = [\"8/day\", \"1 GB/day\"]\n", "");
    assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    // Somebody else has moved acme meanwhile.
    edge.write_policy(
        &expected
            .replace("name = \"acme\" # the big one\nplan = \"gold\"", "name = \"acme\"\nplan = \"free\""),
    );
    let why = ["user.acme.plan", "has \"free\"", "what would be replaced is \"gold\"", "SIGHUP"];
    assert_refused(&edge.cli(&["user", "set", "acme", "--plan", "gold", "--save"]), 2, &why);
    edge.write_policy(&expected);
    daemon.kill_9();
    let _daemon = edge.start_again();
    let branch = edge.json(&["user", "get", "branch"]);
    assert_eq!(
        (&branch["plan"], &branch["own"]),
        (&"gold".into(), &false.into()),
        "a restart reads what was saved"
    );
}

#[test]
fn who_is_not_there_is_answered_with_those_who_are_and_nothing_changes() {
    let (edge, _daemon) = start();
    let users = ["no user is called \"nobody\"", "acme, branch"];
    for words in [
        &["user", "get", "nobody"][..],
        &["user", "reset", "nobody"],
        &["user", "set", "nobody", "--plan", "gold"],
    ] {
        assert_refused(&edge.cli(words), 2, &users);
    }
    let plans = ["no plan is called \"silver\"", "free, gold"];
    assert_refused(&edge.cli(&["user", "set", "acme", "--plan", "silver"]), 2, &plans);
    // The plan would do, the limit would not: neither is set.
    assert_refused(&edge.cli(&["user", "set", "acme", "--plan", "gold", "--network", "0/s"]), 2, &["rate 0"]);
    assert_refused(
        &edge.cli(&["user", "set", "acme", "--network", "fast"]),
        2,
        &["user.acme.network", "fast"],
    );
    assert_refused(
        &edge.cli(&["user", "set", "branch", "--inherit"]),
        2,
        &["\"branch\" is on no plan", "--plan"],
    );
    assert_refused(&edge.cli(&["user", "set", "acme"]), 2, &["--plan"]);
    assert_eq!(edge.json(&["user", "get", "acme"])["plan"], "free");
    assert_eq!(edge.json(&["status"])["policy_generation"], 1);
    let other = edge.dir().join("other.toml");
    fs::write(&other, POLICY).unwrap();
    assert_answer(&edge.cli(&["apply", other.to_str().unwrap(), "--confirm", "1h"]), 0, &[]);
    assert_refused(
        &edge.cli(&["user", "set", "acme", "--plan", "gold"]),
        2,
        &["user set refused", "waits for confirmation"],
    );
    assert_answer(&edge.cli(&["user", "reset", "acme"]), 0, &[]);
}

#[test]
fn a_reset_of_a_user_whose_requests_alone_are_limited_does_nothing_and_says_so() {
    let edge = Edge::new();
    let users = "[[user]]\nname = \"web\"\nlimits = [\"10/hour\"]\n[[api]]\nname = \"search\"\nlimits = [\"10/hour\"]\n";
    let _daemon = edge.start(&format!("{POLICY}{users}"));
    let refused = edge.cli(&["user", "reset", "web"]);
    assert_refused(
        &refused,
        1,
        &["user web has no limits of packets, so nothing was reset", "POST /v1/reset"],
    );
    let done = ["user acme has its whole burst again, of packets", "what was counted of its requests stays"];
    assert_answer(&edge.cli(&["user", "reset", "acme"]), 0, &done);
}

#[test]
fn a_user_is_not_set_to_less_than_its_live_ssh_session_needs_unless_forced() {
    let (edge, _daemon) = start();
    let over_ssh = |words: &[&str]| {
        let mut command = edge.cli_command(words);
        command.env("SSH_CONNECTION", "10.99.0.66 51234 10.99.0.1 22").output().unwrap()
    };
    let why = [
        "user acme: network \"5 packets/s burst 5\" is below what one SSH session needs",
        "10.99.0.66",
        "--force",
    ];
    assert_refused(&over_ssh(&["user", "set", "acme", "--network", "5/s"]), 2, &why);
    assert_refused(&over_ssh(&["limit", "set", "plan.free.network", "5/s"]), 2, &why);
    assert_answer(&over_ssh(&["user", "set", "acme", "--network", "5/s", "--force"]), 0, &[]);
    assert_answer(&over_ssh(&["user", "set", "branch", "--network", "5/s"]), 0, &[]);
}
