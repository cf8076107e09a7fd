//! What the store is asked for, and what an operator is told about it.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    daemon::{Edge, binary},
    fleet::{Bound, Fleet, SOURCE, excess},
    netns::EDGE_V4,
    redis::{Options, Redis, free_port, wait_for},
    traffic::{Sink, done, edge_with_sources, socket_address},
};

use super::{alone, through_socket};

/// A thousand users with a /25 each of the addresses that forged traffic comes from.
fn thousand_users(redis: &str) -> String {
    let user = |number: u32| {
        let network = 0xc612_0000_u32 + (number << 7);
        let address = Ipv4Addr::from_bits(network);
        format!(
            "[[user]]\nname = \"u{number}\"\nsources = [\"{address}/25\"]\nnetwork = [\"1000 packets/s burst 2000\"]\n"
        )
    };
    let users: String = (0..1_000).map(user).collect();
    format!(
        "[source]\nladder = false\nlimits = [\"1000000 packets/s\"]\n{users}[cluster]\nredis = \"{redis}\"\n"
    )
}

/// Asks for metrics again and again until told to stop. How often there was an answer.
fn scrape(edge: &Edge, port: u16, stop: &AtomicBool) -> u32 {
    let mut answers = 0;
    while !stop.load(Ordering::Relaxed) {
        let stream = edge.wire.as_edge(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect"));
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        (&stream).write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("ask");
        let mut answer = String::new();
        (&stream).read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("ratelimit_packets_total"), "{answer}");
        answers += 1;
    }
    answers
}

#[test]
fn leases_are_renewed_as_often_while_many_scrapers_read_many_services() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let port = free_port();
    let service = |n: u32| {
        format!(
            "[[service]]\nname = \"s{n}\"\nmatch = {{ protocol = \"tcp\", ports = [{}] }}\nper_source = [\"1000/s\"]\n",
            2_000 + n
        )
    };
    let services: String = (0..256).map(service).collect();
    let rest = format!("hosts = 1\n[listen]\nmetrics = \"127.0.0.1:{port}\"\n{services}");
    let fleet = Fleet::start(1, "2000 packets/s burst 1000", &through_socket(&redis), &rest);
    let flood = fleet.flood(&[0], 4_000, 5.0);
    let exchanges = || fleet.hosts[0].status()["exchanges"].as_u64().expect("a count");
    let per_second = |lasts: Duration| {
        let (began, before) = (Instant::now(), exchanges());
        thread::sleep(lasts);
        (exchanges() - before) as f64 / began.elapsed().as_secs_f64()
    };
    let without = per_second(Duration::from_millis(700));
    let stop = AtomicBool::new(false);
    let (with, answers) = thread::scope(|scope| {
        let scrapers: Vec<_> =
            (0..12).map(|_| scope.spawn(|| scrape(&fleet.hosts[0].edge, port, &stop))).collect();
        let with = per_second(Duration::from_millis(1_500));
        stop.store(true, Ordering::Relaxed);
        (with, scrapers.into_iter().map(|scraper| scraper.join().expect("a scraper")).sum::<u32>())
    });
    println!("{without:.1} exchanges a second, {with:.1} beside 12 scrapers that got {answers} answers");
    assert!(with >= 0.5 * without, "{with} exchanges a second, {without} without scrapers");
    assert!(answers >= 12, "everybody is answered: {answers}");
    flood.into_iter().for_each(done);
}

