//! A policy that is compared and put in force for good.

use std::fs;

use ratelimit_tests::{
    answer::{assert_answer, assert_refused, said},
    daemon::{Daemon, Edge},
    netns::{EDGE, EDGE_V4, run},
    traffic::{Sink, done, edge_with_sources, flood, sent},
};

use super::{file, in_force, in_kernel, is_waiting, packets};

/// Cells of the prefilter give out less time than before, so what they gave counts as spent: a burst, and no more than that.
#[test]
fn a_change_that_counts_bursts_as_spent_refuses_nobody_who_keeps_to_the_rate() {
    const ONE: &str = "10.99.0.11";
    let edge = edge_with_sources(&[ONE]);
    let of = |rate: &str| format!("[source]\nladder = false\nlimits = [{rate:?}]\n");
    let daemon = edge.start(&of("1000 packets/s burst 10000"));
    let mut sink = Sink::start(&edge, EDGE_V4);
    let mut lost = || {
        let before = sink.datagrams(ONE);
        let sent = sent(flood(&edge, ONE, EDGE_V4, 200, 0.3));
        sent - (sink.datagrams_of(ONE, before + sent) - before)
    };
    assert_eq!(lost(), 0);
    let quicker = file(&edge, "quicker.toml", &of("5000 packets/s burst 5000"));
    assert_answer(&edge.cli(&["apply", &quicker]), 0, &[]);
    assert_eq!(lost(), 0, "by apply");
    assert_answer(&edge.cli(&["rollback"]), 0, &[]);
    daemon.kill_9();
    fs::copy(&quicker, edge.policy()).unwrap();
    let _daemon = edge.start_again();
    assert_eq!(lost(), 0, "by a restart with another file");
}

/// The source has used up its limit, and sends less than the new one from the change on.
#[test]
fn a_raised_limit_takes_effect_at_once() {
    const ONE: &str = "10.99.0.11";
    const RATES: [&str; 2] = ["1000 packets/s burst 1000", "10000 packets/s burst 1000"];
    // A quarter of a total is not for sources without an entry: of this one it takes 200 ms to fill.
    const OF_TOTAL: [&str; 2] = ["1000 packets/s burst 2000", "2500 packets/s burst 2000"];
    let wide = "[source]\nladder = false\nlimits = [\"100000 packets/s\"]\n";
    let service = "[[service]]\nname = \"s\"\nmatch = { protocol = \"udp\", ports = [\"1-65535\"] }\n";
    let plans = |rate: &str| {
        format!(
            "{wide}[plan.slow]\nnetwork = [{:?}]\n[plan.fast]\nnetwork = [{:?}]\n\
             [[user]]\nname = \"u\"\nsources = [\"{ONE}\"]\nplan = \"{rate}\"\n",
            RATES[0], RATES[1]
        )
    };
    let of = |kind: &str, rate: &str| match kind {
        "source" => format!("[source]\nladder = false\nlimits = [{rate:?}]\n"),
        "plan" => plans("slow"),
        kind => format!("{wide}{service}{kind} = [{rate:?}]\n"),
    };
    for kind in ["source", "per_source", "total", "plan"] {
        let edge = edge_with_sources(&[ONE]);
        let [slow, fast] = if kind == "total" { OF_TOTAL } else { RATES };
        let _daemon = edge.start(&of(kind, slow));
        let mut sink = Sink::start(&edge, EDGE_V4);
        done(flood(&edge, ONE, EDGE_V4, 5_000, 0.4));
        let before = sink.datagrams(ONE);
        let quicker = file(&edge, "quicker.toml", &of(kind, fast));
        let raised = match kind {
            "plan" => edge.cli(&["user", "set", "u", "--plan", "fast"]),
            _ => edge.cli(&["apply", &quicker]),
        };
        assert_answer(&raised, 0, &[]);
        let sent = sent(flood(&edge, ONE, EDGE_V4, 1_000, 0.1));
        let lost = sent - (sink.datagrams(ONE) - before);
        assert!(lost <= 20, "{kind}: {lost} of {sent} lost");
    }
}

