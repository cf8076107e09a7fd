//! The control socket: who may use it, and what it survives.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    os::unix::net::UnixStream,
    process::Command,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    answer::assert_refused,
    daemon::{Daemon, Edge},
    netns::EDGE,
};
use ratelimit_user::control::server;

use super::{NOBODY, POLICY, copy_of_binary};

#[test]
fn the_control_socket_is_for_its_owner_and_survives_nonsense() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    let socket = edge.state().join("control.sock");
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(edge.state()).unwrap().mode() & 0o777, 0o700);
    let huge = vec![b'x'; 100_000];
    for nonsense in [&b"\n"[..], b"{}\n", b"{\"verb\":\"explode\"}\n", b"\xff\xfe\n", &huge] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        // The daemon may hang up on the huge one before it has been sent.
        let _cut = stream.write_all(nonsense);
        let mut answer = String::new();
        let _cut = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.contains("\"code\":\"usage\""), "{answer}");
    }
    assert!(edge.cli(&["status"]).status.success(), "it still answers");
}

#[test]
fn somebody_else_is_refused_by_credentials_even_if_the_socket_were_open() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    // Open every door that file modes could close.
    fs::set_permissions(edge.state(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(edge.state().join("control.sock"), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = copy_of_binary(edge.dir());
    let output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--clear-groups"])
        .arg(copy)
        .args(["status", "--state"])
        .arg(edge.state())
        .output()
        .unwrap();
    assert_refused(&output, 4, &["only root and the daemon's own user", "use sudo"]);
}

#[test]
fn a_member_of_the_group_may_ask_and_change_nothing_and_nobody_else_may_ask() {
    let edge = Edge::new();
    edge.write_policy(POLICY);
    let group = |name: &str| {
        let mut command = edge.run_command();
        command.args(["--iface", EDGE, "--user", "nobody", "--group", name]);
        command
    };
    assert_refused(&group("no-such-group").output().unwrap(), 2, &["\"no-such-group\" is not in /etc/group"]);
    let _daemon = Daemon::start(group("daemon"));
    let copy = copy_of_binary(edge.dir());
    let ask = |user: &str, groups: &str, words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", "12345", groups]).arg(&copy).args(words);
        command.arg("--state").arg(edge.state()).output().unwrap()
    };
    let member = "--groups=1";
    for words in [&["limit", "list"][..], &["block", "list"], &["attacks", "list"]] {
        let output = ask("12345", member, words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for words in [
        &["block", "add", "192.0.2.9"][..],
        &["limit", "set", "source.packets", "1 packets/s"],
        &["rollback"],
    ] {
        assert_refused(
            &ask("12345", member, words),
            4,
            &["members of the group \"daemon\" may ask, and change nothing; use sudo"],
        );
    }
    assert_refused(
        &ask("12345", "--clear-groups", &["limit", "list"]),
        4,
        &["this user may not ask the daemon", "Permission denied", "use sudo"],
    );
    // The process that reads the network is let in by no group.
    assert_refused(&ask(NOBODY, member, &["limit", "list"]), 4, &["only root and the daemon's own user"]);
    for file in fs::read_dir(edge.state()).unwrap().map(Result::unwrap) {
        let mode = file.metadata().unwrap().mode() & 0o077;
        let is_socket = file.file_name() == "control.sock";
        assert_eq!(mode, if is_socket { 0o060 } else { 0 }, "{:?}", file.path());
    }
    // A door that somebody opened for everybody makes nobody a member.
    fs::set_permissions(edge.state(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(edge.state().join("control.sock"), fs::Permissions::from_mode(0o666)).unwrap();
    assert_refused(
        &ask("12345", "--clear-groups", &["limit", "list"]),
        4,
        &["members of the group \"daemon\" may ask"],
    );
}

#[test]
fn a_request_without_an_end_is_refused_before_it_fills_the_memory() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    let mut stream = UnixStream::connect(edge.state().join("control.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    // More than is read, no end of line, and the connection stays open.
    let most = server::MAX_REQUEST;
    stream.write_all(&vec![b'x'; most as usize]).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    assert!(answer.contains(&format!("request is longer than {most} bytes")), "{answer}");
}

#[test]
fn an_operator_gets_in_however_many_connections_lie_about() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    let socket = edge.state().join("control.sock");
    let silent: Vec<UnixStream> = (0..1_000).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let begun = Instant::now();
    for verb in [&["status"][..], &["block", "add", "192.0.2.9"]] {
        let output = edge.cli(verb);
        assert!(output.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    drop(silent);
}
