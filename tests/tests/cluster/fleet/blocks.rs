//! Blocks that reach every host, and the hosts themselves.

use std::time::Duration;

use ratelimit_tests::{
    fleet::{Fleet, Member, SOURCE},
    redis::{Options, Redis, wait_for},
    running_time::RunningTime,
    traffic::done,
};
use serde_json::Value;

use super::{alone, through_socket};

/// What the next daemon knows of blocks.
const RECORD: &str = "lists.journal";
const LIMIT: &str = "100000 packets/s burst 100000";

fn listed(host: &Member, prefix: &str) -> Option<Value> {
    let blocks = host.edge.json(&["block", "list"])["blocks"].clone();
    blocks.as_array()?.iter().find(|block| block["prefix"] == prefix).cloned()
}

fn order(host: &Member, words: &[&str]) -> String {
    let output = host.edge.cli(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_block_and_its_removal_reach_every_host_within_a_second() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet = Fleet::start(3, LIMIT, &through_socket(&redis), "hosts = 3");
    let mut times = Vec::new();
    for (nth, origin) in [0, 1, 2, 0].into_iter().enumerate() {
        let began = RunningTime::now();
        let reason = format!("flood {nth}");
        order(
            &fleet.hosts[origin],
            &["block", "add", "10.99.0.64/26", "--for", "1m", "--reason", &reason, "--cluster"],
        );
        for host in &fleet.hosts {
            let block = wait_for("the block", || listed(host, "10.99.0.64/26"));
            assert_eq!(
                (&block["reason"], &block["origin"]),
                (&reason.clone().into(), &format!("edge-{origin}").into())
            );
            assert!((50..=60).contains(&block["seconds_left"].as_u64().expect("a time")), "{block}");
        }
        times.push(began.elapsed());
        let before = fleet.sample().total();
        fleet.flood(&[0, 1, 2], 500, 0.2).into_iter().for_each(done);
        assert_eq!(fleet.sample().total(), before, "{SOURCE} is blocked everywhere");
        let began = RunningTime::now();
        order(&fleet.hosts[(origin + 1) % 3], &["block", "del", "10.99.0.64/26", "--cluster"]);
        for host in &fleet.hosts {
            wait_for("the removal", || listed(host, "10.99.0.64/26").is_none().then_some(()));
        }
        times.push(began.elapsed());
    }
    println!("block on one host to block on all three, and the same for removals: {times:?}");
    times.sort_unstable();
    // A command is started for each look, and one of them may have waited for a CPU.
    assert!(times[times.len() - 2] < Duration::from_secs(1), "{times:?}");
    assert!(times[times.len() - 1] < Duration::from_secs(3), "{times:?}");
}

#[test]
fn a_host_that_was_away_catches_up_and_one_that_restarts_keeps_what_it_knew() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet = Fleet::start(2, LIMIT, &through_socket(&redis), "hosts = 2");
    order(&fleet.hosts[0], &["block", "add", "192.0.2.0/24", "--cluster"]);
    wait_for("the block", || listed(&fleet.hosts[1], "192.0.2.0/24"));
    fleet.hosts[1].daemon.take().expect("a daemon").kill_9();
    order(&fleet.hosts[0], &["block", "add", "198.51.100.0/24", "--cluster"]);
    order(&fleet.hosts[0], &["block", "del", "192.0.2.0/24", "--cluster"]);
    fleet.hosts[1].restart();
    wait_for("what was missed", || listed(&fleet.hosts[1], "198.51.100.0/24"));
    wait_for("what was removed meanwhile", || {
        listed(&fleet.hosts[1], "192.0.2.0/24").is_none().then_some(())
    });
    // Emptied: the hosts still know, and tell the store again.
    redis.ask(&["FLUSHALL"]);
    let mut third = Fleet::start(1, LIMIT, &through_socket(&redis), "hosts = 2\n");
    let newcomer = third.hosts.remove(0);
    wait_for("a block that the store had lost", || listed(&newcomer, "198.51.100.0/24"));
}

