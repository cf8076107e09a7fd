//! Every verb of the command line, its exit codes and its sentences.

mod allow;
mod block;
mod book;
mod captures;
mod check;
mod completions;
mod control;
mod detach;
mod doctor;
mod headroom;
mod interface;
pub(crate) mod json;
mod known;
mod limit;
mod log;
mod man;
mod run;
pub(crate) mod status;
mod table;
mod usage;
mod user;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use ratelimit_tests::{
    answer::{assert_refused, stdout},
    daemon::{Edge, binary},
    netns::{EDGE, run},
};

const POLICY: &str = "[source]\nlimits = [\"5000 packets/s burst 10000\", \"100 syns/s\"]\n";

/// The user id of somebody who is not root.
const NOBODY: &str = "65534";

fn ratelimit(words: &[&str]) -> Output {
    Command::new(binary("ratelimit")).args(words).output().unwrap()
}

/// Copies the binary into a directory and lets every user execute it there: the checkout may be in a home that no other user can enter. Another process makes
/// the copy, because no file can be executed while a thread here has it open for writing and forks.
fn copy_of_binary(dir: &Path) -> PathBuf {
    let copy = dir.join("ratelimit");
    run(Command::new("install").args(["-m", "755"]).arg(binary("ratelimit")).arg(&copy));
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    copy
}

/// `ratelimit run` that must fail, and must leave nothing behind.
fn assert_run_refused(edge: &Edge, words: &[&str], code: i32, sentence: &[&str]) {
    let mut command = edge.run_command();
    command.args(words);
    assert_command_refused(edge, command, code, sentence);
}

/// A command is refused with this code and sentence, however the command is started.
fn assert_command_refused(edge: &Edge, mut command: Command, code: i32, sentence: &[&str]) {
    let output = command.output().unwrap();
    assert_refused(&output, code, sentence);
    assert!(!stdout(&output).contains("ready"));
    assert!(pins(edge).is_empty(), "left behind: {:?}", pins(edge));
    assert!(!edge.state().join("control.sock").exists());
    assert!(!attached(edge), "a program was left on the interface");
}

/// Everything pinned, as paths below the pin directory.
fn pins(edge: &Edge) -> Vec<String> {
    let output = Command::new("find").arg(edge.pin()).args(["-type", "f"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn attached(edge: &Edge) -> bool {
    let output = run(edge.wire.on_edge("ip").args(["link", "show", "dev", EDGE]));
    stdout(&output).contains("xdp")
}
