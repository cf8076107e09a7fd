//! The log of a daemon: for people, for programs, for the journal.

use std::{fs, path::Path, process::Command};

use ratelimit_tests::{
    answer::assert_refused,
    daemon::{Daemon, Edge, binary},
    netns::{EDGE, run},
};
use serde_json::Value;

use super::POLICY;

fn start(edge: &Edge, policy: &str, words: &[&str]) -> Daemon {
    edge.write_policy(policy);
    let mut command = edge.run_command();
    command.args(["--iface", EDGE]).args(words);
    Daemon::start(command)
}

/// The object of an event, out of a log of objects.
fn event(log: &str, name: &str) -> Value {
    let objects = log.lines().map(|line| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let mut all = objects.inspect(|object| {
        for field in ["at", "level", "message"] {
            assert!(object[field].is_string(), "{field} is missing in {object}");
        }
    });
    all.find(|object| object["event"] == name).unwrap_or_else(|| panic!("no event {name} in {log}"))
}

#[test]
fn programs_get_an_object_for_each_event_with_its_fields() {
    let edge = Edge::new();
    let daemon = start(&edge, POLICY, &["--log-format", "json"]);
    let attached = event(&daemon.log(), "attached");
    assert_eq!((&attached["interface"], &attached["mode"]), (&EDGE.into(), &"native".into()), "{attached}");
    assert!(
        edge.cli(&["block", "add", "203.0.113.0/24", "--for", "10m", "--reason", "a \"flood\""])
            .status
            .success()
    );
    let block = event(&daemon.log(), "block");
    assert_eq!(block["prefix"], "203.0.113.0/24", "{block}");
    assert_eq!((&block["reason"], &block["seconds"]), (&"a \"flood\"".into(), &600.into()), "{block}");
    assert!(block["by"].as_str().unwrap().contains("uid 0"), "{block}");
    assert!(edge.cli(&["block", "del", "203.0.113.0/24"]).status.success());
    assert!(edge.cli(&["allow", "add", "192.0.2.1"]).status.success());
    assert!(edge.cli(&["apply", edge.policy().to_str().unwrap()]).status.success());
    run(edge.wire.on_edge("ip").args(["link", "del", EDGE]));
    daemon.wait_for_log("\"event\":\"interface_gone\"");
    let log = daemon.log();
    assert_eq!(event(&log, "unblock")["reason"], "a \"flood\"");
    assert_eq!(event(&log, "allow")["prefix"], "192.0.2.1/32");
    assert_eq!(
        (&event(&log, "policy")["change"], &event(&log, "interface_gone")["level"]),
        (&"applied".into(), &"error".into())
    );
}

#[test]
fn the_level_comes_from_the_command_line_or_the_environment_and_mistakes_are_refused() {
    let edge = Edge::new();
    edge.write_policy(&format!("mode = \"monitor\"\n{POLICY}"));
    let command = |words: &[&str], level: Option<&str>| {
        let mut command = edge.run_command();
        command.args(["--iface", EDGE]).args(words).envs(level.map(|level| ("RATELIMIT_LOG", level)));
        command
    };
    let quiet = Daemon::start(command(&[], Some("error")));
    assert_eq!(quiet.log(), "", "nothing went wrong");
    drop(quiet);
    let louder = Daemon::start(command(&["--log-level", "info"], Some("error")));
    let log = louder.log();
    assert!(
        log.lines().all(|line| line.get(23..36) == Some("Z ratelimit: ")),
        "a time, then the sentence: {log}"
    );
    assert!(log.contains("program replaced in place"), "{log}");
    drop(louder);
    assert_refused(
        &command(&[], Some("loud")).output().unwrap(),
        2,
        &["RATELIMIT_LOG", "\"loud\"", "error, warn, info or debug"],
    );
    assert_refused(
        &command(&["--log-level", "loud"], None).output().unwrap(),
        2,
        &["--log-level", "use error, warn, info"],
    );
}

#[test]
fn the_journal_has_the_time_itself_and_gets_a_priority_for_each_line() {
    if Path::new("/run/systemd/journal/socket").exists() {
        eprintln!("skipped: lines would go to the journal of this machine");
        return;
    }
    let edge = Edge::new();
    edge.write_policy(&format!("mode = \"monitor\"\n{POLICY}"));
    let run = edge.run_command();
    let mut command = Command::new(run.get_program());
    // The words up to the program are those that enter the host.
    let words: Vec<_> = run.get_args().collect();
    let at = words.iter().position(|word| *word == binary("ratelimit").as_os_str()).unwrap();
    let script = "export JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2); exec \"$@\"";
    command
        .args(&words[..at])
        .args(["bash", "-c", script, "bash"])
        .args(&words[at..])
        .args(["--iface", EDGE]);
    let password = edge.dir().join("password");
    fs::write(&password, "hunter2\n").unwrap();
    command.args(["--redis", "redis://127.0.0.1:9", "--redis-password-file"]).arg(&password);
    let daemon = Daemon::start(command);
    daemon.wait_for_log("<4>ratelimit: warning: ");
    let log = daemon.log();
    assert!(log.lines().all(|line| line.starts_with('<')), "{log}");
    assert!(log.contains("<6>ratelimit: edge0: attached, native mode"), "{log}");
    assert!(!log.contains("hunter2"), "a secret in the log: {log}");
}
