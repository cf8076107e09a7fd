//! A policy that waits for confirmation, through lost connections and killed daemons.

use std::{
    io::Write as _,
    os::unix::net::UnixStream,
    process::Stdio,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    answer::assert_answer,
    daemon::{Daemon, Edge},
};

use super::{file, in_force, in_kernel, is_waiting, packets};

/// Waits until no change waits for confirmation any more; panics after ten seconds.
fn wait_for_rollback(edge: &Edge, daemon: &Daemon) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_waiting(edge) {
        assert!(Instant::now() < deadline, "never rolled back: {}", daemon.log());
    }
}

#[test]
fn what_nobody_confirms_is_rolled_back_also_if_the_caller_is_gone() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "1500/s"]), 0, &[]);
    // Somebody whose connection breaks before the answer comes.
    let request = serde_json::json!({ "verb": "apply", "file": "/gone.toml", "text": packets(2000), "confirm_ns": 1_000_000_000_u64 });
    let mut stream = UnixStream::connect(edge.state().join("control.sock")).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    drop(stream);
    daemon.wait_for_log("/gone.toml applied by uid 0");
    daemon.wait_for_log("waiting 1 s for ratelimit confirm");
    wait_for_rollback(&edge, &daemon);
    daemon.wait_for_log("nobody confirmed within 1 s");
    assert_eq!((in_force(&edge), in_kernel(&edge)), (1500, 1500), "limits that were set come back too");
    assert_answer(&edge.cli(&["confirm"]), 1, &["nothing waits for confirmation"]);
    assert_answer(&edge.cli(&["rollback"]), 0, &["is in force again"]);
    assert_eq!(in_force(&edge), 1000, "the change before the apply can still be taken back");
}

#[test]
fn status_counts_down_and_confirm_keeps() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    let other = file(&edge, "other.toml", &packets(2000));
    let applied = edge.cli(&["apply", &other, "--confirm", "1h"]);
    assert_answer(&applied, 0, &["run `ratelimit confirm` within 3600 s", "policy.toml comes back"]);
    let status = edge.json(&["status"]);
    let left = status["unconfirmed"]["seconds_left"].as_u64().unwrap();
    assert!((3590..=3600).contains(&left), "{status}");
    assert_eq!(status["unconfirmed"]["back_to"], edge.policy().to_str().unwrap());
    assert_eq!(status["unconfirmed"]["changes"][0]["before"], "1000 packets/s burst 1000");
    assert_answer(
        &edge.cli(&["status"]),
        0,
        &["UNCONFIRMED  3", "then back to", "a restart goes back to the policy before"],
    );
    assert_answer(&edge.cli(&["confirm"]), 0, &["other.toml is confirmed; a restart goes on with it"]);
    daemon.wait_for_log("other.toml confirmed by uid 0");
    assert!(!is_waiting(&edge));
    assert_answer(&edge.cli(&["confirm"]), 1, &["nothing waits for confirmation"]);
    daemon.kill_9();
    let _daemon = edge.start_again();
    assert_eq!((in_force(&edge), in_kernel(&edge)), (2000, 2000));
}

#[test]
fn a_daemon_that_is_killed_during_the_wait_comes_back_with_the_old_policy() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "1500/s"]), 0, &[]);
    // The worst case: what was applied is the very file that a start reads.
    edge.write_policy(&packets(2000));
    let own = edge.policy();
    assert_answer(&edge.cli(&["apply", own.to_str().unwrap(), "--confirm", "1h"]), 0, &[]);
    assert_eq!(in_kernel(&edge), 2000);
    daemon.kill_9();
    let daemon = edge.start_again();
    daemon.wait_for_log("was applied and not confirmed before the daemon ended");
    assert_eq!((in_force(&edge), in_kernel(&edge)), (1500, 1500));
    assert!(!is_waiting(&edge));
    // Nothing waits, and still the file that nobody confirmed does not come into force by itself.
    daemon.kill_9();
    let daemon = edge.start_again();
    assert_eq!(in_force(&edge), 1000, "a limit that was set ends with the daemon, as always");
    daemon.signal("HUP");
    daemon.wait_for_log("policy read again");
    assert_eq!(in_force(&edge), 2000, "but when somebody says so");
}

#[test]
fn a_daemon_that_is_killed_at_any_moment_of_an_unconfirmed_apply_comes_back_with_the_old_policy() {
    let edge = Edge::new();
    let mut daemon = edge.start(&packets(1000));
    // The policy file says the new one already, and has been refused once: only what is kept says the old one.
    edge.write_policy(&packets(2000));
    let own = edge.policy();
    let own = own.to_str().unwrap();
    assert_answer(&edge.cli(&["apply", own, "--confirm", "1h"]), 0, &[]);
    assert_answer(&edge.cli(&["rollback"]), 0, &[]);
    let mut applied = 0;
    // From before the order arrives until after it is answered.
    for moment_ms in [1, 5, 10, 20, 30, 40, 60, 80] {
        let mut order = edge.cli_command(&["apply", own, "--confirm", "1h"]);
        let mut order = order.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let moment = Instant::now() + Duration::from_millis(moment_ms);
        while Instant::now() < moment {}
        daemon.kill_9();
        order.wait().unwrap();
        applied += u32::from(in_kernel(&edge) == 2000);
        daemon = edge.start_again();
        assert_eq!((in_force(&edge), in_kernel(&edge)), (1000, 1000), "killed after {moment_ms} ms");
        assert!(!is_waiting(&edge));
    }
    println!("the new policy was in the kernel {applied} times of 8");
}

#[test]
fn a_daemon_that_is_stopped_during_the_wait_rolls_back_first() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    let other = file(&edge, "other.toml", &packets(2000));
    assert_answer(&edge.cli(&["apply", &other, "--confirm", "1h"]), 0, &[]);
    let (_, log) = daemon.terminate();
    assert!(log.contains("policy.toml: the daemon stops"), "{log}");
    assert_eq!(in_kernel(&edge), 1000, "with no daemon alive");
    let _daemon = edge.start_again();
    assert_eq!(in_force(&edge), 1000);
}

#[test]
fn while_one_apply_waits_every_other_change_of_policy_is_refused() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    let other = file(&edge, "other.toml", &packets(2000));
    let third = file(&edge, "third.toml", &packets(3000));
    assert_answer(&edge.cli(&["apply", &other, "--confirm", "1h"]), 0, &[]);
    let sentence = &["other.toml waits for confirmation", "ratelimit confirm", "ratelimit rollback"];
    assert_answer(&edge.cli(&["apply", &third]), 2, sentence);
    assert_answer(&edge.cli(&["apply", &third, "--confirm", "1s", "--force"]), 2, sentence);
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "1/s"]), 2, sentence);
    daemon.signal("HUP");
    daemon.wait_for_log("policy not reloaded, the old one stays in force: SIGHUP refused");
    assert!(edge.cli(&["block", "add", "192.0.2.1"]).status.success(), "lists are no part of the policy");
    assert_eq!((in_force(&edge), is_waiting(&edge)), (2000, true), "the wait goes on");
    assert_answer(&edge.cli(&["rollback"]), 0, &["policy.toml is in force again"]);
    daemon.wait_for_log("policy.toml: asked for by uid 0");
    assert_eq!((in_force(&edge), in_kernel(&edge), is_waiting(&edge)), (1000, 1000, false));
    assert_eq!(edge.json(&["block", "list"])["blocks"].as_array().unwrap().len(), 1);
}
