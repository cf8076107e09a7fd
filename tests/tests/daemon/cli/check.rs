//! `ratelimit check`: a policy file, offline.

use std::{fs, process::Command};

use ratelimit_tests::{
    answer::{assert_refused, stderr, stdout},
    bpffs::Scratch,
    daemon::Edge,
    redis::wait_for,
};

use super::{NOBODY, POLICY, copy_of_binary, ratelimit};

#[test]
fn what_a_policy_needs_of_the_host_is_noted() {
    let scratch = Scratch::new();
    let path = scratch.dir().join("policy.toml").display().to_string();
    let service = "[[service]]\nname = \"web\"\nmatch = { protocol = \"tcp\", ports = [80] }\n";
    let text = format!("[source]\nlimits = [\"100 packets/s\"]\n{service}syn_cookies = \"1000 syns/s\"\n");
    fs::write(&path, text).unwrap();
    let output = ratelimit(&["check", &path]);
    assert!(output.status.success(), "{}", stderr(&output));
    for words in ["note: SYN cookies (web) need net.ipv4.tcp_syncookies=2", "ethtool -K IFACE rxvlan off"] {
        assert!(stdout(&output).contains(words), "{}", stdout(&output));
    }
    let output = ratelimit(&["check", &path, "--output", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["notes"].as_array().unwrap().len(), 2, "{json}");
}

#[test]
fn check_needs_no_root_and_says_what_it_understood() {
    let scratch = Scratch::new();
    let file = scratch.dir().join("policy.toml");
    fs::write(&file, POLICY).unwrap();
    let copy = copy_of_binary(scratch.dir());
    let output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--clear-groups"])
        .arg(copy)
        .arg("check")
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("policy.toml: ok"));
    assert!(stdout(&output).contains("source.packets: 5000 packets/s burst 10000"));
    assert!(stdout(&output).contains("source.syns: 100 syns/s burst 100"));
}

#[test]
fn check_reports_every_problem_of_a_file_at_once_with_line_and_column() {
    let scratch = Scratch::new();
    let file = scratch.dir().join("bad.toml");
    fs::write(
        &file,
        "colour = \"blue\"\n[source]\nlimits = [\"0 packets/s\", \"10 furlongs/s\"]\nipv6_prefix = 129\n",
    )
    .unwrap();
    let output = ratelimit(&["check", file.to_str().unwrap()]);
    assert_refused(
        &output,
        2,
        &[
            "bad.toml:1:1:",
            "colour",
            "bad.toml:3:11:",
            "rate 0",
            "bad.toml:3:30:",
            "furlongs",
            "bad.toml:4:15:",
            "129",
        ],
    );
}

#[test]
fn a_policy_file_that_is_not_there_or_not_text_is_a_bad_file() {
    let scratch = Scratch::new();
    let missing = scratch.dir().join("missing.toml");
    assert_refused(&ratelimit(&["check", missing.to_str().unwrap()]), 2, &["missing.toml"]);
    let binary_file = scratch.dir().join("binary.toml");
    fs::write(&binary_file, [0xff, 0xfe, 0x00]).unwrap();
    assert_refused(&ratelimit(&["check", binary_file.to_str().unwrap()]), 2, &["binary.toml", "UTF-8"]);
}

/// A policy in order, with two things in it that change nothing.
const SUPERFLUOUS: &str = r#"
[source]
limits = ["1000 packets/s"]
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
per_source = ["2000 packets/s"]
[[user]]
name = "acme"
sources = ["10.0.0.0/8", "10.1.0.0/16"]
network = ["5000 packets/s"]
"#;
const NEVER_DECIDES: &str =
    "policy.toml:7:15: service \"dns\": per_source \"2000 packets/s burst 2000\" never decides";
const CHANGES_NOTHING: &str =
    "policy.toml:10:26: source 10.1.0.0/16 of user \"acme\" changes nothing: 10.0.0.0/8 is its own";

#[test]
fn check_warns_of_what_changes_nothing_and_exits_with_zero() {
    let scratch = Scratch::new();
    let file = scratch.dir().join("policy.toml");
    fs::write(&file, SUPERFLUOUS).unwrap();
    let output = ratelimit(&["check", file.to_str().unwrap()]);
    assert_refused(&output, 0, &["warning: ", NEVER_DECIDES, CHANGES_NOTHING]);
    assert!(stdout(&output).contains("service.dns.per_source.packets: 2000 packets/s burst 2000"));
    let output = ratelimit(&["check", file.to_str().unwrap(), "--output", "json"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["ok"], &json["problems"]), (&true.into(), &serde_json::json!([])));
    let first = &json["warnings"][0];
    assert_eq!((&first["line"], &first["column"]), (&7.into(), &15.into()));
    assert!(first["sentence"].as_str().unwrap().contains(NEVER_DECIDES), "{json}");
    assert_eq!(json["warnings"].as_array().unwrap().len(), 2);
    assert_eq!(
        json["limits"][0],
        serde_json::json!({ "name": "source.packets", "rate": "1000 packets/s burst 1000" })
    );
    fs::write(&file, "colour = 1\n[source]\nlimits = [\"0/s\"]\n").unwrap();
    let output = ratelimit(&["check", file.to_str().unwrap(), "--output", "json"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(2), ""));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["ok"], json["problems"].as_array().unwrap().len()), (&false.into(), 2));
    assert_eq!(json["problems"][1]["line"], 3);
}

