//! Attacks as things: a real flood becomes a report, a message and a metric, and outlives the daemon.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use ratelimit_tests::{
    answer::{assert_answer, stdout},
    daemon::{Edge, binary},
    netns::{EDGE_V4, run},
    redis::{Certificates, wait_for},
    traffic::{edge_with_sources, flood, sent, socket_address},
};
use ratelimit_user::{
    attacks::{AttackReport, AttackTarget},
    notify::{DeliveryTimes, FromHere, Notifications},
    policy::{Notifier, NotifyWay, Occasion, WebhookUrl},
};
use serde_json::Value;

use crate::cli::{json::differences, status::http_get};

const BAD: &str = "10.99.0.66";

fn policy(port: u16, secret: &Path) -> String {
    format!(
        r#"
[source]
limits = ["100000 packets/s"]

[[service]]
name = "game"
match = {{ protocol = "udp", ports = [4711] }}
per_source = ["200 packets/s burst 200"]

[attacks]
begin = "500 packets/s"
end_after = "2s"

[[notify]]
name = "ops"
webhook = "http://127.0.0.1:{port}/hook"
secret_file = "{}"

[listen]
metrics = "127.0.0.1:9464"
metrics_top = 5
"#,
        secret.display()
    )
}

/// A server on the edge host that takes every message.
fn server(edge: &Edge) -> (u16, Receiver<(String, Value)>) {
    let listener = edge.wire.as_edge(|| TcpListener::bind("127.0.0.1:0").expect("an address"));
    let port = listener.local_addr().expect("its address").port();
    let (tell, heard) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Some(message) = hear(stream) else { continue };
            if tell.send(message).is_err() {
                return;
            }
        }
    });
    (port, heard)
}

fn hear(mut stream: TcpStream) -> Option<(String, Value)> {
    let message = read(&mut stream)?;
    stream.write_all(b"HTTP/1.1 204 Thanks\r\n\r\n").ok()?;
    Some(message)
}

/// A message that is not answered yet.
fn read(stream: &mut TcpStream) -> Option<(String, Value)> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        if let Ok(body) = serde_json::from_str(body) {
            return Some((head.to_lowercase(), body));
        }
    }
}

/// Whether a process has the TCP socket with this local port.
fn has_socket(process: u32, port: u16) -> bool {
    let sockets = fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap();
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_this = words.get(1)?.ends_with(&format!(":{port:04X}"));
        is_this.then(|| format!("socket:[{}]", words[9]))
    };
    let socket = sockets.lines().find_map(of_line).expect("its socket");
    let open = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    open.flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|file| file.display().to_string() == socket)
}

fn message(heard: &Receiver<(String, Value)>) -> (String, Value) {
    heard.recv_timeout(Duration::from_secs(30)).expect("a message")
}

