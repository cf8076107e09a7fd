use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::mpsc,
    time::{Duration, Instant},
};

use super::*;
use crate::{
    attacks::tests::report,
    policy::{NotifyWay, WebhookUrl},
};

/// The times of delivery, about a hundredth of the real ones.
const TIMES: DeliveryTimes = DeliveryTimes {
    attempt: Duration::from_millis(200),
    first_pause: Duration::from_millis(10),
    longest_pause: Duration::from_millis(50),
    give_up_after: Duration::from_secs(60),
    burst: 100,
    every: Duration::from_millis(1),
};

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ratelimit-notify-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

fn told(way: NotifyWay, times: DeliveryTimes) -> Notifications {
    let mut notifications = Notifications::start("edge1".to_owned(), times, Arc::new(FromHere)).unwrap();
    notifications.follow(&[Notifier { name: "ops".to_owned(), way, on: Occasion::USUAL.to_vec() }]);
    notifications
}

fn webhook(address: SocketAddr, secret_file: Option<PathBuf>) -> NotifyWay {
    let url = WebhookUrl::parse(&format!("http://{address}/hook/s3cret?a=1")).unwrap();
    NotifyWay::Webhook { url, secret_file, ca_file: None }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Reads one request and returns its head and its body.
fn hear(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
            if body.len() >= length.unwrap().parse::<usize>().unwrap() {
                return (head.to_owned(), body.as_bytes().to_vec());
            }
        }
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "{text}");
        bytes.extend_from_slice(&part[..read]);
    }
}

#[test]
fn a_secret_that_is_too_long_is_refused_and_not_cut() {
    let dir = Dir::new("long-secret");
    let secret_file = dir.0.join("secret");
    let prepare = |secret: String| {
        fs::write(&secret_file, secret).unwrap();
        let url = WebhookUrl::parse("http://127.0.0.1:9/hook").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(webhook::prepare(&url, Some(&secret_file), None, b"{}"))
    };
    let longest = "x".repeat(64 * 1024);
    let signed = prepare(longest.clone()).unwrap();
    assert_eq!(signed.signature, Some(webhook::signature(longest.as_bytes(), b"{}")));
    let refused = prepare(longest + "x").unwrap_err();
    assert!(refused.why.contains("secret: it has more than 65536 bytes"), "{}", refused.why);
}

#[test]
fn a_server_that_is_down_then_slow_then_broken_gets_every_message_once_it_is_back() {
    let dir = Dir::new("secret");
    let secret_file = dir.0.join("secret");
    fs::write(&secret_file, "hush\nnot this\n").unwrap();
    // Nobody listens at this address: the receiver is down.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let notifications = told(webhook(address, Some(secret_file)), TIMES);
    let begun = Instant::now();
    (1..=3).for_each(|number| notifications.tell(Occasion::Begin, &report(number), 1_000));
    notifications.tell(Occasion::Update, &report(9), 1_000);
    assert!(begun.elapsed() < Duration::from_secs(5), "nobody waits for a server");
    wait_for("it fails", || notifications.status()[0].failures >= 2);
    let warning = notifications.warnings().concat();
    assert!(warning.contains("cannot reach http://127.0.0.1:") && !warning.contains("s3cret"), "{warning}");

    let listener = TcpListener::bind(address).unwrap();
    let (tell, heard) = mpsc::channel();
    thread::spawn(move || {
        // A slow receiver: it takes the message and does not answer.
        let (mut slow, _) = listener.accept().unwrap();
        hear(&mut slow);
        // A broken receiver: it refuses the message.
        let (mut broken, _) = listener.accept().unwrap();
        hear(&mut broken);
        broken.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").unwrap();
        // A receiver that works again.
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let message = hear(&mut stream);
            stream.write_all(b"HTTP/1.1 204 Thanks\r\n\r\n").unwrap();
            tell.send(message).unwrap();
        }
    });
    for number in 1..=3 {
        let (head, body) = heard.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(head.starts_with("POST /hook/s3cret?a=1 HTTP/1.1\r\n"), "{head}");
        let signed = format!("x-ratelimit-signature: {}", webhook::signature(b"hush", &body));
        assert!(head.to_lowercase().contains(&signed), "{head}");
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&body["version"], &body["event"], &body["host"]),
            (&1.into(), &"attack_begin".into(), &"edge1".into())
        );
        assert_eq!(
            (&body["attack"]["number"], &body["attack"]["kind"]),
            (&number.into(), &"many_sources".into())
        );
    }
    wait_for("all are sent", || notifications.status()[0].sent == 3);
    let status = &notifications.status()[0];
    assert_eq!((status.lost, status.waiting, &status.problem), (0, 0, &None), "{status:?}");
    assert!(
        status.failures >= 4 && heard.try_recv().is_err(),
        "nothing is sent twice after it arrived: {status:?}"
    );
}

