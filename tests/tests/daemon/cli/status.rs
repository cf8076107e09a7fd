//! `ratelimit status`, `ratelimit stats` and the metrics: what a running host tells.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use ratelimit_tests::{
    answer::{assert_answer, assert_refused, stderr, stdout},
    daemon::Edge,
    netns::{EDGE, EDGE_V4, run},
};

use super::{NOBODY, POLICY, copy_of_binary};

#[test]
fn status_tells_mode_policy_table_and_pins() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let status = edge.json(&["status"]);
    assert_eq!(status["interfaces"][0]["name"], EDGE);
    assert_eq!(status["interfaces"][0]["mode"], "native");
    assert_eq!(status["policy_generation"], 1);
    assert_eq!(status["table_capacity"], 262_144);
    assert_eq!(status["pid"], daemon.pid());
    assert!(["open", "opens_soon"].contains(&status["express_lane"]["ipv4"].as_str().unwrap()), "{status}");
    let text = stdout(&edge.cli(&["status"]));
    for word in [
        "\nlane       open",
        "edge0: native",
        "generation 1",
        "headroom   ",
        "of 262144",
        "0 blocked, 0 allowed",
    ] {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

#[test]
fn stats_has_the_documented_shape() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    let stats = edge.json(&["stats"]);
    for field in ["passed_packets", "dropped_packets", "passed_bytes", "dropped_bytes"] {
        assert!(stats["totals"][field].is_u64(), "{field}: {stats}");
    }
    for reason in ["blocked", "limit_packets", "limit_bytes", "limit_syns", "truncated"] {
        assert_eq!(stats["drops_by_reason"][reason], 0, "{reason}");
    }
    assert!(stats["services"].is_array() && stats["users"].is_array());
    assert!(stdout(&edge.cli(&["stats"])).starts_with("verdict  reason"));
}

