//! `[cluster]`: every mistake at its place, and what its limits do across hosts.

use std::time::Duration;

use super::{parse, problems, warnings};
use crate::policy::{ClusterPolicy, Reserve, WithoutStore};

fn cluster(lines: &str) -> String {
    format!("[source]\nlimits = [\"10/s\"]\n[cluster]\n{lines}\n")
}

fn read(lines: &str) -> ClusterPolicy {
    let loaded = parse(&cluster(lines), "p.toml").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(loaded.warnings, [], "{lines}");
    loaded.policy.cluster().unwrap().clone()
}

#[test]
fn an_address_is_enough_and_every_key_is_understood() {
    let least = read("redis = \"redis://127.0.0.1\"");
    assert_eq!(least.redis().to_string(), "redis://127.0.0.1:6379");
    assert_eq!((least.name(), least.host(), least.hosts()), ("ratelimit", None, 16));
    assert_eq!(least.reserve(), Reserve::new(50, 16));
    assert_eq!((least.tick(), least.lease()), (Duration::from_millis(50), Duration::from_secs(1)));
    assert_eq!(least.without_store(), WithoutStore::Reserve);
    let all = read(
        "redis = \"rediss+sentinel://me:s3cret@a,b/main\"\nname = \"edge\"\nhost = \"fra-1\"\nhosts = 3\nreserve = \"2.5%\"\n\
         tick = \"20ms\"\nlease = \"500 ms\"\nwithout_store = \"last-rate\"",
    );
    assert_eq!(all.redis().to_string(), "rediss+sentinel://me@a:26379,b:26379/main");
    assert_eq!((all.name(), all.host(), all.hosts()), ("edge", Some("fra-1"), 3));
    assert_eq!(all.reserve(), Reserve::new(25, 3));
    assert_eq!((all.tick(), all.lease()), (Duration::from_millis(20), Duration::from_millis(500)));
    assert_eq!(all.without_store(), WithoutStore::LastRate);
    let none = parse("[source]\nlimits = [\"10/s\"]\n", "p.toml").unwrap().policy;
    assert_eq!(none.cluster(), None);
}

#[test]
fn all_mistakes_of_a_cluster_are_reported_at_once_each_at_its_place() {
    let found = problems(&cluster(
        "redis = \"redis://me:s3cret@h:port\"\n\
         name = \"a}b\"\n\
         host = \"\"\n\
         hosts = 0\n\
         reserve = \"60%\"\n\
         tick = \"1ms\"\n\
         lease = \"61s\"\n\
         without_store = \"open\"\n\
         hsots = 3",
    ));
    assert_eq!(
        found,
        [
            "p.toml:4:9: redis: host \"h\" has a port that is not a number from 1 to 65535",
            "p.toml:5:8: name = \"a}b\" is not possible; use 1 to 64 letters, digits, dots, dashes and underscores",
            "p.toml:6:8: host = \"\" is not possible; use 1 to 64 letters, digits, dots, dashes and underscores",
            "p.toml:7:9: hosts = 0 is not possible; use 1 to 10000",
            "p.toml:8:11: reserve = \"60%\" is not a part of a limit; use \"0%\" to \"50%\", at most one decimal",
            "p.toml:9:8: tick = \"1ms\" is not possible; use 10ms to 1s",
            "p.toml:10:9: lease = \"61s\" is not possible with a tick of 50 ms; use 200 ms to 60s",
            "p.toml:11:17: without_store = \"open\" is not known; use \"reserve\" or \"last-rate\"",
            "p.toml:12:1: key \"hsots\" is not known; did you mean \"hosts\"? known here: redis, password_file, name, host, hosts, reserve, tick, \
             lease, without_store",
        ]
    );
}

#[test]
fn a_mistake_in_a_cluster_is_one_problem() {
    for (lines, expected) in [
        (
            "",
            "p.toml:3:1: [cluster] has no redis: nothing could be shared; write redis = \"redis://127.0.0.1:6379\"",
        ),
        ("redis = 6379", "p.toml:4:9: redis is a number; write a string in quotes"),
        (
            "redis = \"redis+sentinel://a,b,a:26379/main\"",
            "p.toml:4:9: redis: Sentinel a:26379 is there twice and would have two votes; name each Sentinel once",
        ),
        (
            "redis = \"127.0.0.1\"",
            "p.toml:4:9: redis: the address has no scheme; write for example redis://127.0.0.1:6379",
        ),
        ("redis = \"redis://h\"\nhosts = \"3\"", "p.toml:5:9: hosts is a string; write a whole number"),
        ("redis = \"redis://h\"\nreserve = 5", "p.toml:5:11: reserve is a number; write a string in quotes"),
        // The default lease is too short for the tick.
        (
            "redis = \"redis://h\"\ntick = \"500ms\"",
            "p.toml:5:8: lease = \"1000 ms\" is not possible with a tick of 500 ms; use 2000 ms to 60s",
        ),
    ] {
        assert_eq!(problems(&cluster(lines)), [expected], "{lines}");
    }
    assert_eq!(
        problems("cluster = \"redis://h\"\n[source]\nlimits = [\"1/s\"]\n"),
        ["p.toml:1:11: cluster is a string; write it as a table, [cluster]"]
    );
}