#[test]
fn a_message_that_the_server_will_never_take_does_not_hold_up_the_next() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // The pause is so long that the test would fail if the first message were tried again.
    let times = DeliveryTimes { first_pause: Duration::from_secs(3_600), ..TIMES };
    let notifications = told(webhook(listener.local_addr().unwrap(), None), times);
    (1..=2).for_each(|number| notifications.tell(Occasion::Begin, &report(number), 1_000));
    for answer in ["400 No", "204 Thanks"] {
        let (mut stream, _) = listener.accept().unwrap();
        hear(&mut stream);
        stream.write_all(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n").as_bytes()).unwrap();
    }
    wait_for("the second is sent", || notifications.status()[0].sent == 1);
    assert_eq!(notifications.status()[0].lost, 1);
}

#[test]
fn the_signature_is_the_hmac_that_others_compute() {
    // RFC 4231, test case 2.
    let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert_eq!(webhook::signature(b"Jefe", b"what do ya want for nothing?"), expected);
}

#[test]
fn a_flood_of_attacks_fills_a_bounded_queue_and_goes_out_at_its_pace() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let times = DeliveryTimes {
        longest_pause: Duration::from_secs(3_600),
        first_pause: Duration::from_secs(3_600),
        give_up_after: Duration::from_secs(7_200),
        ..TIMES
    };
    let notifications = told(webhook(address, None), times);
    wait_for("the first is under way", || {
        notifications.tell(Occasion::Begin, &report(1), 1);
        notifications.status()[0].failures == 1
    });
    (0..10_000).for_each(|number| notifications.tell(Occasion::Begin, &report(number), 1));
    let status = &notifications.status()[0];
    assert!(status.waiting == 32 && status.lost >= 9_900, "{status:?}");
}

#[test]
fn who_is_told_follows_the_policy_and_keeps_what_waits() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut notifications = told(webhook(address, None), TIMES);
    notifications.tell(Occasion::Begin, &report(1), 1);
    wait_for("it fails", || notifications.status()[0].failures >= 1);
    let one = notifications.told[0].notifier.clone();
    let other = Notifier { name: "other".to_owned(), ..one.clone() };
    notifications.follow(&[other.clone(), one]);
    let failures: Vec<(String, bool)> =
        notifications.status().into_iter().map(|status| (status.name, status.failures >= 1)).collect();
    assert_eq!(failures, [("other".to_owned(), false), ("ops".to_owned(), true)]);
    notifications.follow(&[]);
    assert!(notifications.status().is_empty() && notifications.warnings().is_empty());
}

#[test]
fn a_command_gets_the_message_on_its_input_and_none_of_our_secrets() {
    let dir = Dir::new("command");
    let (input, environment) = (dir.0.join("input"), dir.0.join("environment"));
    let script = format!(
        "env > {}; cat > {input}.part && mv {input}.part {input}",
        environment.display(),
        input = input.display()
    );
    let words = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
    let notifications =
        told(NotifyWay::Command(words), DeliveryTimes { attempt: Duration::from_secs(20), ..TIMES });
    notifications.tell(Occasion::End, &report(7), 1_000);
    wait_for("it has run", || notifications.status()[0].sent == 1);
    let body: serde_json::Value = serde_json::from_slice(&fs::read(input).unwrap()).unwrap();
    assert_eq!((&body["event"], &body["attack"]["number"]), (&"attack_end".into(), &7.into()));
    let environment = fs::read_to_string(environment).unwrap();
    assert!(environment.contains("PATH=") && !environment.contains("CARGO"), "{environment}");
}

#[test]
fn a_command_that_does_not_end_is_killed_with_what_it_started_and_one_that_fails_is_tried_again() {
    let dir = Dir::new("endless");
    let marks = dir.0.join("marks");
    // The first two runs go on for ever in a child of their own, the third fails, the fourth is fine.
    let script = format!(
        "echo $$ >> {0}; case $(wc -l < {0}) in 1|2) sleep 1000 & wait;; 3) exit 7;; esac",
        marks.display()
    );
    let words = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
    let notifications =
        told(NotifyWay::Command(words), DeliveryTimes { attempt: Duration::from_millis(500), ..TIMES });
    notifications.tell(Occasion::Begin, &report(7), 1_000);
    wait_for("it has run", || notifications.status()[0].sent == 1);
    let status = &notifications.status()[0];
    assert!(status.failures >= 3, "{status:?}");
    for group in fs::read_to_string(marks).unwrap().lines() {
        let group = rustix::process::Pid::from_raw(group.parse().unwrap()).unwrap();
        wait_for("its group is gone", || rustix::process::test_kill_process_group(group).is_err());
    }
}

#[test]
fn a_command_that_nobody_waits_for_any_more_ends_with_what_it_started() {
    let dir = Dir::new("forgotten");
    let mark = dir.0.join("mark");
    let script = format!("sleep 1000 & echo $$ > {}; wait", mark.display());
    let words = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
    let times = DeliveryTimes { attempt: Duration::from_secs(60), ..TIMES };
    let mut notifications = told(NotifyWay::Command(words), times);
    notifications.tell(Occasion::Begin, &report(7), 1_000);
    let group = || fs::read_to_string(&mark).ok()?.trim().parse().ok();
    wait_for("it runs", || group().is_some());
    // A policy without notifiers.
    notifications.follow(&[]);
    let group = rustix::process::Pid::from_raw(group().unwrap()).unwrap();
    wait_for("its group is gone", || rustix::process::test_kill_process_group(group).is_err());
}