#[test]
fn what_was_answered_while_the_store_was_away_reaches_every_host_whatever_becomes_of_the_daemon() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet = Fleet::start(2, LIMIT, &through_socket(&redis), "hosts = 2");
    let kept = ["192.0.2.0/24", "198.51.100.0/24"];
    order(&fleet.hosts[0], &["block", "add", kept[0], "--cluster"]);
    wait_for("the block", || listed(&fleet.hosts[1], kept[0]));
    redis.pause();
    wait_for("a store that counts as gone", || fleet.hosts[0].status()["failing_seconds"].as_u64());
    order(&fleet.hosts[0], &["block", "add", kept[1], "--reason", "flood", "--for", "1h", "--cluster"]);
    order(&fleet.hosts[0], &["block", "del", kept[0], "--cluster"]);
    // Twice: what the first one inherits it must hand on.
    for _ in 0..2 {
        fleet.hosts[0].daemon.take().expect("a daemon").kill_9();
        fleet.hosts[0].restart();
        assert!(listed(&fleet.hosts[0], kept[0]).is_none(), "removed here");
        assert_eq!(listed(&fleet.hosts[0], kept[1]).expect("blocked here")["origin"], "edge-0");
        assert_eq!(fleet.hosts[0].status()["changes_waiting"], 2);
    }
    redis.resume();
    for host in &fleet.hosts {
        wait_for("the block that was answered", || listed(host, kept[1]).filter(|b| b["reason"] == "flood"));
        wait_for("the removal that was answered", || listed(host, kept[0]).is_none().then_some(()));
    }
    wait_for("nothing that waits", || (fleet.hosts[0].status()["changes_waiting"] == 0).then_some(()));
    for host in &fleet.hosts {
        assert!(listed(host, kept[1]).is_some() && listed(host, kept[0]).is_none());
    }
}

#[test]
fn a_record_of_blocks_that_is_broken_leaves_them_the_cluster_s() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet = Fleet::start(1, LIMIT, &through_socket(&redis), "hosts = 2");
    order(&fleet.hosts[0], &["block", "add", "192.0.2.0/24", "--cluster"]);
    order(&fleet.hosts[0], &["block", "add", "198.51.100.0/24", "--reason", "mine"]);
    redis.pause();
    for broken in [&b"garbage\n"[..], b""] {
        fleet.hosts[0].daemon.take().expect("a daemon").kill_9();
        std::fs::write(fleet.hosts[0].edge.state().join(RECORD), broken).expect("break it");
        fleet.hosts[0].restart();
        let origins = ["192.0.2.0/24", "198.51.100.0/24"]
            .map(|prefix| listed(&fleet.hosts[0], prefix).expect(prefix)["origin"].clone());
        assert_eq!(origins, ["edge-0".into(), Value::Null]);
        fleet.hosts[0].daemon.as_ref().expect("a daemon").wait_for_log(RECORD);
    }
    redis.resume();
    order(&fleet.hosts[0], &["block", "del", "192.0.2.0/24", "--cluster"]);
    wait_for("its removal", || listed(&fleet.hosts[0], "192.0.2.0/24").is_none().then_some(()));
}

#[test]
fn a_block_of_this_host_alone_stays_when_the_one_for_all_goes() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let fleet = Fleet::start(2, LIMIT, &through_socket(&redis), "hosts = 2");
    order(&fleet.hosts[1], &["block", "add", "192.0.2.7", "--reason", "mine", "--for", "1h"]);
    order(&fleet.hosts[0], &["block", "add", "192.0.2.7", "--reason", "everybody's", "--cluster"]);
    wait_for("the block for all", || {
        listed(&fleet.hosts[1], "192.0.2.7/32").filter(|block| block["origin"] == "edge-0")
    });
    order(&fleet.hosts[0], &["block", "del", "192.0.2.7", "--cluster"]);
    wait_for("the removal", || listed(&fleet.hosts[0], "192.0.2.7/32").is_none().then_some(()));
    let left = wait_for("its own", || {
        listed(&fleet.hosts[1], "192.0.2.7/32").filter(|block| block["origin"].is_null())
    });
    assert_eq!(left["reason"], "mine");
}

