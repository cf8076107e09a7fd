//! What holds for every verb: wrong usage, and no daemon.

use std::{fs, process::Command};

use ratelimit_tests::{
    answer::{assert_refused, said, stdout},
    bpffs::Scratch,
    daemon::{Edge, binary},
};

use super::{NOBODY, copy_of_binary, ratelimit};

#[test]
fn wrong_usage_exits_with_two() {
    for words in [
        &["frobnicate"][..],
        &[],
        &["run"],
        &["block", "add"],
        &["status", "--output", "xml"],
        &["limit", "set", "source.packets"],
        &["user", "set", "acme"],
        &["user", "set", "acme", "--inherit", "--network", "1/s"],
    ] {
        assert_eq!(ratelimit(words).status.code(), Some(2), "{words:?}");
    }
    assert_eq!(ratelimit(&["--help"]).status.code(), Some(0));
    assert_eq!(ratelimit(&["--version"]).status.code(), Some(0));
}

#[test]
fn what_is_missing_or_out_of_range_is_named_with_what_would_be_right() {
    let scratch = Scratch::new();
    let file = scratch.dir().join("policy.toml");
    fs::write(&file, "[source]\nlimits = [\"1/s\"]\n").unwrap();
    let nothing = ratelimit(&["user", "set", "acme"]);
    assert_refused(&nothing, 2, &["nothing to set; use --plan, --network or --inherit"]);
    let forever = ratelimit(&["apply", file.to_str().unwrap(), "--confirm", "100000d"]);
    assert_refused(&forever, 2, &["--confirm", "100000d", "use 1s to 24h"]);
    let dear = ratelimit(&["test", "--api", "a", "--cost", "9007199254740992"]);
    assert_refused(&dear, 2, &["--cost", "9007199254740992", "1..=9007199254740991"]);
    for (part, name) in [("user=z", "user"), ("=b", ""), ("A=b", "A"), ("ü=x", "ü")] {
        let named = format!("{name:?} cannot be a part");
        assert_refused(&ratelimit(&["test", "--api", "a", "--key", part]), 2, &["--key", &named]);
    }
    assert!(stdout(&ratelimit(&["stats", "--help"])).contains(" Look twice, with this time in between"));
}

#[test]
fn without_a_daemon_every_verb_that_needs_one_exits_with_three() {
    let edge = Edge::new();
    for words in [
        &["status"][..],
        &["stats"],
        &["block", "list"],
        &["block", "add", "192.0.2.1"],
        &["block", "del", "192.0.2.1"],
        &["allow", "list"],
        &["allow", "add", "192.0.2.1"],
        &["allow", "del", "192.0.2.1"],
        &["limit", "list"],
        &["limit", "get", "source.packets"],
        &["limit", "set", "source.packets", "1/s"],
        &["user", "list"],
        &["user", "get", "acme"],
        &["user", "set", "acme", "--plan", "gold"],
        &["user", "reset", "acme"],
        &["confirm"],
        &["rollback"],
    ] {
        assert_refused(&edge.cli(words), 3, &["no daemon reachable at", "control.sock", "ratelimit run"]);
    }
}

#[test]
fn verbs_of_other_programs_are_answered_with_ours() {
    for (words, meant) in [
        (&["block", "1.2.3.4"][..], "ratelimit block add 1.2.3.4"),
        (&["ban", "1.2.3.4"], "ratelimit block add 1.2.3.4"),
        (&["reload"], "SIGHUP"),
        (&["stop"], "ratelimit detach"),
    ] {
        assert_refused(&ratelimit(words), 2, &["unrecognized subcommand", meant]);
    }
}

#[test]
fn help_fits_into_80_columns() {
    for words in [&["--help"][..], &["run", "--help"], &["explain", "-h"], &["help", "limit", "set"]] {
        let output = ratelimit(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        for line in stdout(&output).lines() {
            assert!(line.chars().count() <= 80, "{words:?}: {line}");
        }
    }
}

#[test]
fn no_mistake_in_a_command_line_shows_a_password() {
    for words in [
        &["run", "--policy", "p", "--redis", "redis://u:hunter2@h:port"][..],
        &["run", "--policy", "p", "--redis", "redis://:hunter2@127.0.0.1:1"],
        &["serve", "--policy", "p", "--redis", "redis://u:hunter2@h:1/x"],
        &["run", "--policy", "p", "redis://u:hunter2@h:1"],
        &["run", "--policy", "p", "--rediss", "redis://u:hunter2@h:1"],
        &["redis://u:hunter2@h:1"],
    ] {
        let output = ratelimit(words);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(!said(&output).contains("hunter2"), "{words:?}: {}", said(&output));
    }
    let refused = ratelimit(&["serve", "--policy", "p", "--redis", "redis://:x@h"]);
    assert_refused(&refused, 2, &["list of processes", "--redis-password-file"]);
    // Nor is one taken from the environment, which every program that is started beside it has too.
    for verb in ["run", "serve"] {
        let mut command = Command::new(binary("ratelimit"));
        command.env("RATELIMIT_REDIS_PASSWORD", "hunter2").args([verb, "--policy", "p"]);
        let refused = command.output().unwrap();
        assert_refused(&refused, 2, &["RATELIMIT_REDIS_PASSWORD is set", "--redis-password-file"]);
        assert!(!said(&refused).contains("hunter2"), "{verb}: {}", said(&refused));
    }
}

#[test]
fn who_is_not_root_is_told_what_needs_root() {
    let scratch = Scratch::new();
    let copy = copy_of_binary(scratch.dir());
    let output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--clear-groups"])
        .arg(copy)
        .args(["detach", "--state", "/nonexistent"])
        .output()
        .unwrap();
    assert_refused(&output, 4, &["taking XDP programs off interfaces needs root"]);
    assert!(!said(&output).contains("loading"), "{}", said(&output));
}