/// The daemon moves the words of totals in the kernel before it switches the policy, and what CPUs hold of them is taken away.
#[test]
fn totals_that_become_slower_or_get_a_bigger_burst_give_nothing_again_by_apply_or_restart() {
    const ONE: &str = "10.99.0.11";
    let of = |host: &str, service: &str| {
        let list = |rate: &str| if rate.is_empty() { String::new() } else { format!("total = [{rate:?}]\n") };
        format!(
            "[host]\nlink = false\n{}[source]\nladder = false\ngate = false\nlimits = [\"100000 packets/s\"]\n\
             [[service]]\nname = \"s\"\nmatch = {{ protocol = \"udp\", ports = [\"1-65535\"] }}\n\
             per_source = [\"100000 packets/s\"]\n{}",
            list(host),
            list(service)
        )
    };
    let slow = "100 packets/day burst 2000";
    for place in ["service_total", "host_total"] {
        let edge = edge_with_sources(&[ONE]);
        let of = |rate: &str| if place == "host_total" { of(rate, "") } else { of("", rate) };
        let mut daemon = edge.start(&of(slow));
        let spend = || {
            let before = edge.dropped(place);
            let sent = sent(flood(&edge, ONE, EDGE_V4, 8_000, 0.4));
            // The host drops a few packets more than the flood has: those that the interfaces themselves send.
            sent.saturating_sub(edge.dropped(place) - before)
        };
        let first = spend();
        assert!((1_500..=2_000).contains(&first), "{place}: {first} passed at first");
        // What is left of the burst may pass at any time, and no change adds to it. 100 000 a day are one and a bit in a second.
        let mut all = first;
        let mut is_over = |passed: u64| {
            all += passed;
            all > 2_000 + 5
        };
        for other in ["100000 packets/day burst 2000", "100 packets/day burst 200"] {
            let applied = file(&edge, "other.toml", &of(other));
            assert_answer(&edge.cli(&["apply", &applied, "--force"]), 0, &[]);
            let there = spend();
            assert_answer(&edge.cli(&["rollback", "--force"]), 0, &[]);
            let back = spend();
            assert!(!is_over(there + back), "{place}: {first}, {there} and {back} passed with {other}");
            fs::write(edge.policy(), of(other)).unwrap();
            daemon.kill_9();
            daemon = edge.start_again();
            let there = spend();
            fs::write(edge.policy(), of(slow)).unwrap();
            daemon.kill_9();
            daemon = edge.start_again();
            let back = spend();
            assert!(
                !is_over(there + back),
                "{place}: {first}, {there} and {back} passed with {other} by restarts"
            );
        }
    }
}

