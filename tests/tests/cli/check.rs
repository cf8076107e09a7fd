//! `ratelimit check`: a policy file, offline.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use ratelimit_tests::{
    answer::{assert_refused, stderr, stdout},
    bpffs::Scratch,
};

use crate::{NOBODY, POLICY, copy_of_binary, ratelimit};

#[test]
fn check_needs_no_root_and_says_what_it_understood() {
    let scratch = Scratch::new();
    let file = scratch.dir().join("policy.toml");
    fs::write(&file, POLICY).unwrap();
    let world = fs::Permissions::from_mode(0o755);
    fs::set_permissions(scratch.dir(), world).unwrap();
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