#[test]
fn diff_apply_and_run_warn_of_the_same_and_go_ahead() {
    let edge = Edge::new();
    let daemon = edge.start(SUPERFLUOUS);
    for words in [NEVER_DECIDES, CHANGES_NOTHING] {
        daemon.wait_for_log(&format!("warning: {}/{words}", edge.dir().display()));
    }
    let file = edge.policy();
    let file = file.to_str().unwrap();
    assert_refused(&edge.cli(&["diff", file]), 0, &[NEVER_DECIDES, CHANGES_NOTHING]);
    assert_refused(&edge.cli(&["apply", file]), 0, &[NEVER_DECIDES, CHANGES_NOTHING]);
    let count = daemon.log().matches(NEVER_DECIDES).count();
    daemon.signal("HUP");
    daemon.wait_for_log("policy read again");
    wait_for("the warning again", || (daemon.log().matches(NEVER_DECIDES).count() > count).then_some(()));
}

#[test]
fn what_does_not_fit_into_the_maps_is_refused_before_anything_changes() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    let services: String = (1..=257)
        .map(|port| {
            format!("[[service]]\nname = \"s{port}\"\nmatch = {{ protocol = \"udp\", ports = [{port}] }}\n")
        })
        .collect();
    let users: String = (0..=4096).map(|n| format!("[[user]]\nname = \"u{n}\"\n")).collect();
    edge.write_policy(&format!("{POLICY}{services}{users}"));
    let file = edge.policy();
    let file = file.to_str().unwrap();
    let both = ["257 services are more than there can be; use at most 256", "4097 users are more"];
    for verb in ["check", "diff", "apply"] {
        let output = if verb == "check" { ratelimit(&[verb, file]) } else { edge.cli(&[verb, file]) };
        assert_refused(&output, 2, &both);
    }
    assert_eq!(edge.json(&["status"])["policy_generation"], 1);
    // All that fits does: every place of services and users is used.
    let services =
        services.replace("[[service]]\nname = \"s257\"\nmatch = { protocol = \"udp\", ports = [257] }\n", "");
    let users: String = (0..4096)
        .map(|n| {
            format!(
                "[[user]]\nname = \"u{n}\"\nsources = [\"10.0.{}.{}\"]\nnetwork = [\"{}/s\"]\n",
                n / 256,
                n % 256,
                10_000 + n
            )
        })
        .collect();
    edge.write_policy(&format!("{POLICY}{services}{users}"));
    assert_refused(&edge.cli(&["apply", file]), 0, &[]);
    assert_eq!(edge.json(&["user", "get", "u4095"])["buckets"][0]["left"], 14_095);
    assert_refused(&edge.cli(&["user", "set", "u4095", "--network", "20000/s"]), 0, &[]);
    assert_eq!(edge.json(&["user", "get", "u4095"])["network"][0], "20000 packets/s burst 20000");
    assert_eq!(edge.json(&["limit", "list"])["limits"].as_array().unwrap().len(), 2 + 4096);
}

#[test]
fn check_shows_what_requests_are_held_to() {
    let scratch = Scratch::new();
    let file = scratch.dir().join("policy.toml");
    let text = "[plan.gold]\nlimits = [\"500/hour\"]\n[[user]]\nname = \"acme\"\nplan = \"gold\"\nlimits = [\"9/min\"]\n\
                [[api]]\nname = \"search\"\nkey = [\"user\", \"ip\"]\nlimits = [\"100/hour\", \"3/min\"]\n[api.plans]\ngold = [\"7/s\"]\n\
                [[api]]\nname = \"login\"\npreset = \"login\"\n";
    fs::write(&file, format!("{POLICY}{text}")).unwrap();
    let output = ratelimit(&["check", file.to_str().unwrap()]);
    for words in [
        "api.search per user and ip: 100/hour",
        "3/min",
        "api.search for plan gold: 7/s",
        "api.login per ip: ",
        "plan.gold of requests: 500/hour",
        "user.acme of requests: 9/min",
    ] {
        assert!(
            stdout(&output).contains(words),
            "{words:?} is not in: {}{}",
            stdout(&output),
            stderr(&output)
        );
    }
    let json = ratelimit(&["check", file.to_str().unwrap(), "--output", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["apis"][0]["name"], &json["apis"][1]["login"]),
        (&"search".into(), &true.into()),
        "{json}"
    );
    assert_eq!(json["request_limits"][0]["limits"].as_array().unwrap().len(), 2, "{json}");
}

#[test]
fn errors_and_warnings_are_told_apart() {
    let scratch = Scratch::new();
    let file = scratch.dir().join("policy.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        ratelimit(&["check", file.to_str().unwrap()])
    };
    let name = file.display().to_string();
    // Among the limits of every source it is a mistake, in the list of a service it is not.
    let source = check("[source]\nlimits = [\"10 packets/s burst 20\", \"5 packets/s burst 20\"]\n");
    assert_refused(&source, 2, &[&format!("error: {name}:2:11: limit"), "never decides"]);
    let service = check(&format!(
        "{POLICY}[[service]]\nname = \"s\"\nmatch = {{ protocol = \"udp\", ports = [53] }}\nper_source = [\"9/s burst 20\", \"5/s burst 20\"]\n"
    ));
    assert_refused(&service, 0, &[&format!("warning: {name}:"), "never decides"]);
}