#[test]
fn a_host_with_a_thousand_active_users_asks_the_store_less_than_fifty_times_a_second() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let edge = edge_with_sources(&[SOURCE]);
    let _daemon = edge.start(&thousand_users(&through_socket(&redis)));
    let _sink = Sink::start(&edge, EDGE_V4);
    let status = || edge.json(&["status"])["cluster"].clone();
    wait_for("a store that answers", || status()["store_up"].as_bool().filter(|up| *up));
    let mut forge = edge
        .wire
        .in_net(binary("traffic"))
        .args(["forge", "--to", &socket_address(EDGE_V4), "--kind", "ack", "--pps", "20000", "--for", "30"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("start a sender");
    // Once it is warm, nearly all of them hold something.
    wait_for("a thousand leases", || status()["leases"].as_u64().filter(|leases| *leases > 900));
    let calls = || {
        redis
            .info("cmdstat_evalsha")
            .split([',', '='])
            .nth(1)
            .and_then(|n| n.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let refused = || edge.dropped("limit_user");
    // Each of them sends a fiftieth of its limit. A daemon that waits for a CPU for longer than its leases last has users refused: of some whiles one has to be without
    // that.
    let has_plenty = (0..5).any(|_| {
        let (before, lines_before, began) =
            (calls(), status()["lines"].as_u64().unwrap_or(0), Instant::now());
        let (passed_before, refused_before) = (edge.passed("conforming"), refused());
        wait_for("a while", || (began.elapsed() >= Duration::from_secs(2)).then_some(()));
        let took = began.elapsed().as_secs_f64();
        let per_second = (calls() - before) as f64 / took;
        let lines = (status()["lines"].as_u64().unwrap_or(0) - lines_before) as f64 / took;
        let bytes: f64 = redis.info("total_net_input_bytes").parse().unwrap_or(0.0);
        let (passed, refused) = (edge.passed("conforming") - passed_before, refused() - refused_before);
        println!(
            "{passed} passed, {refused} refused; {per_second:.1} calls and {lines:.0} limits a second; {bytes:.0} bytes to the store so far; {}",
            status()
        );
        assert!(per_second > 4.0 && per_second < 50.0, "{per_second} calls a second");
        refused * 100 < passed
    });
    forge.kill().and_then(|()| forge.wait()).expect("end the sender");
    assert!(has_plenty, "packets were refused in each of five whiles although there was plenty");
}

#[test]
fn with_last_rate_a_host_without_the_store_goes_on_and_says_which_bound_holds() {
    let _alone = alone();
    let mut redis = Redis::single(Options::default());
    let cluster = "hosts = 2\nwithout_store = \"last-rate\"\nreserve = \"0%\"";
    let mut fleet = Fleet::start(1, "2000 packets/s burst 1000", &through_socket(&redis), cluster);
    fleet.watch(Duration::from_millis(1_300), Vec::new());
    assert_eq!(fleet.hosts[0].status()["bound_times_limit"], 1);
    let flood = fleet.flood(&[0], 10_000, 7.0);
    fleet.watch(Duration::from_secs(2), Vec::new());
    redis.kill();
    let samples = fleet.watch(Duration::from_secs(4), Vec::new());
    let status = fleet.hosts[0].status();
    flood.into_iter().for_each(done);
    let (first, last) = (&samples[samples.len() / 2], &samples[samples.len() - 1]);
    let pace = (last.total() - first.total()) as f64 / last.since(first).as_secs_f64();
    let above = excess(&samples, Bound { rate: 2_000.0, burst: 1_000.0 });
    println!("{pace:.0} packets/s without the store, {above:.0} above the rate");
    assert!(pace > 1_500.0, "{pace} packets/s: it goes on as before");
    assert!(above <= 1_000.0, "{above}: one host has its own limit at most");
    assert_eq!(status["bound_times_limit"], 2, "{status}");
    assert!(status["bound"].as_str().is_some_and(|bound| bound.contains("each host by itself")), "{status}");
}

#[test]
fn a_store_that_would_forget_and_one_that_refuses_are_told_of() {
    let _alone = alone();
    let forgetful = Redis::single(Options::with(["maxmemory 100mb", "maxmemory-policy allkeys-lru"]));
    let fleet = Fleet::start(1, "2000 packets/s", &through_socket(&forgetful), "");
    fleet.hosts[0].daemon.as_ref().expect("a daemon").wait_for_log("maxmemory-policy allkeys-lru");
    let warnings = fleet.hosts[0].status()["warnings"].to_string();
    assert!(warnings.contains("set maxmemory-policy noeviction"), "{warnings}");
    forgetful.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    wait_for("a warning that is over", || {
        (fleet.hosts[0].status()["warnings"] == serde_json::json!([])).then_some(())
    });
    // Packets and requests say the same of a store that is full.
    forgetful.fill();
    let of_requests = || fleet.hosts[0].edge.json(&["status"])["requests"].clone();
    wait_for("a full store that is named twice", || {
        let (packets, requests) = (fleet.hosts[0].status(), of_requests());
        let problem = packets["problem"].as_str().filter(|problem| problem.contains("has no memory left"))?;
        let is_down = packets["store_up"] == false && requests["store_up"] == false;
        (is_down && requests["store_problem"]["sentence"] == problem).then_some(())
    });
    forgetful.make_room();
    wait_for("a store that takes writes", || {
        (of_requests()["store_up"] == true && fleet.hosts[0].status()["store_up"] == true).then_some(())
    });
    let locked = Redis::single(Options::with(["requirepass secret"]));
    let edge = Edge::new();
    let policy = ratelimit_tests::fleet::policy("2000 packets/s", &through_socket(&locked), "");
    let daemon = edge.start(&policy);
    let problem = wait_for("a refusal", || {
        let status = edge.json(&["status"])["cluster"].clone();
        status["problem"].as_str().filter(|problem| problem.contains("password")).map(str::to_owned)
    });
    println!("{problem}");
    daemon.wait_for_log("the store does not answer");
    assert!(
        edge.json(&["status"])["interfaces"][0]["mode"] == "native",
        "the host is protected all the same"
    );
}
