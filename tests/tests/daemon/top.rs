//! `ratelimit top` on a real host: who sends most, also when everybody else is made up.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use nix::pty::{Winsize, openpty};
use ratelimit_tests::{
    answer::{stderr, stdout},
    daemon::{Edge, binary},
    netns::{EDGE_V4, run},
    redis::wait_for,
    traffic::{done, edge_with_sources, flood, sent, socket_address},
};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::Value;

const BAD: &str = "10.99.0.66";
const WORSE: &str = "10.99.0.67";
const POLICY: &str = "[source]\nlimits = [\"500 packets/s burst 500\"]\n\
    [[service]]\nname = \"echo\"\nmatch = { protocol = \"udp\", ports = [4711] }\nper_source = [\"400 packets/s burst 400\"]\ntotal = [\"100000 packets/s\"]\n\
    [[user]]\nname = \"acme\"\nsources = [\"10.99.0.66\"]\nnetwork = [\"10000 packets/s\"]\n";

/// Somebody who makes up his addresses.
fn spoof(edge: &Edge, seconds: f64) -> Child {
    edge.wire
        .in_net(binary("traffic"))
        .args(["forge", "--kind", "udp", "--to", &socket_address(EDGE_V4), "--for", &seconds.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("start a forger")
}

fn source<'v>(view: &'v Value, name: &str) -> &'v Value {
    let sources = view["sources"].as_array().expect("a list");
    sources.iter().find(|source| source["source"] == name).unwrap_or(&Value::Null)
}

#[test]
fn the_largest_sources_are_shown_with_what_became_of_their_packets_their_user_and_their_service() {
    let edge = edge_with_sources(&[BAD, WORSE]);
    let _daemon = edge.start(POLICY);
    let senders = [flood(&edge, BAD, EDGE_V4, 1_000, 6.0), flood(&edge, WORSE, EDGE_V4, 3_000, 6.0)];
    let view = wait_for("both senders at their pace", || {
        let view = edge.json(&["top", "--once"]);
        let rate = |name| source(&view, name)["packets_per_second"].as_f64().unwrap_or(0.0);
        (rate(BAD) > 700.0 && rate(WORSE) > 2_000.0).then_some(view)
    });
    assert_eq!(view["version"], 1);
    assert_eq!(view["sources"][0]["source"], WORSE, "{view}");
    let (bad, worse) = (source(&view, BAD), source(&view, WORSE));
    assert_eq!((&bad["user"], &worse["user"]), (&"acme".into(), &Value::Null), "{view}");
    assert_eq!(worse["service"], "echo");
    assert_eq!(worse["port"], 4711);
    assert!(worse["dropped_packets"].as_u64() > worse["passed_packets"].as_u64(), "{worse}");
    assert!(worse["reason"].as_str().is_some_and(|reason| reason.starts_with("limit")), "{worse}");
    assert_eq!(view["sampling"]["one_in"], 1, "so few are all looked at");
    assert_eq!(worse["error_packets"], 0);
    assert_eq!(view["prefixes"][0]["prefix"], "10.99.0.0/24");
    assert_eq!(view["users"][0]["user"], "acme");
    // Of three times its limit, nothing is left; a source within that of its user has that left.
    let left = |talker: &Value, whose: &str| {
        let limits = talker["limits"].as_array().cloned().unwrap_or_default();
        limits.iter().find(|limit| limit["whose"] == whose)?["left_percent"].as_u64()
    };
    assert!(left(worse, "service").is_some_and(|percent| percent < 10), "{worse}");
    assert!(left(bad, "user") > Some(80) && left(worse, "user").is_none(), "{view}");
    assert!(left(&view["users"][0], "user") > Some(80), "{view}");
    let echo = view["services"].as_array().and_then(|all| all.iter().find(|one| one["service"] == "echo"));
    assert_eq!(echo.expect("the service")["totals"][0]["limit"], "100000 packets/s burst 100000");
    assert_eq!(view["hosts"], Value::Array(Vec::new()), "it is in no cluster");
    for (by, word) in [
        ("source", WORSE),
        ("prefix", "10.99.0.0/24"),
        ("service", "echo"),
        ("user", "acme"),
        ("reason", "limit"),
    ] {
        let output = edge.cli(&["top", "--once", "--by", by]);
        assert!(
            output.status.success() && stdout(&output).contains(word),
            "{by}: {}{}",
            stdout(&output),
            stderr(&output)
        );
    }
    senders.into_iter().for_each(done);
}

#[test]
fn a_source_among_made_up_ones_is_found_and_its_share_is_true_within_the_stated_error() {
    let edge = edge_with_sources(&[BAD]);
    let _daemon = edge.start(POLICY);
    let senders = [flood(&edge, BAD, EDGE_V4, 20_000, 5.0), spoof(&edge, 5.0)];
    let view = wait_for("a flood that is sampled", || {
        let view = edge.json(&["top", "--once"]);
        (view["sampling"]["one_in"].as_u64() > Some(1) && source(&view, BAD) != &Value::Null).then_some(view)
    });
    assert_eq!(view["sources"][0]["source"], BAD, "{}", view["sources"][0]);
    let rate = |key: &str| view[key]["packets_per_second"].as_f64().expect("a rate");
    let all = rate("passed") + rate("dropped") + rate("replied");
    let error = view["sources"][0]["error_packets"].as_f64().expect("a number");
    assert!(error > 0.0 && error < all / 20.0, "{error} of {all}");
    assert!(view["sources"].as_array().expect("a list").len() <= 150);
    let [bad, spoofed] = senders.map(sent);
    assert!(spoofed > bad, "{spoofed} were made up, {bad} were not");
}