#[test]
fn diff_shows_what_apply_would_change_and_exits_accordingly() {
    let edge = Edge::new();
    let same = file(&edge, "same.toml", "[source]\nlimits = [ \"1000/s\" ] # as it is\n");
    let other = file(&edge, "other.toml", &format!("interfaces = [\"{EDGE}\"]\n{}", packets(2000)));
    assert_answer(&edge.cli(&["diff", &same]), 3, &["no daemon reachable"]);
    let _daemon = edge.start(&packets(1000));
    assert_answer(&edge.cli(&["diff", &same]), 0, &["nothing would change"]);
    let output = edge.cli(&["diff", &other]);
    let rows = "limit source.packets: 1000 packets/s burst 1000 -> 2000 packets/s burst 2000\n\
                interfaces: none -> edge0; takes effect at the next start\n";
    assert_answer(&output, 1, &[]);
    assert_eq!(said(&output), rows);
    let output = edge.cli(&["diff", &other, "--output", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["changes"][0]["subject"], "limit source.packets");
    assert_eq!(json["changes"][0]["after"], "2000 packets/s burst 2000");
    assert_eq!(json["changes"][1]["needs_restart"], true);
    let nothing = serde_json::json!({ "version": 1, "changes": [], "warnings": [] });
    assert_eq!(edge.json(&["diff", &same]), nothing);
    let bad = file(&edge, "bad.toml", "[source]\nlimits = [\"0/s\"]\n");
    assert_answer(&edge.cli(&["diff", &bad]), 2, &["bad.toml:2:11:", "rate 0"]);
    assert_answer(&edge.cli(&["diff", "/nowhere.toml"]), 2, &["/nowhere.toml"]);
    assert_eq!(edge.json(&["status"])["policy_generation"], 1, "looking changes nothing");
}

#[test]
fn an_applied_policy_is_enforced_and_outlives_a_restart_until_the_policy_file_changes() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    let other = file(&edge, "other.toml", &packets(2000));
    let applied = edge.cli(&["apply", &other]);
    let stays = format!("a restart goes on with it as long as {} stays as it is", edge.policy().display());
    assert_answer(&applied, 0, &["other.toml is in force: 1 change", &stays]);
    daemon.wait_for_log("other.toml applied by uid 0");
    daemon.wait_for_log("  limit source.packets: 1000 packets/s burst 1000 -> 2000 packets/s burst 2000");
    assert_eq!((in_force(&edge), in_kernel(&edge)), (2000, 2000));
    let status = edge.json(&["status"]);
    assert_eq!((&status["policy"], &status["policy_changed"]), (&other.as_str().into(), &false.into()));
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "5000 packets/s"]), 0, &[]);
    let after = edge.json(&["status"])["policy_after_restart"].to_string();
    assert!(after.contains("other.toml as it was applied, without what was set since"), "{after}");
    daemon.kill_9();
    // The restart goes on with the applied policy also if its file is gone: the text was kept.
    fs::remove_file(&other).unwrap();
    let daemon = edge.start_again();
    daemon.wait_for_log("the applied policy stays in force");
    assert_eq!((in_force(&edge), in_kernel(&edge)), (2000, 2000));
    daemon.signal("HUP");
    daemon.wait_for_log("policy read again");
    assert_eq!(in_force(&edge), 1000, "SIGHUP reads the policy file");
    daemon.kill_9();
    let daemon = edge.start_again();
    assert_eq!(in_force(&edge), 1000, "and so does the next start");
    let other = file(&edge, "other.toml", &packets(2000));
    assert_answer(&edge.cli(&["apply", &other]), 0, &[]);
    daemon.kill_9();
    let daemon = edge.start(&packets(3000));
    daemon.wait_for_log("has changed since another policy was applied: the file is in force again");
    assert_eq!(in_force(&edge), 3000);
}

#[test]
fn the_daemons_own_policy_file_can_be_applied_and_is_what_a_restart_reads() {
    let edge = Edge::new();
    let _daemon = edge.start(&packets(1000));
    edge.write_policy(&packets(2000));
    let own = edge.policy();
    let own = own.to_str().unwrap();
    assert_answer(&edge.cli(&["apply", own]), 0, &[&format!("a restart reads {own}")]);
    assert_eq!(in_force(&edge), 2000);
}

#[test]
fn a_file_with_mistakes_is_not_applied() {
    let edge = Edge::new();
    let _daemon = edge.start(&packets(1000));
    let bad = file(&edge, "bad.toml", "colour = 1\n[source]\nlimits = [\"0/s\"]\n");
    assert_answer(&edge.cli(&["apply", &bad]), 2, &["bad.toml:1:1:", "bad.toml:3:11:", "rate 0"]);
    let good = file(&edge, "good.toml", &packets(2000));
    for (time, sentence) in
        [("0s", "at least 1ms"), ("10", "no unit"), ("1ms", "use 1s to 24h"), ("2d", "use 1s to 24h")]
    {
        assert_answer(&edge.cli(&["apply", &good, "--confirm", time]), 2, &[sentence, "--confirm"]);
    }
    assert_eq!((in_force(&edge), edge.json(&["status"])["policy_generation"].as_u64()), (1000, Some(1)));
}

#[test]
fn a_policy_that_cannot_be_written_down_is_not_applied() {
    let edge = Edge::new();
    let _daemon = edge.start(&packets(1000));
    // A directory cannot be replaced by a file, not even by root.
    fs::create_dir_all(edge.state().join("policy-in-force.json/in-the-way")).unwrap();
    let other = file(&edge, "other.toml", &packets(2000));
    for words in [&["apply", &other][..], &["apply", &other, "--confirm", "1h"]] {
        assert_answer(&edge.cli(words), 2, &["cannot write", "policy-in-force.json"]);
        assert_eq!((in_force(&edge), is_waiting(&edge)), (1000, false));
    }
}

