//! Somebody who has taken over the front speaks its streams to a daemon: what the daemon answers, and what becomes of the host.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    time::Duration,
};

use ratelimit_tests::redis::wait_for;
use ratelimit_user::{control::protocol::Reply, failure::ExitCode, requests::status::RequestsStatus};
use serde_json::{Value, json};

use super::invaded::{
    GATEWAY, Intruder, Invaded, LARGEST_ANSWER, LARGEST_QUESTION, PASSWORD, PATIENCE, TOKEN, framed,
    received, said,
};

#[test]
fn an_intruder_gets_no_file_and_no_socket_that_the_policy_does_not_name() {
    let (invaded, mut intruder) = Invaded::new();
    let dir = invaded.edge.dir();
    let path = |name: &str| dir.join(name).display().to_string();
    // The way of asking is right: a file that the policy names is read.
    let text = intruder.ask(&json!({ "File": path("password") }));
    assert_eq!(text["File"]["Ok"], format!("{PASSWORD}\n"));
    for file in [
        "/etc/shadow",
        "/etc/passwd",
        "/proc/self/environ",
        "",
        "/",
        &path("policy.toml"),
        &path("operator.token"),
        &path("redis.sock"),
        &format!("{}/../{}/../../etc/shadow", path("password"), dir.display()),
    ] {
        let text = intruder.ask(&json!({ "File": file }));
        assert_eq!(text["File"]["Err"]["why"], "the policy does not name this file", "{file}: {text}");
    }
    // Of a token the front learns a digest, and nothing of a file that is not a token's.
    let token = |file: &str| json!({ "Token": { "key": "operator_token_file", "file": file } });
    let digest = intruder.ask(&token(&path("operator.token")));
    assert_eq!(digest["Token"]["Ok"].as_array().map(Vec::len), Some(32), "{digest}");
    for file in ["/etc/shadow", &path("password"), &path("policy.toml")] {
        let refused = intruder.ask(&token(file));
        assert_eq!(
            refused["Token"]["Err"],
            format!("operator_token_file {file} is not what the policy names")
        );
    }
    // Nor does it learn whether a file is there.
    let stamps = intruder.ask(&json!({ "Stamps": [path("password"), "/etc/passwd", "/nowhere"] }));
    assert!(stamps["Stamps"][0].is_array(), "{stamps}");
    assert_eq!((&stamps["Stamps"][1], &stamps["Stamps"][2]), (&Value::Null, &Value::Null), "{stamps}");
    // The daemon opens the store's socket for the front, and no other.
    let mut store = UnixStream::from(intruder.sockets.pop().unwrap());
    store.set_read_timeout(Some(PATIENCE)).unwrap();
    let _redis = UnixListener::bind(path("redis.sock")).unwrap();
    let control = invaded.edge.state().join("control.sock");
    for (number, (socket, is_opened)) in
        [(Path::new(&path("redis.sock")), true), (control.as_path(), false), (Path::new("/nowhere"), false)]
            .into_iter()
            .enumerate()
    {
        let name = socket.display().to_string();
        let number = u8::try_from(number).unwrap();
        store
            .write_all(
                &[&[number][..], &u16::try_from(name.len()).unwrap().to_be_bytes(), name.as_bytes()].concat(),
            )
            .unwrap();
        let (mut answered, mut error) = ([0], [0; 4]);
        store.read_exact(&mut answered).unwrap();
        assert_eq!(answered[0], number);
        let opened = received(&store).unwrap().len() == 1;
        assert_eq!(opened, is_opened, "{name}");
        if !opened {
            store.read_exact(&mut error).unwrap();
            let error = io::Error::from_raw_os_error(i32::from_be_bytes(error));
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{name}");
        }
    }
}