/// `ratelimit top` on a terminal of 100 columns and 30 lines.
struct TerminalTop {
    child: Child,
    keyboard: File,
    written: Receiver<Vec<u8>>,
    /// Everything that the terminal has shown.
    shown: String,
}

impl TerminalTop {
    fn start(edge: &Edge) -> Self {
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal");
        let end = || Stdio::from(pty.slave.try_clone().expect("another handle"));
        let mut command = edge.cli_command(&["top"]);
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("start top");
        let mut screen = File::from(pty.master.try_clone().expect("another handle"));
        let (sender, written) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = vec![0; 65_536];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keyboard: File::from(pty.master), written, shown: String::new() }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("press keys");
    }

    /// Waits until it has written a text since the last time.
    fn wait_for(&mut self, text: &str) {
        wait_for(text, || {
            while let Ok(bytes) = self.written.recv_timeout(Duration::from_millis(10)) {
                self.shown.push_str(&String::from_utf8_lossy(&bytes));
            }
            self.shown.find(text).map(|at| drop(self.shown.drain(..at + text.len())))
        });
    }
}

/// What a terminal is told when a program gives it back: the other screen goes.
const GIVEN_BACK: &str = "\x1b[?1049l";

#[test]
fn in_a_terminal_a_source_is_seen_explained_and_blocked_and_the_terminal_is_given_back() {
    let edge = edge_with_sources(&[BAD, WORSE]);
    let _daemon = edge.start(POLICY);
    let sender = flood(&edge, WORSE, EDGE_V4, 2_000, 8.0);
    let mut top = TerminalTop::start(&edge);
    top.wait_for(WORSE);
    top.press("e");
    top.wait_for("limit");
    top.press("x");
    top.press("b");
    top.wait_for("y: yes");
    top.press("y");
    wait_for("a block in the kernel", || {
        let blocks = edge.json(&["block", "list"]).to_string();
        blocks.contains(WORSE).then_some(())
    });
    top.wait_for("blocked");
    top.press("q");
    top.wait_for(GIVEN_BACK);
    assert!(top.child.wait().expect("its end").success());
    let mut killed = TerminalTop::start(&edge);
    killed.wait_for("explain");
    run(Command::new("kill").arg(killed.child.id().to_string()));
    killed.wait_for(GIVEN_BACK);
    assert!(killed.child.wait().expect("its end").success());
    done(sender);
}

/// A verb on a terminal of its own, whose other end goes away when it has shown a text: what it ended with, or nothing if it goes on for ten seconds.
fn end_on_a_terminal_that_goes_away(edge: &Edge, words: &[&str], seen: &str) -> Option<i32> {
    let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).expect("a terminal");
    let end = || Stdio::from(pty.slave.try_clone().expect("another handle"));
    // A child that had the other end itself would keep it.
    fcntl_setfd(&pty.master, FdFlags::CLOEXEC).expect("an end of our own");
    let mut command = edge.cli_command(words);
    command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
    let mut child = command.spawn().expect("start it");
    // The handles of the terminal's own end are the child's alone.
    drop(command);
    drop(pty.slave);
    let mut screen = File::from(pty.master);
    let (mut shown, mut bytes) = (String::new(), vec![0; 65_536]);
    while !seen.is_empty() && !shown.contains(seen) {
        let count = screen.read(&mut bytes).expect("something on the screen");
        shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    drop(screen);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        if let Some(status) = child.try_wait().expect("its end") {
            return status.code();
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("end it");
    child.wait().expect("its end");
    None
}

#[test]
fn a_terminal_that_goes_away_ends_top_and_watch() {
    let edge = edge_with_sources(&[BAD]);
    let _daemon = edge.start(POLICY);
    assert_eq!(end_on_a_terminal_that_goes_away(&edge, &["top"], "explain"), Some(0), "top");
    assert_eq!(
        end_on_a_terminal_that_goes_away(&edge, &["top", "--output", "json"], "version"),
        Some(0),
        "top, as JSON"
    );
    assert_eq!(
        end_on_a_terminal_that_goes_away(&edge, &["watch"], ""),
        Some(0),
        "watch with nothing to show"
    );
    let sender = flood(&edge, BAD, EDGE_V4, 2_000, 3.0);
    assert_eq!(end_on_a_terminal_that_goes_away(&edge, &["watch"], BAD), Some(0), "watch of a flood");
    done(sender);
}

#[test]
fn without_a_terminal_or_a_daemon_top_is_text_or_a_sentence() {
    let edge = Edge::new();
    let absent = edge.cli(&["top"]);
    assert_eq!(absent.status.code(), Some(3), "{}", stderr(&absent));
    let _daemon = edge.start(POLICY);
    let mut piped = edge.cli_command(&["top", "--by", "reason"]);
    let mut child = piped.stdout(Stdio::piped()).spawn().expect("start top");
    let mut text = [0; 40];
    child.stdout.take().expect("stdout").read_exact(&mut text).expect("a view");
    assert!(!text.contains(&0x1b), "no escape sequences: {}", String::from_utf8_lossy(&text));
    assert!(child.wait().expect("its end").success(), "it ends with its reader");
}
