//! `ratelimit limit`: limits of the running policy.

use std::{fs, net::UdpSocket};

use ratelimit_tests::{
    answer::{assert_answer, assert_refused},
    daemon::Edge,
    netns::EDGE_V4,
};

use super::POLICY;

#[test]
fn limits_are_listed_read_and_changed_at_run_time() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let limits = edge.json(&["limit", "list"])["limits"].clone();
    assert_eq!(limits[0]["name"], "source.packets");
    assert_eq!(limits[1]["rate"], "100 syns/s burst 100");
    // The shell takes quotes away from who types none.
    assert_answer(&edge.cli(&["limit", "set", "source.syns", "80", "syns/s", "burst", "90"]), 0, &[]);
    assert_eq!(edge.json(&["limit", "get", "source.syns"])["rate"], "80 syns/s burst 90");
    assert!(edge.cli(&["limit", "set", "source.packets", "1000 packets/s burst 2000"]).status.success());
    assert_eq!(edge.json(&["limit", "get", "source.packets"])["amount"], 1_000);
    let status = edge.json(&["status"]);
    assert_eq!(status["policy_generation"], 3);
    assert_eq!(status["policy_changed"], true);
    for (words, sentence) in [
        (&["limit", "get", "nope"][..], &["\"nope\"", "source.packets", "source.syns"][..]),
        (&["limit", "set", "nope", "1/s"], &["nope", "source.packets"]),
        (&["limit", "set", "source.packets", "0/s"], &["rate 0"]),
        (&["limit", "set", "source.packets", "5 MB/s"], &["source.packets", "packets"]),
        (&["limit", "set", "source.packets", "fast"], &["fast"]),
    ] {
        assert_refused(&edge.cli(words), 2, sentence);
    }
    assert_eq!(edge.json(&["limit", "get", "source.packets"])["amount"], 1_000, "refusals change nothing");
    daemon.signal("HUP");
    daemon.wait_for_log("policy read again");
    assert_eq!(edge.json(&["limit", "get", "source.packets"])["amount"], 5_000, "the file counts again");
    assert_eq!(edge.json(&["status"])["policy_changed"], false);
}

const WHOLE: &str = r#"
[source]
limits = ["5000 packets/s burst 10000"]
ladder = false
[[service]]
name = "echo"
match = { protocol = "udp", ports = [7777] }
per_source = ["30 packets/day"] # each
total = ["1000 packets/day"]
[plan.gold]
network = ["200 packets/day"]
[[user]]
name = "acme"
plan = "gold"
sources = ["10.99.0.64/28"]
"#;

/// Datagrams of a packet each that pass to the service, of so many.
fn passed(edge: &Edge, count: u64) -> u64 {
    let counts = || {
        let stats = edge.json(&["stats"]);
        let services = stats["services"].as_array().unwrap();
        let echo = services.iter().find(|one| one["service"] == "echo").unwrap();
        let sum = |verdict: &str| -> u64 {
            let reasons = echo["reasons"].as_array().unwrap().iter().filter(|one| one["verdict"] == verdict);
            reasons.map(|one| one["packets"].as_u64().unwrap()).sum()
        };
        (sum("pass"), sum("drop"))
    };
    let before = counts();
    edge.wire.as_net(|| {
        let socket = UdpSocket::bind(("10.99.0.66", 0)).unwrap();
        for _ in 0..count {
            socket.send_to(b"x", (EDGE_V4, 7777)).unwrap();
        }
    });
    loop {
        let now = counts();
        if now.0 + now.1 >= before.0 + before.1 + count {
            return now.0 - before.0;
        }
    }
}

#[test]
fn every_limit_of_a_policy_is_listed_and_read_by_name() {
    let edge = Edge::new();
    let _daemon = edge.start(WHOLE);
    let limits = edge.json(&["limit", "list"])["limits"].clone();
    let names: Vec<&str> =
        limits.as_array().unwrap().iter().map(|limit| limit["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "source.packets",
            "service.echo.per_source.packets",
            "service.echo.total.packets",
            "plan.gold.network.packets",
            "user.acme.network.packets",
        ]
    );
    assert_eq!(
        (&limits[4]["from"], &limits[0]["from"]),
        (&"plan.gold.network".into(), &serde_json::Value::Null)
    );
    assert_answer(
        &edge.cli(&["limit", "list"]),
        0,
        &["user.acme.network.packets        200 packets/day burst 200    from plan.gold.network"],
    );
    assert_eq!(edge.json(&["limit", "get", "service.echo.total.packets"])["amount"], 1000);
    assert_eq!(edge.json(&["limit", "get", "service.echo.total"])["limits"][0]["amount"], 1000);
    assert_eq!(edge.json(&["limit", "get", "source"])["limits"].as_array().unwrap().len(), 1);
    for (name, sentence) in [
        ("service.echo.total.bytes", "there is service.echo.total.packets"),
        ("service.web.total", "no service is called \"web\"; there is echo"),
        ("user.acme.plan", "is no limit; use ratelimit user get"),
    ] {
        assert_refused(&edge.cli(&["limit", "get", name]), 2, &[sentence]);
    }
}