#[test]
fn a_record_that_makes_no_sense_stops_the_start_and_says_what_to_do() {
    let edge = Edge::new();
    edge.start(&packets(1000)).kill_9();
    fs::write(edge.state().join("policy-in-force.json"), "{").unwrap();
    let output = edge.run_command().args(["--iface", EDGE]).output().unwrap();
    assert_answer(
        &output,
        2,
        &["cannot read", "policy-in-force.json", "without that file the policy file counts"],
    );
    assert_eq!(in_kernel(&edge), 1000);
}

#[test]
fn a_large_policy_is_applied_and_a_larger_one_is_refused_before_it_is_sent() {
    let edge = Edge::new();
    let _daemon = edge.start(&packets(1000));
    // Quotes and line ends, which take twice the room on the way.
    let line = format!("# {}\n", "\"".repeat(61));
    let most = 16 << 20;
    let comments = line.repeat((most - packets(2000).len()) / line.len());
    let large = file(&edge, "large.toml", &format!("{comments}{}", packets(2000)));
    assert_answer(&edge.cli(&["diff", &large]), 1, &["1000 packets/s burst 1000 -> 2000"]);
    assert_answer(&edge.cli(&["apply", &large, "--confirm", "1h"]), 0, &[]);
    assert_answer(&edge.cli(&["confirm"]), 0, &[]);
    assert_eq!(in_force(&edge), 2000);
    let larger = file(&edge, "larger.toml", &format!("{comments}{line}{line}{}", packets(2000)));
    assert_answer(&edge.cli(&["apply", &larger]), 2, &["larger.toml", "at most 16777216 bytes"]);
}

#[test]
fn a_policy_with_an_unknown_interface_is_refused() {
    let edge = Edge::new();
    let of = |names: &str| format!("interfaces = [{names}]\n{}", packets(1000));
    edge.write_policy(&of("\"edge0\""));
    let daemon = Daemon::start(edge.run_command());
    let wrong = file(&edge, "wrong.toml", &of("\"edge0\", \"eht0\""));
    let absent = ["interface \"eht0\" does not exist; this host has", EDGE, "nothing was changed"];
    assert_refused(&edge.cli(&["apply", &wrong]), 2, &absent);
    fs::copy(&wrong, edge.policy()).unwrap();
    daemon.signal("HUP");
    daemon.wait_for_log("policy not reloaded, the old one stays in force: interface \"eht0\" does not exist");
    edge.write_policy(&of("\"edge0\""));
    run(edge.wire.on_edge("ip").args(["link", "add", "eht0", "type", "veth", "peer", "name", "eht1"]));
    assert_answer(&edge.cli(&["apply", &wrong]), 0, &["interfaces", "takes effect at the next start"]);
    run(edge.wire.on_edge("ip").args(["link", "del", "eht0"]));
    let other = file(&edge, "other.toml", &of("\"edge0\", \"eht0\"").replace("1000", "2000"));
    assert_answer(&edge.cli(&["apply", &other]), 0, &["1 change"]);
    assert_eq!(in_force(&edge), 2000, "an interface in force may be away");
}

#[test]
fn rollback_takes_back_one_apply_limit_set_or_sighup() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    assert_answer(&edge.cli(&["rollback"]), 1, &["there is no change to take back"]);
    let other = file(&edge, "other.toml", &packets(2000));
    let back = || {
        assert_answer(&edge.cli(&["rollback"]), 0, &["is in force again"]);
        assert_eq!((in_force(&edge), in_kernel(&edge)), (1000, 1000));
        assert_answer(&edge.cli(&["rollback"]), 1, &["nothing was changed"]);
    };
    assert_answer(&edge.cli(&["apply", &other]), 0, &[]);
    back();
    assert_answer(&edge.cli(&["apply", &other, "--confirm", "1h"]), 0, &[]);
    assert_answer(&edge.cli(&["confirm"]), 0, &[]);
    back();
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "2000/s"]), 0, &[]);
    back();
    edge.write_policy(&packets(2000));
    daemon.signal("HUP");
    daemon.wait_for_log("policy read again");
    assert_eq!(in_force(&edge), 2000);
    back();
    daemon.kill_9();
    let _daemon = edge.start_again();
    assert_eq!(in_force(&edge), 1000, "a restart does not undo a rollback");
}