#[test]
fn no_mistake_shows_a_password() {
    for redis in [
        "\"redis://me:s3cret\"",
        "\"redis://me:s3cret@h:x\"",
        "\"redis://:s3cret@\"",
        "\"redis://s3cret@h\"",
        "\"http://me:s3cret@h\"",
        "\"redis://me:s3cret@a,b\"",
        "\"redis://me:s3cret@h?x=1\"",
        "\"redis://me:s3cret%@h\"",
        "[\"redis://me:s3cret@h\"]",
        "redis://me:s3cret@h",
        "\"redis://me:s3cret@h",
    ] {
        let found = problems(&cluster(&format!("redis = {redis}\nhosts = 0")));
        assert!(found.iter().all(|problem| !problem.contains("s3cret")), "{found:#?}");
        assert!(found[0].starts_with("p.toml:4:"), "{found:#?}");
    }
}

/// A plan in line 4, a user with limits of its own in line 7, and a cluster.
fn users(plan: &str, own: &str, lines: &str) -> String {
    format!(
        "[source]\nlimits = [\"1/day\"]\n[plan.gold]\nnetwork = [{plan}]\n\
         [[user]]\nname = \"a\"\nnetwork = [{own}]\nsources = [\"192.0.2.0/24\"]\n\
         [[user]]\nname = \"b\"\nplan = \"gold\"\nsources = [\"198.51.100.0/24\"]\n\
         [cluster]\nredis = \"redis://h\"\n{lines}\n"
    )
}

const FINE: &str = "\"20000 packets/s burst 40000\"";

#[test]
fn a_limit_that_the_store_cannot_count_is_an_error_where_it_is_written() {
    let much = "\"1000003 packets/day\"";
    let sentence = "network \"1000003 packets/day burst 1000003\": the burst is too large to be counted exactly across hosts at \
                    this rate; use at most ";
    let found = problems(&users(much, &format!("{FINE}, {much}"), ""));
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with(&format!("p.toml:4:12: plan \"gold\": {sentence}")), "{found:#?}");
    assert!(found[1].starts_with(&format!("p.toml:7:43: user \"a\": {sentence}")), "{found:#?}");
    // Without a cluster, each host can count the limit by itself.
    let alone = users(much, much, "").replace("[cluster]\nredis = \"redis://h\"\n", "");
    assert!(parse(&alone, "p.toml").is_ok());
}

#[test]
fn a_limit_that_each_host_counts_for_itself_is_named() {
    let sentence = "is counted by each host for itself: only a hard bucket holds on all hosts together";
    assert_eq!(
        warnings(&users(
            "\"900 packets/hour sliding-window\"",
            "\"20000 packets/s burst 40000 soft 10%\"",
            ""
        )),
        [
            format!("p.toml:4:12: plan \"gold\": network \"900 packets/hour sliding-window\" {sentence}"),
            format!("p.toml:7:12: user \"a\": network \"20000 packets/s burst 40000 soft 10%\" {sentence}"),
        ]
    );
    assert_eq!(warnings(&users(FINE, FINE, "")), [""; 0]);
}

#[test]
fn a_burst_that_cannot_keep_up_with_the_rate_across_hosts_is_told_what_could() {
    assert_eq!(
        warnings(&users(FINE, "\"20000 packets/s burst 1999\"", "")),
        [
            "p.toml:7:12: user \"a\": network \"20000 packets/s burst 1999\" gives less than its rate on all hosts together, which \
          exchange every 50 ms; use a burst of at least 2000"
        ]
    );
    assert_eq!(warnings(&users(FINE, "\"20000 packets/s burst 2000\"", "")), [""; 0]);
    let slower = warnings(&users(FINE, "\"20000 packets/s burst 2000\"", "tick = \"100ms\""));
    assert!(slower[0].ends_with("exchange every 100 ms; use a burst of at least 4000"), "{slower:#?}");
}

#[test]
fn a_reserve_of_nothing_is_told_which_burst_has_one() {
    let small = "\"5 packets/s burst 319\"";
    assert_eq!(
        warnings(&users(FINE, small, "")),
        [
            "p.toml:7:12: user \"a\": network \"5 packets/s burst 319\" has too small a reserve: a host that is cut off lets nothing \
          of it pass; use a burst of at least 320, or fewer hosts"
        ]
    );
    // A host's part of the reserve must have room for one frame.
    let bytes = |burst: u64| warnings(&users(FINE, &format!("\"1 MB/s burst {burst} bytes\""), ""));
    assert!(
        bytes(484_479)[0].ends_with("use a burst of at least 484480, or fewer hosts"),
        "{:#?}",
        bytes(484_479)
    );
    assert_eq!(bytes(484_480), [""; 0]);
    for fine in ["hosts = 15", "reserve = \"0%\"", "reserve = \"5.1%\"", "without_store = \"last-rate\""] {
        assert_eq!(warnings(&users(FINE, small, fine)), [""; 0], "{fine}");
    }
}
