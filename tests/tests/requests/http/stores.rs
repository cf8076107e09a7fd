//! What operators see of a `ratelimit serve` whose store answers, and is of no use all the same.

use std::{
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use ratelimit_tests::{
    redis::{Options, Redis, free_port, wait_for},
    service::{Client, Service},
};

use super::operators::with_store;

/// Lines of the metrics that have this in their name, without comments.
fn scraped(metrics: SocketAddr, name: &str) -> Vec<String> {
    let body = Client::new(TcpStream::connect(metrics).unwrap()).get("/metrics").body;
    body.lines().filter(|line| !line.starts_with('#') && line.contains(name)).map(str::to_owned).collect()
}

fn is_up(metrics: SocketAddr) -> bool {
    scraped(metrics, "ratelimit_request_store_up") == ["ratelimit_request_store_up 1"]
}

/// How the service says that a store is away: up, servers, problem.
fn assert_away(metrics: SocketAddr, kind: &str) {
    let lines = scraped(metrics, "ratelimit_request_store_");
    for line in [
        "ratelimit_request_store_up 0".to_owned(),
        "ratelimit_request_store_servers{state=\"answering\"} 0".to_owned(),
        "ratelimit_request_store_servers{state=\"away\"} 1".to_owned(),
        format!("ratelimit_request_store_problem{{kind=\"{kind}\"}} 1"),
    ] {
        assert!(lines.contains(&line), "{line} is not in {lines:#?}");
    }
}

fn lines_about_requests(service: &Service) -> Vec<String> {
    service.log().lines().filter(|line| line.contains("requests are counted")).map(str::to_owned).collect()
}

#[test]
fn a_store_whose_memory_is_full_is_away_until_it_takes_writes_again_and_the_log_says_it_once() {
    let server = Redis::single(Options::default());
    let (service, metrics) = with_store(&server.url());
    wait_for("a store that answers", || is_up(metrics).then_some(()));
    // Nobody asks anything; somebody looks all the same.
    server.fill();
    wait_for("a full store that is noticed", || (!is_up(metrics)).then_some(()));
    let began = Instant::now();
    let mut asked = 0;
    while began.elapsed() < Duration::from_secs(3) {
        // One in four only looks, for which a full store has an answer.
        let peek = if asked % 4 == 0 { "&peek=1" } else { "" };
        assert_eq!(service.get(&format!("/v1/check?user=u{asked}&api=search{peek}")).status, 200, "a share");
        assert_away(metrics, "out_of_memory");
        asked += 1;
    }
    assert_eq!(service.get("/readyz").status, 200, "all hosts would be unready at once");
    server.make_room();
    let freed = Instant::now();
    wait_for("a store that takes writes", || is_up(metrics).then_some(()));
    println!("{asked} questions; noticed {:?} after memory was freed", freed.elapsed());
    assert_eq!(scraped(metrics, "ratelimit_request_store_problem"), [""; 0]);
    service.wait_for_log("requests are counted with other hosts in redis://");
    wait_for("three lines", || (lines_about_requests(&service).len() == 3).then_some(()));
    let lines = lines_about_requests(&service);
    assert!(
        lines[1].contains("without other hosts") && lines[1].contains("has no memory left"),
        "{lines:#?}"
    );
    assert!(lines[2].contains("counted with other hosts"), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("has changed")), "{lines:#?}");
}

#[test]
fn a_service_that_starts_beside_a_full_store_is_ready_and_says_what_is_wrong() {
    let server = Redis::single(Options::default());
    server.fill();
    let (service, metrics) = with_store(&server.url());
    service.wait_for_log("requests are counted without other hosts: Redis at");
    assert_away(metrics, "out_of_memory");
    assert_eq!(service.get("/readyz").status, 200, "it may pass by itself: keys expire");
    server.make_room();
    wait_for("a store that takes writes", || is_up(metrics).then_some(()));
}

