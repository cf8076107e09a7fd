//! Requests at a daemon that guards an interface: one policy for packets and requests, and callers that end up in the packet path.

use std::{
    io::Write as _,
    os::unix::net::UnixStream,
    process::Command,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    answer::{assert_refused, stderr, stdout},
    daemon::{Daemon, Edge, binary},
    netns::{EDGE, EDGE_V4},
    redis::{Options, Proxy, Redis, wait_for},
    service::Client,
    traffic::edge_with_sources,
};

/// A policy whose listeners are a socket in the host's directory, reachable from every network namespace, and some on loopback.
fn policy(edge: &Edge, apis: &str) -> String {
    let socket = edge.dir().join("http.sock");
    format!(
        "[source]\nlimits = [\"5000 packets/s burst 10000\"]\n[listen]\nhttp = [\"unix:{}\", \"127.0.0.1:8080\"]\nresp = \"127.0.0.1:8082\"\ntrusted_proxies = [\"192.0.2.80\"]\n{apis}",
        socket.display()
    )
}

fn http(edge: &Edge) -> Client<UnixStream> {
    Client::new(UnixStream::connect(edge.dir().join("http.sock")).expect("the daemon listens"))
}

const CREATE: &str = "[[api]]\nname = \"create-url\"\nlimits = [\"3/min\"]\nalgorithm = \"fixed-window\"\n";
const ESCALATES: &str = "[[api]]\nname = \"search\"\nkey = [\"ip\"]\nlimits = [\"1/min\"]\nalgorithm = \"fixed-window\"\n\
                         escalate = { above = \"5/s\", for = \"1s\", block = \"5m\" }\n";

#[test]
fn the_engine_is_asked_once_from_the_command_line() {
    let edge = Edge::new();
    let _daemon = edge.start(&policy(&edge, CREATE));
    let ask = ["test", "--user", "acme", "--api", "create-url"];
    let first = edge.json(&ask);
    assert_eq!(
        (&first["allowed"], &first["remaining"], &first["policy"]),
        (&true.into(), &2.into(), &"create-url".into())
    );
    let peeked = edge.cli(&[&ask[..], &["--peek", "--cost", "2"]].concat());
    assert_eq!(stdout(&peeked).lines().next(), Some("allowed; create-url: 2 left of 3 in 60 s"));
    assert!(edge.cli(&[&ask[..], &["--cost", "2"]].concat()).status.success(), "peeking took nothing");
    let refused = edge.cli(&ask);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stdout(&refused).starts_with("refused; create-url: 0 left of 3 in 60 s; try again in "),
        "{}",
        stdout(&refused)
    );
    assert_refused(
        &edge.cli(&["test", "--api", "nope"]),
        2,
        &["api \"nope\" is not in the policy; there is create-url"],
    );
    assert_refused(
        &edge.cli(&["test", "--user", "u", "--api", "create-url", "--priority", "urgent"]),
        2,
        &["priority \"urgent\" is not known; use critical, normal or background"],
    );
}