#[test]
fn an_intruder_orders_nothing_without_the_operators_token_and_with_it_what_the_dashboard_may() {
    let (invaded, mut intruder) = Invaded::new();
    assert!(invaded.edge.cli(&["allow", "add", "203.0.113.5"]).status.success());
    assert!(invaded.edge.cli(&["block", "add", "203.0.113.200"]).status.success());
    let before = invaded.standing();
    let operator = json!({ "force": true });
    let (file, text) = (invaded.edge.policy(), "[source]\nlimits = [\"1000000 packets/s\"]\n");
    let wrong = "an-operators-token-012345678X";
    let changes = [
        json!({ "verb": "block-add", "prefix": "203.0.113.7", "for_ns": null, "reason": null }),
        json!({ "verb": "block-del", "prefix": "203.0.113.200" }),
        json!({ "verb": "allow-add", "prefix": "203.0.113.8" }),
        json!({ "verb": "allow-del", "prefix": "203.0.113.5" }),
    ];
    for order in &changes {
        for token in [None, Some(""), Some(wrong), Some(PASSWORD)] {
            let reply = intruder.order(order, token);
            let Reply::Failed(failure) = &reply else { panic!("{order} {token:?}: {reply:?}") };
            assert_eq!(failure.code, ExitCode::NotPermitted, "{order} {token:?}");
            assert_eq!(failure.message, "changes need the operator's token", "{order} {token:?}");
        }
    }
    // Whoever steals the token of an operator who uses the dashboard may what the dashboard may, and these are for the control socket.
    for order in [
        json!({ "verb": "rollback", "operator": operator }),
        json!({ "verb": "apply", "file": file, "text": text, "confirm_ns": null, "operator": operator }),
        json!({ "verb": "diff", "file": file, "text": text }),
        json!({ "verb": "confirm" }),
        json!({ "verb": "detach", "interface": null }),
        json!({ "verb": "limit-set", "name": "source.packets", "rate": "1000000/s", "save": true, "operator": operator }),
        json!({ "verb": "user-reset", "name": "u" }),
        json!({ "verb": "watch", "frames": true }),
        json!({ "verb": "block-add", "prefix": "203.0.113.7", "for_ns": null, "reason": null, "operator": operator }),
        json!({ "verb": "allow-del", "prefix": "203.0.113.5", "operator": operator }),
    ] {
        for token in [None, Some(wrong), Some(TOKEN)] {
            let reply = intruder.order(&order, token);
            let Reply::Failed(failure) = &reply else { panic!("{order} {token:?}: {reply:?}") };
            assert_eq!(failure.code, ExitCode::NotPermitted, "{order} {token:?}");
            assert_eq!(failure.message, "the dashboard cannot order this", "{order} {token:?}");
        }
    }
    assert_eq!(invaded.standing(), before);
    invaded.assert_limits_are_in_force(66);
    // The orders were written rightly: with the token the first of them is carried out, and not if it cuts the host off.
    let reply = intruder.order(&changes[0], Some(TOKEN));
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
    assert_eq!(invaded.blocked(), ["203.0.113.7/32", "203.0.113.200/32"]);
    let all =
        json!({ "verb": "block-add", "prefix": format!("{GATEWAY}/32"), "for_ns": null, "reason": null });
    let reply = intruder.order(&all, Some(TOKEN));
    assert!(matches!(&reply, Reply::Failed(failure) if failure.message.contains(GATEWAY)), "{reply:?}");
}

#[test]
fn an_intruder_blocks_nobody_who_is_protected_and_nothing_wider_than_a_caller() {
    let (invaded, mut intruder) = Invaded::new();
    assert!(invaded.edge.cli(&["allow", "add", "203.0.113.5"]).status.success());
    let before = invaded.standing();
    for prefix in [
        "0.0.0.0/0",
        "::/0",
        "0.0.0.0/1",
        "203.0.0.0/16",
        "192.0.2.0/23",
        "2001:db8::/32",
        "2001:db8::/47",
        // The allow list, and what covers a part of it.
        "203.0.113.5/32",
        "203.0.113.0/24",
        // A trusted proxy.
        "198.51.100.9/32",
        "198.51.100.0/24",
        // The way to other networks.
        &format!("{GATEWAY}/32"),
        "10.99.0.0/24",
        // No prefix at all.
        "",
        "everybody",
        "1.2.3.4/-1",
    ] {
        intruder.report_offence(prefix);
        assert_eq!(invaded.standing(), before, "{prefix:?}");
    }
    invaded.assert_limits_are_in_force(66);
    // The offences were written rightly: a caller whom nothing protects is blocked.
    intruder.report_offence("192.0.2.77/32");
    assert_eq!(invaded.blocked(), ["192.0.2.77/32"]);
}

/// The stream on which an intruder talks nonsense.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stream {
    Questions,
    Answers,
}