#[test]
fn a_flood_is_an_attack_with_a_report_a_message_and_a_metric_and_kill_9_does_not_count_it_twice() {
    let edge = edge_with_sources(&[BAD]);
    let (port, heard) = server(&edge);
    let secret = edge.dir().join("secret");
    fs::write(&secret, "hush\n").unwrap();
    let daemon = edge.start(&policy(port, &secret));
    assert_answer(&edge.cli(&["attacks", "list"]), 0, &["no attack was recognised"]);
    assert_answer(&edge.cli(&["attacks", "show", "1"]), 1, &["attack 1 is not known; there was none"]);
    // From here on the largest sources are looked for.
    assert!(http_get(&edge, "/metrics").contains("ratelimit_attacks_active 0"));
    let running = flood(&edge, BAD, EDGE_V4, 5_000, 6.0);

    daemon.wait_for_log("attack 1 began: one_source on service game, ");
    let (head, body) = message(&heard);
    assert!(
        head.starts_with("post /hook http/1.1") && head.contains("x-ratelimit-signature: sha256="),
        "{head}"
    );
    assert_eq!((&body["version"], &body["event"]), (&1.into(), &"attack_begin".into()), "{body}");
    assert_eq!((&body["attack"]["number"], &body["attack"]["name"]), (&1.into(), &"game".into()), "{body}");
    let metrics = http_get(&edge, "/metrics");
    for line in [
        "ratelimit_attack_active{kind=\"one_source\",name=\"game\",target=\"service\"} 1",
        "ratelimit_attacks_active 1",
        "ratelimit_attack_last_number 1",
    ] {
        assert!(metrics.contains(line), "{line:?} is missing in: {metrics}");
    }
    wait_for("a series of the source", || {
        let series = "ratelimit_top_dropped_packets_per_second{service=\"game\",source=\"10.99.0.66\"} ";
        http_get(&edge, "/metrics").contains(series).then_some(())
    });
    assert_answer(
        &edge.cli(&["status"]),
        0,
        &["attack     elevated, ", "attack 1: one_source on service game, "],
    );
    wait_for("the limit to hold it off", || {
        stdout(&edge.cli(&["status"])).contains("is contained: ").then_some(())
    });
    assert_answer(&edge.cli(&["attacks", "list"]), 0, &["contained, "]);
    assert!(edge.cli(&["block", "add", "192.0.2.0/24", "--for", "1m"]).status.success());
    let before = edge.json(&["attacks", "show", "1"]);
    assert_eq!(before["attack"]["end"], Value::Null, "{before:#}");

    // Killed in the middle, it goes on under its number.
    daemon.kill_9();
    let daemon = edge.start_again();
    daemon.wait_for_log("attack 1 was going on when the daemon before ended");
    let sent = sent(running);
    daemon.wait_for_log("attack 1 ended after ");
    let (_, body) = message(&heard);
    assert_eq!((&body["event"], &body["attack"]["number"]), (&"attack_end".into(), &1.into()), "{body}");
    assert!(heard.try_recv().is_err(), "its begin is told once");
    let list = edge.json(&["attacks", "list"]);
    assert_eq!((&list["version"], list["attacks"].as_array().unwrap().len()), (&1.into(), 1), "{list:#}");
    let report = &edge.json(&["attacks", "show", "1"])["attack"];
    let refused = report["refused_packets"].as_u64().unwrap();
    assert!(refused > 500 && refused <= sent, "{refused} of {sent}: {report:#}");
    assert_eq!((&report["kind"], &report["restarts"]), (&"one_source".into(), &1.into()), "{report:#}");
    assert_eq!((&report["sources"][0]["value"], &report["ports"][0]["value"]), (&BAD.into(), &"4711".into()));
    assert_eq!(report["reasons"][0]["reason"], "limit_packets", "{report:#}");
    for words in [["attacks", "list"].as_slice(), &["attacks", "show", "1"]] {
        let found = differences(words, "`attacks list`, `attacks show`", &edge.json(words), false);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
    let text = stdout(&edge.cli(&["attacks", "show", "1"]));
    assert!(text.starts_with("attack 1: one_source on service game\nfrom 20"), "{text}");
    assert!(http_get(&edge, "/metrics").contains("ratelimit_attacks_active 0"));
}

#[test]
fn a_forged_flood_that_no_limit_refuses_is_told() {
    let edge = edge_with_sources(&[BAD]);
    let (port, heard) = server(&edge);
    let daemon = edge.start(&format!(
        "[source]\nlimits = [\"2000 packets/s burst 4000\", \"100 syns/s burst 200\"]\n\
         [attacks]\nend_after = \"2s\"\n[[notify]]\nwebhook = \"http://127.0.0.1:{port}/hook\"\n\
         [listen]\nmetrics = \"127.0.0.1:9464\"\n"
    ));
    let mut forger = edge
        .wire
        .in_net(binary("traffic"))
        .args(["forge", "--kind", "udp", "--to", &socket_address(EDGE_V4), "--for", "60", "--pps", "30000"])
        .stdout(Stdio::null())
        .spawn()
        .expect("start a forger");
    daemon.wait_for_log("attack 1 began: unusual_rate on the host, ");
    let (_, body) = message(&heard);
    let attack = &body["attack"];
    assert_eq!((&body["event"], &attack["kind"]), (&"attack_begin".into(), &"unusual_rate".into()), "{body}");
    let unusual = &attack["unusual"];
    assert_eq!(
        (&unusual["measure"], &unusual["begin_per_second"]),
        (&"packets".into(), &10_000.into()),
        "{body}"
    );
    assert!(unusual["peak_per_second"].as_u64() > Some(15_000), "{body}");
    assert_eq!(unusual["advice"], "total = [\"8000 packets/s\"] of [host] bounds it", "{body}");
    let words = "attack 1: unusual_rate on the host, goes on: ";
    assert_answer(
        &edge.cli(&["status"]),
        0,
        &["attack     elevated, ", words, " packets/s pass, usually at most "],
    );
    assert_answer(&edge.cli(&["top", "--once"]), 0, &[words]);
    assert!(
        http_get(&edge, "/metrics")
            .contains("ratelimit_attack_active{kind=\"unusual_rate\",name=\"\",target=\"host\"} 1")
    );
    for (words, page) in [
        (["attacks", "list"].as_slice(), "`attacks list`, `attacks show`"),
        (&["attacks", "show", "1"], "`attacks list`, `attacks show`"),
        (&["status"], "`status`"),
        (&["top", "--once"], "`top`"),
    ] {
        let found = differences(words, page, &edge.json(words), false);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
    // What passes is sampled: the senders are many, and the port is known.
    let report = &edge.json(&["attacks", "show", "1"])["attack"];
    assert_eq!(
        (&report["counted_by"], &report["ports"][0]["value"]),
        (&"samples".into(), &"4711".into()),
        "{report:#}"
    );
    assert!(report["sources_seen"].as_u64() > Some(1_000), "{report:#}");

    // The advice bounds it, and it is the same attack.
    edge.write_policy(
        &fs::read_to_string(edge.policy())
            .unwrap()
            .replace("[attacks]", "[host]\ntotal = [\"8000 packets/s\"]\n[attacks]"),
    );
    daemon.signal("HUP");
    daemon.wait_for_log("attack 1 changed: ");
    daemon.kill_9();
    let daemon = edge.start_again();
    daemon.wait_for_log("attack 1 was going on when the daemon before ended");
    forger.kill().expect("stop the forger");
    forger.wait().expect("its end");
    daemon.wait_for_log("attack 1 ended after ");
}

#[test]
fn a_flood_from_the_ports_of_reflectors_is_a_reflection_and_its_packets_are_estimated() {
    let edge = edge_with_sources(&[BAD]);
    let _daemon = edge.start(
        "[source]\nlimits = [\"100000 packets/s\"]\n\
         [[service]]\nname = \"game\"\nmatch = { protocol = \"udp\", ports = [4711] }\ntotal = [\"500 packets/s\"]\n\
         [attacks]\nbegin = \"500 packets/s\"\nend_after = \"1s\"\n",
    );
    let mut reflectors = edge
        .wire
        .in_net(binary("traffic"))
        .args(["forge", "--kind", "udp", "--to", &socket_address(EDGE_V4), "--for", "8", "--pps", "8000"])
        .args(["--within", "198.51.100.0/25", "--from-port", "53", "--from-port", "123"])
        .stdout(Stdio::null())
        .spawn()
        .expect("start reflectors");
    let attack = wait_for("a reflection", || {
        // Before it has begun there is nothing to show.
        edge.json(&["attacks", "list"])["attacks"][0].as_object()?;
        let attack = edge.json(&["attacks", "show", "1"])["attack"].clone();
        (attack["kind"] == "reflection" && attack["samples"].as_u64() > Some(2_000)).then_some(attack)
    });
    assert_eq!(attack["counted_by"], "samples", "{attack}");
    let first = |list: &str| attack[list][0].clone();
    let names: Vec<&str> =
        attack["source_ports"].as_array().unwrap().iter().filter_map(|row| row["value"].as_str()).collect();
    assert!(names.len() == 2 && names.contains(&"udp 53") && names.contains(&"udp 123"), "{names:?}");
    assert_eq!(
        (&first("prefixes")["value"], &first("ports")["value"]),
        (&"198.51.100.0/24".into(), &"4711".into())
    );
    assert!(attack["sources_seen"].as_u64() >= Some(100), "{attack}");
    // All of them come from one prefix: what it is said to have sent is what was counted, since the sampling began.
    let (packets, error) =
        (first("prefixes")["packets"].as_u64(), first("prefixes")["error_packets"].as_u64());
    let refused = attack["refused_packets"].as_u64().unwrap();
    let said = packets.unwrap() + error.unwrap();
    assert!(
        said > refused / 4 && packets.unwrap() < refused + refused / 4 + error.unwrap() + 8_000,
        "{attack}"
    );
    assert_answer(&edge.cli(&["attacks", "show", "1"]), 0, &["from port", "udp 53", "+/-"]);
    // Nobody looks any more once it is over.
    reflectors.kill().expect("stop them");
    reflectors.wait().expect("their end");
    wait_for("its end", || edge.json(&["attacks", "show", "1"])["attack"]["end"].as_str().map(drop));
}

#[test]
fn a_webhook_is_sent_by_the_front_process_and_once_more_by_the_next_one_if_that_is_killed() {
    let edge = edge_with_sources(&[BAD]);
    let listener = edge.wire.as_edge(|| TcpListener::bind("127.0.0.1:0").expect("an address"));
    let secret = edge.dir().join("secret");
    fs::write(&secret, "hush\n").unwrap();
    let daemon = edge.start(&policy(listener.local_addr().unwrap().port(), &secret));
    let running = flood(&edge, BAD, EDGE_V4, 5_000, 6.0);
    let (mut unanswered, from) = listener.accept().unwrap();
    let before = read(&mut unanswered).expect("a message");
    let front = daemon.front();
    assert!(has_socket(front, from.port()), "the front talks to the server");
    assert!(!has_socket(daemon.pid(), from.port()), "and the daemon does not");
    run(Command::new("kill").args(["-KILL", &front.to_string()]));
    let (stream, from) = listener.accept().unwrap();
    assert!(has_socket(daemon.front(), from.port()) && daemon.front() != front);
    let after = hear(stream).expect("the message once more");
    assert_eq!(before, after, "head, signature and body");
    assert!(after.0.contains("x-ratelimit-signature: sha256="), "{}", after.0);
    let notifier = wait_for("it is sent", || {
        let notifier = edge.json(&["status"])["attacks"]["notifiers"][0].clone();
        (notifier["sent"] == 1).then_some(notifier)
    });
    assert_eq!((&notifier["failures"], &notifier["lost"]), (&1.into(), &0.into()), "{notifier}");
    sent(running);
}

#[test]
fn a_bad_notifier_changes_nothing_and_a_reload_changes_who_is_told() {
    let edge = Edge::new();
    let daemon = edge.start("[source]\nlimits = [\"500 packets/s\"]\n");
    edge.write_policy("[source]\nlimits = [\"500 packets/s\"]\n[[notify]]\nwebhook = \"nowhere/s3cret\"\n");
    let file = edge.policy().display().to_string();
    let refused = edge.cli(&["apply", &file]);
    assert_answer(&refused, 2, &["policy.toml:4:11: webhook is no address"]);
    assert!(!String::from_utf8_lossy(&refused.stderr).contains("s3cret"));
    edge.write_policy(
        "[source]\nlimits = [\"500 packets/s\"]\n[[notify]]\nname = \"pager\"\ncommand = [\"/bin/true\"]\n",
    );
    assert_answer(
        &edge.cli(&["diff", &file]),
        1,
        &["notify pager added: command /bin/true; on attack_begin, attack_change, attack_end"],
    );
    daemon.signal("HUP");
    let told = wait_for("the notifier", || {
        let status = edge.json(&["status"]);
        status["attacks"]["notifiers"].as_array()?.first().cloned()
    });
    assert_eq!((&told["name"], &told["sent"]), (&"pager".into(), &0.into()), "{told}");
}

#[test]
fn a_webhook_over_tls_is_trusted_by_its_authority_and_by_no_other() {
    let certificates = Certificates::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = Command::new("openssl")
        .args(["s_server", "-quiet", "-cert", "server.pem", "-key", "server.key", "-accept"])
        .arg(format!("127.0.0.1:{port}"))
        .current_dir(certificates.dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl");
    let times = DeliveryTimes {
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(20),
        ..DeliveryTimes::default()
    };
    let mut notifications = Notifications::start("edge1".to_owned(), times, Arc::new(FromHere)).unwrap();
    let trusting = |authority: &str| {
        let url = WebhookUrl::parse(&format!("https://localhost:{port}/hook")).unwrap();
        let way = NotifyWay::Webhook { url, secret_file: None, ca_file: Some(certificates.file(authority)) };
        [Notifier { name: "ops".to_owned(), way, on: vec![Occasion::Begin] }]
    };
    let report = AttackReport::new(7, AttackTarget::Host, 0, None);
    notifications.follow(&trusting("other.pem"));
    notifications.tell(Occasion::Begin, &report, 0);
    wait_for("a refusal", || {
        let problem = notifications.status()[0].problem.clone()?;
        problem.contains("UnknownIssuer").then_some(())
    });
    notifications.follow(&trusting("ca.pem"));
    notifications.tell(Occasion::Begin, &report, 0);
    let (mut heard, mut part) = (String::new(), [0; 4096]);
    while !heard.ends_with("}}") {
        let read = server.stdout.as_mut().unwrap().read(&mut part).unwrap();
        heard.push_str(&String::from_utf8_lossy(&part[..read]));
        assert!(read > 0, "{heard}");
    }
    assert!(
        heard.starts_with("POST /hook HTTP/1.1") && heard.contains("\"event\":\"attack_begin\""),
        "{heard}"
    );
    server.stdin.as_mut().unwrap().write_all(b"HTTP/1.1 204 Thanks\r\n\r\n").unwrap();
    wait_for("an answer", || (notifications.status()[0].sent == 1).then_some(()));
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn alert_rules_pass_their_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/prometheus");
    let rules =
        Command::new("promtool").args(["test", "rules", "alerts_test.yml"]).current_dir(folder).output();
    assert_answer(&rules.expect("run promtool"), 0, &["SUCCESS"]);
}