#[test]
fn stats_tells_rates_since_the_last_look_and_over_a_time_with_services_and_users() {
    let edge = Edge::new();
    let service = "[[service]]\nname = \"dns\"\nmatch = { protocol = \"udp\", ports = [53] }\n";
    let user = "[[user]]\nname = \"acme\"\nnetwork = [\"9/s\"]\nsources = [\"192.0.2.0/24\"]\n";
    let daemon = edge.start(&format!("{POLICY}{service}{user}"));
    edge.wire.add_source("10.99.0.2".parse().unwrap());
    let first = edge.json(&["stats"]);
    assert!(first["rates"].is_null(), "nobody has asked before: {first}");
    let send = format!("for i in {{1..40}}; do echo hello > /dev/udp/{EDGE_V4}/53; done");
    run(edge.wire.in_net("bash").args(["-c", &send]));
    let stats = edge.json(&["stats"]);
    let rates = &stats["rates"];
    let dns =
        rates["services"].as_array().unwrap().iter().find(|service| service["service"] == "dns").unwrap();
    let (rate, span) =
        (dns["passed"]["packets_per_second"].as_f64().unwrap(), rates["span_ms"].as_f64().unwrap());
    assert!(
        (rate * span / 1e3 - 40.0).abs() < 0.01,
        "40 packets in {span} ms are not {rate} a second: {stats}"
    );
    assert!(rates["passed"]["packets_per_second"].as_f64().unwrap() >= rate, "{rates}");
    assert_eq!(
        (&stats["users"][0]["name"], &stats["users"][0]["buckets"][0]["left"]),
        (&"acme".into(), &9.into())
    );
    let text = stdout(&edge.cli(&["stats"]));
    for word in ["packets/s", "dns", "acme", "rates are those of the last"] {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
    assert_refused(&edge.cli(&["stats", "--for", "0s"]), 2, &["--for"]);
    daemon.kill_9();
    let stats = edge.json(&["stats", "--for", "1s"]);
    assert!(stats["rates"]["span_ms"].as_u64().unwrap() >= 1_000, "{stats}");
    assert_eq!(stats["daemon"], "not running");
    assert!(stats["warnings"][0].as_str().unwrap().contains("no daemon answers"), "{stats}");
}

/// Packets that passed for a service, as `stats` and the metrics tell them.
fn passed_for(edge: &Edge, service: &str) -> u64 {
    let stats = edge.json(&["stats"]);
    let all = stats["services"].as_array().unwrap();
    let reasons =
        all.iter().find(|one| one["service"] == service).map(|one| one["reasons"].as_array().unwrap());
    let passed = |verdict: &str| verdict == "pass";
    let counts = reasons.into_iter().flatten().filter(|one| passed(one["verdict"].as_str().unwrap()));
    let told: u64 = counts.map(|one| one["packets"].as_u64().unwrap()).sum();
    let metrics = http_get(edge, "/metrics");
    let label = format!("service=\"{service}\",verdict=\"pass\"");
    let series =
        metrics.lines().filter(|line| line.starts_with("ratelimit_packets_total") && line.contains(&label));
    let counted: u64 = series.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    // Packets of the neighbours of this test's network may come in between.
    assert!(counted.abs_diff(told) < 10, "{service}: {told} in stats, {counted} in metrics");
    told
}

#[test]
fn counters_stay_with_the_name_of_a_service() {
    let edge = Edge::new();
    run(edge.wire.on_edge("ip").args(["link", "set", "lo", "up"]));
    edge.wire.add_source("10.99.0.2".parse().unwrap());
    let policy = |services: &[(&str, u16)]| {
        let service = |(name, port): &(&str, u16)| {
            format!("[[service]]\nname = \"{name}\"\nmatch = {{ protocol = \"udp\", ports = [{port}] }}\n")
        };
        let services: String = services.iter().map(service).collect();
        format!("{POLICY}[listen]\nmetrics = \"127.0.0.1:9464\"\n{services}")
    };
    let send = |port: u16, packets: u32| {
        let send = format!("for i in {{1..{packets}}}; do echo hello > /dev/udp/{EDGE_V4}/{port}; done");
        run(edge.wire.in_net("bash").args(["-c", &send]));
    };
    let apply = |services: &[(&str, u16)]| {
        let path = edge.dir().join("next.toml");
        std::fs::write(&path, policy(services)).unwrap();
        assert_answer(&edge.cli(&["apply", path.to_str().unwrap()]), 0, &[]);
    };
    let total = || edge.json(&["stats"])["totals"]["passed_packets"].as_u64().unwrap();
    let daemon = edge.start(&policy(&[("dns", 53)]));
    send(53, 200);
    apply(&[("dns", 53), ("game", 54)]);
    assert_eq!(passed_for(&edge, "game"), 0);
    send(54, 300);
    assert_eq!((passed_for(&edge, "dns"), passed_for(&edge, "game")), (200, 300));
    let before = total();
    assert_answer(&edge.cli(&["rollback"]), 0, &[]);
    assert!(passed_for(&edge, "") < 100, "packets for game are not packets for no service");
    let stats = edge.json(&["stats"]);
    let none =
        stats["rates"]["services"].as_array().unwrap().iter().find(|one| one["service"] == "").unwrap();
    let (rate, span) = (&none["passed"]["packets_per_second"], &stats["rates"]["span_ms"]);
    assert!(rate.as_f64().unwrap() * span.as_f64().unwrap() / 1e3 < 100.0, "{stats}");
    assert!(total() >= before);
    let metrics = http_get(&edge, "/metrics");
    let former = "ratelimit_packets_total{reason=\"conforming\",service=\"game\",verdict=\"pass\"} 300";
    assert!(metrics.contains(former), "{metrics}");
    apply(&[("game", 54), ("dns", 53)]);
    assert_eq!((passed_for(&edge, "dns"), passed_for(&edge, "game")), (200, 300));
    apply(&[("play", 54), ("dns", 53)]);
    assert_eq!((passed_for(&edge, "dns"), passed_for(&edge, "play")), (200, 0));
    send(54, 100);
    let before = total();
    daemon.kill_9();
    // A service that is new after a restart may get an index that another one had.
    let daemon = edge.start(&policy(&[("dns", 53), ("fresh", 55)]));
    assert_eq!((passed_for(&edge, "dns"), passed_for(&edge, "fresh")), (200, 0));
    assert!(total() >= before, "{} after {before}", total());
    send(55, 50);
    daemon.kill_9();
    let _daemon = edge.start_again();
    assert_eq!((passed_for(&edge, "dns"), passed_for(&edge, "fresh")), (200, 50));
    assert!(total() >= before + 50, "{} after {before}", total());
}

#[test]
fn a_policy_on_trial_is_shown_as_one_and_its_services_are_counted_by_name() {
    let edge = Edge::new();
    let service =
        "[[service]]\nname = \"dns\"\nmatch = { protocol = \"udp\", ports = [53] }\non_limit = \"monitor\"\n";
    let _daemon = edge.start(&format!("{POLICY}{service}"));
    let status = edge.json(&["status"]);
    assert_eq!(status["warnings"][0], "service dns is on trial: its limits drop nothing");
    let stats = edge.json(&["stats"]);
    assert_eq!(stats["services"][1]["service"], "dns", "{stats}");
    assert!(stats["would_drop_by_reason"].as_object().unwrap().is_empty(), "{stats}");
    edge.write_policy(&format!("mode = \"monitor\"\n{POLICY}"));
    let file = edge.policy();
    assert!(edge.cli(&["apply", file.to_str().unwrap()]).status.success());
    let status = edge.json(&["status"]);
    assert!(status["warnings"][0].as_str().unwrap().contains("NOTHING IS DROPPED"), "{status}");
}

#[test]
fn metrics_pass_promtool_and_count_what_stats_counts() {
    let edge = Edge::new();
    run(edge.wire.on_edge("ip").args(["link", "set", "lo", "up"]));
    let _daemon = edge.start(&format!("{POLICY}[listen]\nmetrics = \"127.0.0.1:9464\"\n"));
    assert!(edge.cli(&["block", "add", "192.0.2.1"]).status.success());
    let body = http_get(&edge, "/metrics");
    let (head, text) = body.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for line in [
        "ratelimit_packets_total{reason=\"conforming\",service=\"\",verdict=\"pass\"}",
        "ratelimit_bytes_total{reason=\"limit_packets\",service=\"\",verdict=\"drop\"} 0",
        "ratelimit_table_capacity 262144",
        "ratelimit_attached{interface=\"edge0\",mode=\"native\"} 1",
        "ratelimit_policy_generation 1",
        "ratelimit_headroom ",
        "ratelimit_listed_prefixes{list=\"block\"} 1",
        "ratelimit_build_info{abi=",
    ] {
        assert!(text.contains(line), "{line:?} is missing in: {text}");
    }
    // The numbers are those of `stats`; traffic of the test's own wire may come in between, so they may only grow.
    let stats = edge.json(&["stats"]);
    let sample = |name: &str, reason: &str, verdict: &str| -> u64 {
        let start = format!("{name}{{reason=\"{reason}\",service=\"\",verdict=\"{verdict}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse().unwrap()
    };
    for count in stats["reasons"].as_array().unwrap() {
        let (reason, verdict) = (count["reason"].as_str().unwrap(), count["verdict"].as_str().unwrap());
        for (name, field) in [("ratelimit_packets_total", "packets"), ("ratelimit_bytes_total", "bytes")] {
            let (shown, later) = (sample(name, reason, verdict), count[field].as_u64().unwrap());
            assert!(shown <= later, "{name} {reason}: {shown}, and later {later}");
            let floor =
                if field == "bytes" { sample("ratelimit_packets_total", reason, verdict) * 14 } else { 0 };
            assert!(shown >= floor, "{name} {reason}: {shown} is too little for that many frames");
        }
    }
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let verdict = promtool.wait_with_output().unwrap();
    assert!(verdict.status.success() && verdict.stderr.is_empty(), "{}", stderr(&verdict));
    assert!(http_get(&edge, "/elsewhere").starts_with("HTTP/1.1 404"));
}

#[test]
fn after_kill_9_status_and_stats_tell_from_the_pins_what_is_still_enforced() {
    let edge = Edge::new();
    let daemon = edge.start(&format!(
        "{POLICY}[[user]]\nname = \"acme\"\nnetwork = [\"9/s\"]\nsources = [\"192.0.2.0/24\"]\n"
    ));
    assert!(edge.cli(&["block", "add", "198.51.100.9"]).status.success());
    edge.wire.add_source("10.99.0.2".parse().unwrap());
    run(edge.wire.in_net("bash").args(["-c", &format!("echo hello > /dev/udp/{EDGE_V4}/9")]));
    daemon.kill_9();
    let output = edge.cli(&["status"]);
    assert_answer(
        &output,
        0,
        &["edge0: native", "mode enforce: 0 services, 1 users", "about 5000 packets/s, about 100 syns/s"],
    );
    assert_answer(
        &output,
        0,
        &["1 blocked, 0 allowed", "NO DAEMON", "no daemon answers at", "ratelimit run"],
    );
    let status = edge.json(&["status"]);
    assert_eq!(status["daemon"], "not running");
    assert_eq!(status["warning_details"][0]["kind"], "no_daemon", "{status}");
    assert_eq!((&status["protected"], &status["mode"]), (&true.into(), &"enforce".into()), "{status}");
    assert_eq!(status["interfaces"][0]["mode"], "native");
    assert_eq!(status["policy_generation"], 1);
    assert!(edge.json(&["stats"])["totals"]["passed_packets"].as_u64().unwrap() > 0);
    assert_refused(&edge.cli(&["stats"]), 0, &["no daemon answers at", "counters of its pins"]);
    // Somebody who may not read the pins hears what was said before.
    let copy = copy_of_binary(edge.dir());
    let asked = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--clear-groups"])
        .arg(copy)
        .args(["status", "--state", "/nonexistent", "--pin"])
        .arg(edge.pin())
        .output()
        .unwrap();
    assert_refused(&asked, 3, &["no daemon reachable at"]);
    // Nothing of it holds once the program is off the interface.
    run(edge.wire.on_edge("ip").args(["link", "del", EDGE]));
    let output = edge.cli(&["status"]);
    assert_answer(&output, 1, &["edge0: detached  <-- NOT PROTECTED"]);
    assert_eq!(edge.json(&["status"])["protected"], false);
}

#[test]
fn status_exits_with_one_when_something_is_not_protected() {
    let edge = Edge::new();
    run(edge.wire.on_edge("ip").args(["link", "set", "lo", "up"]));
    let _daemon = edge.start(&format!("{POLICY}[listen]\nmetrics = \"127.0.0.1:9464\"\n"));
    let status = edge.json(&["status"]);
    assert_eq!((&status["protected"], &status["mode"]), (&true.into(), &"enforce".into()), "{status}");
    assert_eq!(edge.cli(&["status"]).status.code(), Some(0));
    assert!(http_get(&edge, "/metrics").contains("\nratelimit_protected 1\n"));
    run(edge.wire.on_edge("ip").args(["link", "del", EDGE]));
    assert_answer(&edge.cli(&["status"]), 1, &["edge0: detached  <-- NOT PROTECTED"]);
    assert_eq!(edge.cli(&["status", "--output", "json"]).status.code(), Some(1));
    assert_eq!(edge.json(&["status"])["protected"], false);
    let metrics = http_get(&edge, "/metrics");
    assert!(metrics.contains("\nratelimit_protected 0\n"), "{metrics}");
    assert!(metrics.contains("\nratelimit_warning{kind=\"not_protected\"} 1\n"), "{metrics}");
}

#[test]
fn a_policy_that_drops_nothing_is_told_in_fields_and_metrics() {
    let edge = Edge::new();
    run(edge.wire.on_edge("ip").args(["link", "set", "lo", "up"]));
    let listen = "[listen]\nmetrics = \"127.0.0.1:9464\"\n";
    let _daemon = edge.start(&format!("mode = \"monitor\"\n{POLICY}{listen}"));
    let status = edge.json(&["status"]);
    assert_eq!((&status["mode"], &status["protected"]), (&"monitor".into(), &true.into()), "{status}");
    let metrics = http_get(&edge, "/metrics");
    assert_eq!(status["warning_details"][0]["kind"], "monitor", "{status}");
    for line in [
        "ratelimit_monitoring 1",
        "ratelimit_services_on_trial 0",
        "ratelimit_warnings 1",
        "ratelimit_warning{kind=\"monitor\"} 1",
        "ratelimit_warning{kind=\"not_protected\"} 0",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} is not in\n{metrics}");
    }
    let service =
        "[[service]]\nname = \"dns\"\nmatch = { protocol = \"udp\", ports = [53] }\non_limit = \"monitor\"\n";
    edge.write_policy(&format!("{POLICY}{service}{listen}"));
    assert!(edge.cli(&["apply", edge.policy().to_str().unwrap()]).status.success());
    let status = edge.json(&["status"]);
    assert_eq!(status["services_on_trial"], serde_json::json!(["dns"]), "{status}");
    let metrics = http_get(&edge, "/metrics");
    for line in ["ratelimit_monitoring 0", "ratelimit_services_on_trial 1", "ratelimit_warnings 1"] {
        assert!(metrics.lines().any(|it| it == line), "{line} is not in\n{metrics}");
    }
}

/// One request from inside the edge host.
pub(crate) fn http_get(edge: &Edge, path: &str) -> String {
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/9464; printf 'GET {path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
    );
    stdout(&run(edge.wire.on_edge("bash").args(["-c", &script])))
}