#[test]
fn limits_of_a_service_a_plan_and_a_user_are_changed_in_the_kernel() {
    let edge = Edge::new();
    edge.wire.add_source("10.99.0.66".parse().unwrap());
    let _daemon = edge.start(WHOLE);
    let set = |words: &[&str]| {
        assert_answer(&edge.cli(&[&["limit", "set"], words].concat()), 0, &["from now on"]);
    };
    // What was spent stays spent, as time: ten of 30 a day are eight hours, which leaves six of ten a day.
    assert_eq!(passed(&edge, 10), 10);
    set(&["service.echo.per_source.packets", "10 packets/day"]);
    let six = passed(&edge, 40);
    assert!((4..=6).contains(&six), "{six}");
    set(&["service.echo.per_source", "none"]);
    set(&["service.echo.total", "60 packets/day", "1 GB/day"]);
    assert_eq!(edge.json(&["limit", "get", "service.echo.total"])["limits"].as_array().unwrap().len(), 2);
    // 14 to 16 of 1000 a day were spent, and of 60 a day as many are. What CPUs held of the thousand, which may be more than 60, is not.
    let under_total = passed(&edge, 40);
    assert!((6..=40).contains(&under_total), "{under_total}");
    set(&["service.echo.total", "none"]);
    assert_eq!(passed(&edge, 40), 40);
    // 60 to 96 of 200 a day were spent, and of a slower limit as many packets are.
    set(&["plan.gold.network.packets", "100 packets/day"]);
    let of_plan = passed(&edge, 60);
    assert!((2..=40).contains(&of_plan), "{of_plan}");
    set(&["user.acme.network", "60 packets/day", "1 GB/day"]);
    assert_eq!(passed(&edge, 40), 0, "nothing is left of a day");
    assert_answer(&edge.cli(&["user", "reset", "acme"]), 0, &[]);
    assert_eq!(passed(&edge, 100), 60);
    let acme = edge.json(&["user", "get", "acme"]);
    assert_eq!((&acme["own"], acme["network"].as_array().unwrap().len()), (&true.into(), 2));
    assert_answer(&edge.cli(&["rollback"]), 0, &[]);
    assert_eq!(edge.json(&["user", "get", "acme"])["own"], false);
}

#[test]
fn limits_of_a_service_a_plan_and_a_user_are_saved_where_they_stand() {
    let edge = Edge::new();
    let daemon = edge.start(WHOLE);
    let save = |words: &[&str]| {
        assert_answer(&edge.cli(&[&["limit", "set"], words, &["--save"]].concat()), 0, &["written into"]);
    };
    save(&["service.echo.per_source", "40 packets/day", "2 MB/day"]);
    save(&["service.echo.total.bytes", "1 GB/day"]);
    save(&["plan.gold.network.packets", "300 packets/day"]);
    save(&["user.acme.network.packets", "250 packets/day"]);
    let expected = WHOLE
        .replace("[\"30 packets/day\"] # each", "[\"40 packets/day\", \"2 MB/day\"] # each")
        .replace("\"1000 packets/day\"", "\"1000 packets/day\", \"1 GB/day\"")
        .replace("\"200 packets/day\"", "\"300 packets/day\"")
        .replace("name = \"acme\"\n", "network = [\"250 packets/day\"]\nname = \"acme\"\n");
    assert_eq!(fs::read_to_string(edge.policy()).unwrap(), expected);
    assert_eq!(edge.json(&["status"])["policy_changed"], false);
    save(&["service.echo.per_source", "none"]);
    assert_eq!(
        fs::read_to_string(edge.policy()).unwrap(),
        expected.replace("[\"40 packets/day\", \"2 MB/day\"] # each", "[] # each")
    );
    daemon.kill_9();
    let _daemon = edge.start_again();
    assert_eq!(edge.json(&["user", "get", "acme"])["network"][0], "250 packets/day burst 250");
}

#[test]
fn a_limit_that_a_list_cannot_have_is_refused_and_nothing_changes() {
    let edge = Edge::new();
    let _daemon = edge.start(WHOLE);
    for (words, sentence) in [
        (&["source", "none"][..], "limits is empty"),
        (&["source.packets", "1/s", "2/s"], "limit \"source.packets\""),
        (&["service.echo.total", "10 syns/s"], "a total in syns is not possible"),
        (&["service.echo.per_source", "1/s", "1/min", "1/hour", "1/day", "1 MB/s"], "use at most 4"),
        (&["plan.silver.network", "1/s"], "no plan is called \"silver\"; there is gold"),
        (&["user.nobody.network", "1/s"], "no user is called \"nobody\"; there is acme"),
        (&["user.acme.plan", "gold"], "is no limit; use ratelimit user get or user set"),
    ] {
        assert_refused(&edge.cli(&[&["limit", "set"], words].concat()), 2, &[sentence]);
    }
    assert_eq!(edge.json(&["status"])["policy_generation"], 1);
}