#[test]
fn a_policy_that_is_applied_counts_for_requests_from_then_on_and_a_rollback_takes_it_back() {
    let edge = Edge::new();
    let _daemon = edge.start(&policy(&edge, CREATE));
    let served = |edge: &Edge, user: &str| {
        let mut client = http(edge);
        (0..20).filter(|_| client.get(&format!("/v1/check?user={user}&api=create-url")).status == 200).count()
    };
    assert_eq!(served(&edge, "one"), 3);
    let wider = edge.dir().join("wider.toml");
    std::fs::write(&wider, policy(&edge, &CREATE.replace("3/min", "7/min"))).unwrap();
    let applied = edge.cli(&["apply", wider.to_str().unwrap()]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    assert_eq!(served(&edge, "one"), 4, "what was counted stays");
    let metrics = http(&edge).get("/metrics");
    assert!(metrics.status == 200 && metrics.body.contains("ratelimit_packets_total{"), "{}", metrics.body);
    assert_eq!(served(&edge, "two"), 7);
    assert!(edge.cli(&["rollback"]).status.success());
    assert_eq!(served(&edge, "three"), 3);
}

#[test]
fn whoever_an_operator_has_blocked_for_longer_stays_blocked_when_it_keeps_calling() {
    let edge = Edge::new();
    let daemon = edge.start(&policy(&edge, ESCALATES));
    let add = |words: &[&str]| {
        let added = edge.cli(&[&["block", "add"], words].concat());
        assert!(added.status.success(), "{}", stderr(&added));
    };
    add(&["203.0.113.7", "--reason", "court order"]);
    add(&["198.51.100.0/24", "--for", "24h", "--reason", "for a day"]);
    // This one is shorter than what a caller gets who stays above its limit.
    add(&["192.0.2.7", "--for", "1m", "--reason", "for a minute"]);
    let callers = ["203.0.113.7", "198.51.100.7", "192.0.2.7"];
    let mut client = http(&edge);
    let blocks = wait_for("all callers are found out", || {
        for ip in callers {
            client.get(&format!("/v1/check?api=search&ip={ip}"));
        }
        let log = daemon.log();
        let found = ["203.0.113.7/32 is blocked for longer", "198.51.100.0/24 is blocked for longer"];
        let mut blocks = edge.json(&["block", "list"])["blocks"].as_array().unwrap().clone();
        blocks.sort_by_key(|block| block["prefix"].to_string());
        let escalated = blocks.iter().any(|block| block["reason"] == "refused by api search");
        (escalated && found.iter().all(|found| log.contains(found))).then_some(blocks)
    });
    let told: Vec<_> =
        blocks.iter().map(|block| (block["prefix"].as_str(), block["reason"].as_str())).collect();
    let expected = [
        (Some("192.0.2.7/32"), Some("refused by api search")),
        (Some("198.51.100.0/24"), Some("for a day")),
        (Some("203.0.113.7/32"), Some("court order")),
    ];
    assert_eq!(told, expected);
}

#[test]
fn whoever_keeps_calling_above_its_limit_is_blocked_in_the_packet_path_and_others_are_not() {
    let edge = Edge::new();
    let _daemon = edge.start(&policy(&edge, ESCALATES));
    assert!(edge.cli(&["allow", "add", "198.51.100.0/28"]).status.success());
    // Whoever is on this host and has shown nothing: it may ask, and its word about addresses is not enough.
    let anybody = |program: &str, words: &[&str]| {
        let mut command = edge.wire.on_edge("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]).args(words);
        command.stdout(std::process::Stdio::null()).spawn().expect("setpriv")
    };
    let question = "http://127.0.0.1:8080/v1/check?api=search&ip=8.8.8.8&n=[1-100000]";
    let mut outsiders = [
        anybody("curl", &["-s", "--max-time", "10", question]),
        anybody("redis-cli", &["-p", "8082", "-r", "1000000", "CHECK", "u", "search", "8.8.4.4"]),
    ];
    let mut client = http(&edge);
    let mut calls = |ips: &[&str], lasting: Duration| {
        let until = Instant::now() + lasting;
        while Instant::now() < until {
            for ip in ips {
                client.get(&format!("/v1/check?api=search&ip={ip}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    // On the allow list, a trusted proxy, and an offender.
    calls(&["198.51.100.1", "192.0.2.80", "203.0.113.7"], Duration::from_millis(2_600));
    let blocks = wait_for("a block", || {
        let blocks = edge.json(&["block", "list"])["blocks"].clone();
        (!blocks.as_array().unwrap().is_empty()).then_some(blocks)
    });
    for outsider in &mut outsiders {
        assert!(outsider.try_wait().unwrap().is_none(), "it has asked all the time");
        outsider.kill().unwrap();
        outsider.wait().unwrap();
    }
    assert_eq!(blocks.as_array().unwrap().len(), 1, "{blocks}");
    for ip in ["8.8.8.8", "8.8.4.4"] {
        let peeked = stdout(&edge.cli(&["test", "--api", "search", "--ip", ip, "--peek"]));
        assert!(peeked.starts_with("refused"), "{ip} was counted: {peeked}");
    }
    assert_eq!(
        (&blocks[0]["prefix"], &blocks[0]["reason"]),
        (&"203.0.113.7/32".into(), &"refused by api search".into())
    );
    assert!((290..=300).contains(&blocks[0]["seconds_left"].as_u64().unwrap()), "{blocks}");
    let explained = stdout(&edge.cli(&["explain", "203.0.113.7"]));
    assert!(explained.contains("refused by api search"), "{explained}");
    assert!(edge.cli(&["block", "del", "203.0.113.7"]).status.success(), "it can be undone");
    assert_eq!(edge.json(&["block", "list"])["blocks"].as_array().unwrap().len(), 0);
}

#[test]
fn decisions_are_counted_by_api_and_outcome() {
    let edge = Edge::new();
    let text = policy(&edge, CREATE).replace("[listen]\n", "[listen]\nmetrics = \"127.0.0.1:9464\"\n");
    let _daemon = edge.start(&text);
    let mut client = http(&edge);
    (0..5).for_each(|_| drop(client.get("/v1/check?user=u&api=create-url")));
    let status = edge.json(&["status"]);
    let decisions = status["requests"]["decisions"].as_array().unwrap();
    let count = |outcome: &str| {
        let row = decisions.iter().find(|row| row["outcome"] == outcome);
        row.map(|row| row["decisions"].as_u64().unwrap())
    };
    assert_eq!((count("allowed"), count("refused")), (Some(3), Some(2)), "{decisions:?}");
    let mut fetch = edge.wire.on_edge("curl");
    let metrics = stdout(&fetch.args(["-s", "http://127.0.0.1:9464/metrics"]).output().unwrap());
    assert!(
        metrics.contains("ratelimit_decisions_total{api=\"create-url\",outcome=\"refused\"} 2"),
        "{metrics}"
    );
    assert!(metrics.contains("ratelimit_decision_seconds_bucket{le=\"+Inf\"} 5"), "{metrics}");
    assert!(metrics.contains("ratelimit_decision_seconds_count 5"), "{metrics}");
}

#[test]
fn what_a_peer_says_about_addresses_counts_only_if_the_policy_trusts_it() {
    let (outsider, proxy) = ("10.99.1.1", "10.99.1.2");
    let edge = edge_with_sources(&[outsider, proxy]);
    let token = edge.dir().join("token");
    std::fs::write(&token, "a-token-that-nobody-guesses").unwrap();
    let _daemon = edge.start(&format!(
        "[source]\nlimits = [\"5000 packets/s burst 10000\"]\n[listen]\nhttp = \"{EDGE_V4}:8080\"\ntoken_file = \"{}\"\n\
         trusted_proxies = [\"{proxy}\"]\n[[api]]\nname = \"a\"\nkey = [\"ip\"]\nlimits = [\"1/hour\"]\n",
        token.display()
    ));
    let ask = |from: &str, question: &str, field: &str| {
        let mut curl = edge.wire.in_net("curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "10", "--interface", from]);
        curl.args(["-H", "Authorization: Bearer a-token-that-nobody-guesses", "-H", field]);
        stdout(&curl.arg(format!("http://{EDGE_V4}:8080/v1/check?api=a{question}")).output().unwrap())
    };
    assert_eq!(ask(proxy, "", "X-Forwarded-For: 192.0.2.1"), "200");
    assert_eq!(ask(proxy, "", "X-Forwarded-For: 192.0.2.2"), "200", "another caller of the same proxy");
    assert_eq!(ask(proxy, "", "X-Forwarded-For: 192.0.2.1"), "429");
    assert_eq!(ask(outsider, "", "X-Forwarded-For: 192.0.2.3"), "200");
    for field in ["X-Forwarded-For: 192.0.2.4", "X-RateLimit-Ip: 192.0.2.4"] {
        assert_eq!(ask(outsider, "", field), "429", "it speaks for itself alone: {field}");
    }
    assert_eq!(ask(outsider, "&ip=192.0.2.4", "X-Nothing: 1"), "429");
    assert_eq!(ask(proxy, "", "X-Forwarded-For: 192.0.2.4"), "200", "nobody has used up the other's limit");
}

#[test]
fn idle_connections_take_no_descriptors_that_operators_and_other_protocols_need() {
    let edge = Edge::new();
    let resp = edge.dir().join("resp.sock");
    let listen = format!("resp = \"unix:{}\"\n", resp.display());
    edge.write_policy(&policy(&edge, CREATE).replace("resp = \"127.0.0.1:8082\"\n", &listen));
    let mut command = edge.wire.on_edge("setpriv");
    command.args(["--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource"]);
    command.args(["prlimit", "--nofile=600:600"]).arg(binary("ratelimit"));
    command.arg("run").arg("--policy").arg(edge.policy()).arg("--state").arg(edge.state());
    command.arg("--pin").arg(edge.pin()).args(["--iface", EDGE]);
    let daemon = Daemon::start(command);
    daemon.wait_for_log("the limit of open files is 600");
    let idle: Vec<UnixStream> = (0..700)
        .map(|_| {
            let mut stream = UnixStream::connect(&resp).expect("connect");
            // Known, so that no deadline ends it within this test.
            let _hung_up = stream.write_all(b"PING\r\n");
            stream
        })
        .collect();
    for verb in [&["status"][..], &["block", "add", "192.0.2.9"], &["stats"]] {
        let output = edge.cli(verb);
        assert!(output.status.success(), "{verb:?}: {}", stderr(&output));
    }
    assert_eq!(http(&edge).get("/v1/check?user=u&api=create-url").status, 200);
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    assert!(open < 500, "{open} of 600");
    drop(idle);
}

/// A reset is kept in the process that answers. Whichever of the two processes ends, the store has heard all of a reset or nothing.
#[test]
fn a_reset_that_the_store_has_not_heard_of_is_lost_with_the_front_or_the_daemon_and_nothing_of_it_is_half_done()
 {
    let edge = Edge::new();
    let server = edge.wire.as_edge(|| Redis::single(Options::default()));
    let mut proxy = edge.wire.as_edge(|| Proxy::to(server.port()));
    let apis = format!(
        "[[api]]\nname = \"few\"\nlimits = [\"4/day\"]\nalgorithm = \"fixed-window\"\nsharing = \"strict\"\n\
         [cluster]\nredis = \"redis://127.0.0.1:{}\"\nhosts = 1\n",
        proxy.port()
    );
    let mut daemon = edge.start(&policy(&edge, &apis));
    let ask = |user: &str| http(&edge).get(&format!("/v1/check?user={user}&api=few")).status;
    let asked = |user: &str| [(); 5].map(|()| ask(user));
    let reset = || http(&edge).post("/v1/reset", "{\"user\": \"ann\", \"api\": \"few\"}").status;
    let know = |is_up: bool| {
        wait_for("a host that knows how the store is", || {
            // Somebody has to ask before a host finds out.
            ask("nobody");
            (edge.json(&["status"])["requests"]["store_up"] == is_up).then_some(())
        });
    };
    know(true);
    assert_eq!(asked("ann"), [200, 200, 200, 200, 429]);
    assert_eq!([ask("bob"), ask("bob")], [200, 200]);
    for ends in ["the front", "the daemon"] {
        edge.wire.as_edge(|| proxy.refuse());
        know(false);
        assert_eq!(reset(), 204, "{ends}");
        if ends == "the front" {
            let front = daemon.front().to_string();
            assert!(Command::new("kill").args(["-9", &front]).status().unwrap().success());
            daemon.wait_for_log("another front process serves requests");
        } else {
            daemon.kill_9();
            daemon = edge.start_again();
        }
        edge.wire.as_edge(|| proxy.accept_again());
        know(true);
        assert_eq!(ask("ann"), 429, "{ends}: the store has heard nothing of it");
        assert_eq!(reset(), 204, "{ends}");
        wait_for("the limit once more", || (ask("ann") == 200).then_some(()));
        assert_eq!(asked("ann"), [200, 200, 200, 429, 429], "{ends}: it is given once");
    }
    assert_eq!(asked("bob"), [200, 200, 429, 429, 429], "nobody else's was touched");
}