#[test]
fn a_block_of_this_host_and_one_for_all_are_listed_each_with_its_own_end() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet = Fleet::start(2, LIMIT, &through_socket(&redis), "hosts = 2");
    let both = |host: &Member| -> Vec<(Value, bool, Value)> {
        let blocks = host.edge.json(&["block", "list"])["blocks"].clone();
        let row = |block: &Value| {
            (block["origin"].clone(), block["seconds_left"].is_null(), block["reason"].clone())
        };
        let mut rows: Vec<_> = blocks.as_array().expect("blocks").iter().map(row).collect();
        rows.sort_by_key(|(origin, ..)| origin.is_string());
        rows
    };
    let is_both = |host: &Member, rows: &[(Value, bool, Value)]| {
        wait_for("both blocks", || (both(host) == rows).then_some(()));
    };
    let (mine, all) = (Value::from("mine"), Value::from("all"));
    let add = |host: &Member, rest: &[&str]| order(host, &[&["block", "add", "192.0.2.7"], rest].concat());
    // The one for all is the shorter one: the list of the kernel says the other.
    add(&fleet.hosts[1], &["--reason", "mine"]);
    let said = add(&fleet.hosts[1], &["--reason", "all", "--for", "1h", "--cluster"]);
    assert!(said.contains("for 3600 s for all hosts; this host's own block, until removed, stays"), "{said}");
    let origin = Value::from("edge-1");
    let rows = [(Value::Null, true, mine.clone()), (origin.clone(), false, all.clone())];
    is_both(&fleet.hosts[1], &rows);
    is_both(&fleet.hosts[0], &rows[1..]);
    // The one for all is the longer one: the list of the kernel says that.
    add(&fleet.hosts[1], &["--reason", "mine", "--for", "30m"]);
    let rows = [(Value::Null, false, mine), (origin, false, all)];
    is_both(&fleet.hosts[1], &rows);
    fleet.hosts[1].daemon.take().expect("a daemon").kill_9();
    fleet.hosts[1].restart();
    is_both(&fleet.hosts[1], &rows);
    order(&fleet.hosts[1], &["block", "del", "192.0.2.7"]);
    is_both(&fleet.hosts[1], &rows[1..]);
}

#[test]
fn no_host_can_cut_another_off_from_who_must_reach_it() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let fleet = Fleet::start(2, LIMIT, &through_socket(&redis), "hosts = 2");
    // The hosts have the same address, so the first is made to say what it would refuse for itself.
    order(&fleet.hosts[0], &["block", "add", "10.99.0.0/24", "--cluster", "--force"]);
    let block = wait_for("a block that is refused", || listed(&fleet.hosts[1], "10.99.0.0/24"));
    assert!(block["refused"].as_str().is_some_and(|why| why.contains("10.99.0.1")), "{block}");
    let text = order(&fleet.hosts[1], &["block", "list"]);
    assert!(text.contains("NOT BLOCKED HERE"), "{text}");
    let plain = fleet.hosts[1].edge.cli(&["block", "add", "10.99.0.0/24", "--cluster"]);
    assert_eq!(plain.status.code(), Some(2), "{plain:?}");
}

#[test]
fn hosts_see_each_other_come_and_go() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet = Fleet::start(2, LIMIT, &through_socket(&redis), "hosts = 2");
    let states = |host: &Member| -> Vec<(String, String)> {
        let hosts = host.edge.json(&["cluster"])["hosts"].clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        hosts
            .as_array()
            .expect("hosts")
            .iter()
            .map(|host| (text(&host["host"]), text(&host["state"])))
            .collect()
    };
    let here = |name: &str| (name.to_owned(), "here".to_owned());
    wait_for("both", || (states(&fleet.hosts[0]) == [here("edge-0"), here("edge-1")]).then_some(()));
    let text = order(&fleet.hosts[0], &["cluster"]);
    assert!(text.contains("edge-1") && text.contains("bound"), "{text}");
    fleet.hosts[1].daemon.take().expect("a daemon").kill_9();
    wait_for("one that is late", || {
        states(&fleet.hosts[0]).contains(&("edge-1".to_owned(), "late".to_owned())).then_some(())
    });
    let alone = Fleet::start(1, LIMIT, &through_socket(&redis), "name = \"another\"");
    wait_for("a cluster of its own", || (states(&alone.hosts[0]) == [here("edge-0")]).then_some(()));
}

#[test]
fn a_caller_that_one_host_refuses_for_too_long_is_blocked_on_every_host() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let api = "hosts = 2\n[[api]]\nname = \"search\"\nkey = [\"ip\"]\nlimits = [\"1/min\"]\nalgorithm = \"fixed-window\"\n\
               escalate = { above = \"3/s\", for = \"1s\", block = \"5m\" }\n";
    let fleet = Fleet::start(2, LIMIT, &through_socket(&redis), api);
    let question = ["test", "--api", "search", "--ip", "203.0.113.7"];
    let block = wait_for("a block", || {
        // The daemon refuses all questions but the first.
        fleet.hosts[0].edge.cli(&question);
        listed(&fleet.hosts[0], "203.0.113.7/32")
    });
    assert_eq!(block["reason"], "refused by api search");
    let there = wait_for("the block on the other host", || listed(&fleet.hosts[1], "203.0.113.7/32"));
    assert_eq!((&there["reason"], &there["origin"]), (&block["reason"], &"edge-0".into()));
    order(&fleet.hosts[1], &["block", "del", "203.0.113.7", "--cluster"]);
    wait_for("the removal on the first", || {
        listed(&fleet.hosts[0], "203.0.113.7/32").is_none().then_some(())
    });
}
