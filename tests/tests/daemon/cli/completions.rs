//! `ratelimit completions`: scripts that shells take.

use std::{fs, process::Command};

use ratelimit_tests::{
    answer::{assert_refused, stdout},
    bpffs::Scratch,
    netns::run,
};

use super::ratelimit;

#[test]
fn bash_completes_verbs_and_options_with_the_script() {
    let scratch = Scratch::new();
    let script = scratch.dir().join("ratelimit.bash");
    fs::write(&script, ratelimit(&["completions", "bash"]).stdout).unwrap();
    for (typed, wanted) in [("sta", "status stats"), ("block a", "add"), ("run --po", "--policy")] {
        let words = format!("ratelimit {typed}");
        let last = typed.split(' ').next_back().unwrap();
        let complete = format!(
            "set -eu; source {}; COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); \
             _ratelimit ratelimit {last} ratelimit; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let completed = run(Command::new("bash").args(["--norc", "-c", &complete]));
        assert_eq!(stdout(&completed).trim(), wanted, "{typed}");
    }
}

#[test]
fn every_shell_that_is_offered_gets_a_script_and_another_one_a_list() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&ratelimit(&["completions", shell]));
        assert!(script.contains("rollback") && script.contains("ratelimit"), "{shell}: {script}");
    }
    assert_refused(&ratelimit(&["completions", "csh"]), 2, &["csh", "possible values: bash"]);
}