#[test]
fn a_replica_from_the_start_on_makes_nobody_ready_until_it_takes_writes() {
    let master = Redis::single(Options::default());
    let replica = Redis::single(Options::with([format!("replicaof 127.0.0.1 {}", master.port())]));
    wait_for("a replica that follows", || (replica.info("master_link_status") == "up").then_some(()));
    let (service, metrics) = with_store(&replica.url());
    let says = format!("Redis at {} is a replica and takes no writes", replica.at());
    service.wait_for_log(&says);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        assert_eq!(service.get("/v1/check?user=ann&api=search&peek=1").status, 200);
        assert_away(metrics, "read_only");
        let ready = service.get("/readyz");
        assert!(ready.status == 503 && ready.body.contains(&says), "{ready:?}");
    }
    replica.ask(&["REPLICAOF", "NO", "ONE"]);
    wait_for("a store that takes writes", || is_up(metrics).then_some(()));
    assert_eq!(service.get("/readyz").status, 200);
    // Once it has worked, its failures are no reason to send callers elsewhere.
    replica.ask(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    wait_for("a replica again", || (!is_up(metrics)).then_some(()));
    assert_eq!(service.get("/readyz").status, 200);
}

#[test]
fn a_store_that_evicts_is_warned_of_for_as_long_as_it_does() {
    let server = Redis::single(Options::with(["maxmemory 100mb", "maxmemory-policy allkeys-lru"]));
    let (service, metrics) = with_store(&server.url());
    let says =
        format!("{} has maxmemory-policy allkeys-lru: when its memory is full it forgets", server.at());
    service.wait_for_log(&says);
    let forgetful = |servers: u32| {
        let line = format!("ratelimit_request_store_forgetful_servers {servers}");
        wait_for(&line, || (scraped(metrics, "forgetful") == [line.as_str()]).then_some(()));
    };
    forgetful(1);
    assert!(is_up(metrics) && service.get("/readyz").status == 200, "it counts, until it is full");
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    forgetful(0);
    service.wait_for_log("the store keeps what users have spent");
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    forgetful(1);
    service.wait_for_log("has maxmemory-policy volatile-ttl");
    assert_eq!(service.log().matches(&says).count(), 1, "each is said once");
}

#[test]
fn a_store_that_writes_nothing_down_is_warned_of() {
    let server = Redis::single(Options::default());
    let policy =
        format!("[[api]]\nname = \"a\"\nlimits = [\"5/hour\"]\n[cluster]\nredis = \"{}\"\n", server.url());
    let service = Service::start(&policy);
    wait_for("a store that answers", || (service.get("/readyz").status == 200).then_some(()));
    let says = "writes nothing down";
    assert!(!service.log().contains(says), "an hour is soon over");
    service.write_policy(&service.policy_text().replace("5/hour", "5/day"));
    service.signal("HUP");
    service.wait_for_log(says);
    server.ask(&["CONFIG", "SET", "appendonly", "yes"]);
    service.wait_for_log("the store keeps what users have spent");
}

#[test]
fn a_reset_without_the_store_gives_this_host_its_share_again_and_no_answer_waits() {
    let algorithms = ["token-bucket", "fixed-window", "sliding-window", "sliding-log"];
    let api = |algorithm: &&str| {
        format!("[[api]]\nname = \"{algorithm}\"\nlimits = [\"4/hour\"]\nalgorithm = \"{algorithm}\"\n")
    };
    let apis: String = algorithms.iter().map(api).collect();
    let service = Service::start_listening(
        &format!("{apis}[cluster]\nredis = \"redis://127.0.0.1:{}\"\nhosts = 1\n", free_port()),
        "",
    );
    for algorithm in algorithms {
        let ask = || service.get(&format!("/v1/check?user=ann&api={algorithm}")).status;
        for _ in 0..3 {
            assert_eq!([(); 5].map(|()| ask()), [200, 200, 200, 200, 429], "{algorithm}");
            let began = Instant::now();
            let question = format!("{{\"user\": \"ann\", \"api\": \"{algorithm}\"}}");
            assert_eq!(service.open().post("/v1/reset", &question).status, 204, "{algorithm}");
            assert!(began.elapsed() < Duration::from_millis(500), "{algorithm}: {:?}", began.elapsed());
        }
    }
}