#[test]
fn an_intruder_who_talks_nonsense_is_ended_and_another_front_begins_while_limits_stay_in_force() {
    let (invaded, mut intruder) = Invaded::new();
    let before = invaded.standing();
    let nonsense = [
        (Stream::Questions, u32::MAX.to_be_bytes().to_vec()),
        (Stream::Questions, (LARGEST_QUESTION + 1).to_be_bytes().to_vec()),
        (Stream::Questions, framed(b"\0\xff\x1b[2J nonsense")),
        (Stream::Questions, framed(br#"{"number":1,"said":{"Apply":{"text":""}}}"#)),
        (Stream::Answers, (LARGEST_ANSWER + 1).to_be_bytes().to_vec()),
        (Stream::Answers, framed(br#"{"number":0,"said":"Metrics"}"#)),
    ];
    let count = nonsense.len();
    for (nth, (stream, bytes)) in nonsense.into_iter().enumerate() {
        // The intruder stays and keeps its ends open: the daemon is who hangs up.
        let out = if stream == Stream::Questions { &mut intruder.asking } else { &mut intruder.asked };
        out.write_all(&bytes).unwrap();
        intruder.wait_for_the_end();
        wait_for("the end to be logged", || {
            (invaded.daemon.log().matches("the front process has ended").count() == nth + 1).then_some(())
        });
        // Meanwhile there is no front, and packets are judged.
        invaded.assert_limits_are_in_force(66 + u8::try_from(nth).unwrap());
        if nth + 1 < count {
            intruder = Intruder::hired(&invaded.supervisor);
        }
    }
    let _front = invaded.hire_an_honest_front();
    assert_eq!(invaded.standing(), before);
}

#[test]
fn an_intruder_who_asks_and_does_not_listen_makes_the_daemon_hold_little_and_leaves_nothing_behind() {
    let (invaded, mut intruder) = Invaded::new();
    let before = invaded.memory("VmHWM");
    let most = LARGEST_QUESTION as usize - 64;
    let questions = [
        json!({ "Stamps": vec![""; most / 3] }),
        json!({ "Token": { "key": "", "file": "x".repeat(most) } }),
        json!("Metrics"),
    ];
    // The daemon takes no further questions when enough answers wait for whoever has asked.
    intruder.asking.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let asked = questions.iter().cycle().take(10_000).position(|question| {
        said(&mut intruder.asking, &json!({ "number": 1, "said": question }))
            .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    });
    assert!(asked.is_some(), "the daemon takes every question of a front that does not read its answers");
    let grown = invaded.memory("VmHWM") - before;
    assert!(grown < 32 << 10, "{grown} KiB more after {asked:?} questions");
    assert!(
        invaded.edge.cli(&["block", "add", "203.0.113.7"]).status.success(),
        "orders are carried out meanwhile"
    );
    invaded.assert_limits_are_in_force(66);
    // A front that is not the daemon's any more may stay where a supervisor has started it. It keeps the stream to the store, which nobody serves now.
    let Intruder { asked, asking, sockets, .. } = intruder;
    for stream in [asked, asking] {
        stream.shutdown(Shutdown::Both).unwrap();
    }
    let _front = invaded.hire_an_honest_front();
    wait_for("the thread of the first front to end", || (invaded.threads("store-socket") == 1).then_some(()));
    drop(sockets);
}

#[test]
fn an_intruder_who_reports_thousands_of_warnings_does_not_hold_up_operators() {
    let sent = 20_000;
    let requests = serde_json::to_value(RequestsStatus::default()).unwrap();
    let report = json!({ "Report": { "requests": requests, "warnings": vec!["w"; sent] } }).to_string();
    let (invaded, _intruder) = Invaded::by(move |supervisor| Intruder::who_reports(supervisor, report));
    // A report that takes longer than the daemon waits for one is not taken.
    let shown = wait_for("a report to be taken", || {
        let warnings = invaded.edge.json(&["status"])["warnings"].clone();
        let shown = warnings.as_array().unwrap().iter().filter(|one| one.as_str() == Some("w")).count();
        (shown > 0).then_some(shown)
    });
    assert!(shown < 1_000, "{shown} warnings of {sent}");
}

#[test]
fn an_intruder_who_reports_much_and_asks_for_metrics_makes_the_daemon_hold_one_page_at_a_time() {
    let count =
        |number: u32| json!({ "api": format!("{number:04000}"), "outcome": "allowed", "decisions": 1 });
    let mut requests = serde_json::to_value(RequestsStatus::default()).unwrap();
    requests["decisions"] = (0..1_000).map(count).collect();
    let report = json!({ "Report": { "requests": requests, "warnings": ["much"] } }).to_string();
    let (invaded, mut intruder) = Invaded::by(move |supervisor| Intruder::who_reports(supervisor, report));
    wait_for("the report to be taken", || {
        let warnings = invaded.edge.json(&["status"])["warnings"].clone();
        warnings.as_array().unwrap().iter().any(|one| one.as_str() == Some("much")).then_some(())
    });
    let page = intruder.ask(&json!("Metrics"))["Metrics"]["Ok"].as_str().unwrap().len() as u64 >> 10;
    assert!(page > 3 << 10, "a page has {page} KiB");
    let before = invaded.memory("VmHWM");
    for number in 2..64 {
        said(&mut intruder.asking, &json!({ "number": number, "said": "Metrics" })).unwrap();
    }
    // The first page is written, up to what the stream has room for; the others are made before these orders, or wait for their place.
    for _ in 0..5 {
        assert!(invaded.edge.cli(&["status"]).status.success());
    }
    let grown = invaded.memory("VmHWM").saturating_sub(before);
    println!("{grown} KiB more, where a page has {page}");
    assert!(grown < 20 * page, "{grown} KiB more, where a page has {page}");
}
