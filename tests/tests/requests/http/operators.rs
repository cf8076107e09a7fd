//! What operators see of a `ratelimit serve`.

use std::{
    fs,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::Command,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    answer::assert_refused,
    daemon::{Daemon, binary},
    netns::run,
    redis::{Options, Redis, free_port, wait_for},
    service::{Client, Service},
};

use super::allowed;

const POLICY: &str = "[[api]]\nname = \"search\"\nlimits = [\"1/hour\"]\n\
                      escalate = { above = \"5/s\", for = \"1s\", block = \"5m\" }\n";

#[test]
fn metrics_have_the_decisions_and_how_long_they_took() {
    let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let service = Service::start_listening(POLICY, &format!("metrics = \"{metrics}\""));
    for status in [200, 429, 429] {
        assert_eq!(service.get("/v1/check?user=ann&api=search").status, status);
    }
    let scraped = Client::new(TcpStream::connect(metrics).unwrap()).get("/metrics");
    assert_eq!(scraped.status, 200);
    for line in [
        "ratelimit_decisions_total{api=\"search\",outcome=\"allowed\"} 1",
        "ratelimit_decisions_total{api=\"search\",outcome=\"refused\"} 2",
        "ratelimit_decision_seconds_count 3",
        "ratelimit_request_keys 1",
    ] {
        assert!(scraped.body.lines().any(|it| it == line), "{line} is not in\n{}", scraped.body);
    }
    assert!(!scraped.body.contains("ratelimit_packets_total"), "it sees no packets");
}

#[test]
fn an_address_for_metrics_that_is_taken_is_an_error() {
    let service = Service::start(POLICY);
    let file = service.dir().join("taken.toml");
    let text =
        format!("{POLICY}[listen]\nresp = \"127.0.0.1:{}\"\nmetrics = \"{}\"\n", free_port(), service.http);
    fs::write(&file, text).unwrap();
    let output = Command::new(binary("ratelimit")).arg("serve").arg("--policy").arg(&file).output().unwrap();
    let says = format!("cannot listen for metrics on {}: ", service.http);
    assert_refused(&output, 2, &[&says]);
}

#[test]
fn escalation_that_nobody_can_carry_out_is_warned_about() {
    let service = Service::start(POLICY);
    service.wait_for_log("api \"search\": escalate does nothing here");
}

#[test]
fn sighup_reads_the_policy_again_and_a_broken_one_changes_nothing() {
    const TWO: &str = "[[api]]\nname = \"search\"\nlimits = [\"2/hour\"]\n";
    let service = Service::start(TWO);
    let mut client = service.connect();
    assert_eq!(allowed(&mut client, "/v1/check?user=ann&api=search", 1).0, 1);
    let listen = service.policy_text().split_once("[listen]").map(|(_, listen)| listen.to_owned()).unwrap();
    let write = |policy: &str| service.write_policy(&format!("{policy}[listen]{listen}"));
    write("[[api]]\nname = \"search\"\nlimits = [\"9/fortnight\"]\n");
    service.signal("HUP");
    service.wait_for_log("policy not reloaded, the old one stays in force: ");
    service.wait_for_log("fortnight");
    fs::remove_file(service.policy_file()).unwrap();
    run(Command::new("mkfifo").arg(service.policy_file()));
    service.signal("HUP");
    service.wait_for_log("it is no file, and nothing else can be read again");
    fs::remove_file(service.policy_file()).unwrap();
    // What was counted stays: one of two is left.
    assert_eq!(allowed(&mut client, "/v1/check?user=ann&api=search", 2).0, 1);
    write(
        "[[api]]\nname = \"search\"\nlimits = [\"2/hour\"]\n[[api]]\nname = \"other\"\nlimits = [\"3/hour\"]\n",
    );
    service.signal("HUP");
    service.wait_for_log("policy read again: 1 change, 2 APIs in force");
    // On the connection that was open before, with what was counted before.
    assert_eq!(allowed(&mut client, "/v1/check?user=ann&api=search", 1).0, 0);
    assert_eq!(allowed(&mut client, "/v1/check?user=ann&api=other", 4).0, 3);
    write("[[api]]\nname = \"search\"\nlimits = [\"900/min\", \"2/hour\"]\n");
    service.signal("HUP");
    service.wait_for_log("1 APIs in force");
    assert_eq!(allowed(&mut client, "/v1/check?user=ann&api=search", 5).0, 0, "another limit came before it");
}

#[test]
fn a_state_directory_has_one_service_and_is_free_again_when_that_ends() {
    let (policy, idle) = ("[[api]]\nname = \"search\"\nlimits = [\"2/hour\"]\n", Service::start(POLICY));
    let state = idle.dir().join("state");
    let file = idle.dir().join("other.toml");
    let text = format!("{policy}[listen]\nresp = \"127.0.0.1:{}\"\n", free_port());
    fs::write(&file, text).unwrap();
    let serve = || {
        let mut command = Command::new(binary("ratelimit"));
        command.arg("serve").arg("--policy").arg(&file).arg("--state").arg(&state);
        command
    };
    let first = Daemon::start(serve());
    let says = format!("another daemon runs with the state directory {}; stop it first", state.display());
    assert_refused(&serve().output().unwrap(), 2, &[&says, "--state"]);
    drop(first);
    drop(Daemon::start(serve()));
    let taken = Command::new(binary("ratelimit"))
        .args(["serve", "--policy"])
        .arg(&file)
        .arg("--state")
        .arg(file.join("below-a-file"))
        .output()
        .unwrap();
    assert_refused(&taken, 2, &["cannot make the state directory", "below-a-file"]);
}

/// A service that counts with other hosts in the store at an address, and where its metrics are.
pub(super) fn with_store(url: &str) -> (Service, SocketAddr) {
    let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let policy = format!(
        "[[api]]\nname = \"search\"\nlimits = [\"100/hour\"]\n[cluster]\nredis = \"{url}\"\nhosts = 4\n"
    );
    (Service::start_listening(&policy, &format!("metrics = \"{metrics}\"")), metrics)
}

#[test]
fn a_store_that_has_never_worked_is_in_the_log_in_readiness_and_in_metrics() {
    let server = Redis::single(Options::with(["requirepass secret"]));
    let at = server.at();
    let (service, metrics) = with_store(&format!("redis://:wrong@{at}"));
    let says = format!("Redis at {at} refuses the password");
    let log = wait_for("a line in the log", || {
        let log = service.log();
        log.contains(&says).then_some(log)
    });
    assert!(log.contains("warning: requests are counted without other hosts: "), "{log}");
    // A machine with another load may have an attempt that was too slow to hear of the password; one that was not follows in a second.
    wait_for("a service that is not ready, and says why", || {
        let ready = service.get("/readyz");
        (ready.status == 503 && ready.json()["detail"].as_str().unwrap().contains(&says)).then_some(())
    });
    assert_eq!(service.get("/healthz").status, 200, "it lives, and gives its share");
    assert_eq!(service.get("/v1/check?user=ann&api=search").status, 200);
    let scraped = || Client::new(TcpStream::connect(metrics).unwrap()).get("/metrics").body;
    let wanted = [
        "ratelimit_request_store_up 0",
        "ratelimit_request_store_problem{kind=\"wrong_password\"} 1",
        "ratelimit_request_store_servers{state=\"answering\"} 0",
    ];
    wait_for("metrics that say so", || {
        let body = scraped();
        wanted.iter().all(|line| body.lines().any(|it| it == *line)).then_some(())
    });
    // Somebody sets it right, and nothing has to be started again.
    server.ask(&["CONFIG", "SET", "requirepass", "wrong"]);
    wait_for("a store that answers", || {
        let body = scraped();
        let is_up = body.contains("ratelimit_request_store_up 1");
        (is_up && !body.contains("ratelimit_request_store_problem")).then_some(())
    });
    assert_eq!(service.get("/readyz").status, 200);
    service.wait_for_log("requests are counted with other hosts in redis://");
    let lines = service.log().lines().filter(|line| line.contains("requests are counted")).count();
    assert!(lines <= 4, "{lines} lines:\n{}", service.log());
}

#[test]
fn without_the_store_answers_have_the_fields_that_they_have_with_it() {
    // Nobody listens there: as if the store had died, which makes no host unready.
    let (service, _) = with_store(&format!("redis://127.0.0.1:{}", free_port()));
    wait_for("a service that is ready", || (service.get("/readyz").status == 200).then_some(()));
    let reply = service.get("/v1/check?user=ann&api=search");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.field("ratelimit-policy"), Some("\"search\";q=100;w=3600"));
    assert_eq!(reply.field("ratelimit").map(|field| &field[..13]), Some("\"search\";r=24"));
    // Above the share of this host, and not above the limit: the store may be back in a second.
    let reply = service.get("/v1/check?user=bob&api=search&cost=26");
    assert_eq!((reply.status, reply.number("retry-after")), (429, Some(1)), "{reply:?}");
    assert!(reply.body.contains("try again in 1 s"), "{reply:?}");
    let reply = service.get("/v1/check?user=bob&api=search&cost=101");
    assert_eq!((reply.status, reply.number("retry-after")), (429, None), "never, with or without the store");
}

#[test]
fn half_requests_keep_no_scraper_from_the_metrics() {
    let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let _service = Service::start_listening(POLICY, &format!("metrics = \"{metrics}\""));
    let mut scraper = Client::new(TcpStream::connect(metrics).unwrap());
    assert_eq!(scraper.get("/metrics").status, 200);
    let half: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(metrics).unwrap();
            stream.write_all(b"GET /metr").unwrap();
            stream
        })
        .collect();
    let begun = Instant::now();
    assert_eq!(Client::new(TcpStream::connect(metrics).unwrap()).get("/metrics").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(scraper.get("/metrics").status, 200, "who has asked before keeps its connection");
    drop(half);
}

#[test]
fn the_password_of_the_store_is_in_a_file_and_a_new_one_counts_without_a_restart() {
    let server = Redis::single(Options::with(["user limiter on >hunter1 ~* +@all"]));
    let (password, policy) = (server.dir().join("password"), server.dir().join("policy.toml"));
    fs::write(&password, "hunter1\n").unwrap();
    let http = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let api = "[[api]]\nname = \"a\"\nlimits = [\"5/hour\"]\nsharing = \"strict\"\n";
    fs::write(&policy, format!("{api}[listen]\nhttp = \"{http}\"\n")).unwrap();
    let mut command = Command::new(binary("ratelimit"));
    command.arg("serve").arg("--policy").arg(&policy);
    command
        .args(["--redis", &format!("redis://limiter@{}", server.at()), "--redis-password-file"])
        .arg(&password);
    let daemon = Daemon::start(command);
    // The log shows nothing of what stands before the host: a token may stand there too.
    daemon.wait_for_log("requests are counted with other hosts in redis://***@");
    let words = fs::read(format!("/proc/{}/cmdline", daemon.pid())).unwrap();
    assert!(!String::from_utf8_lossy(&words).contains("hunter"), "the list of processes has the password");
    server.ask(&["ACL", "SETUSER", "limiter", "resetpass", ">hunter2"]);
    server.ask(&["CLIENT", "KILL", "USER", "limiter"]);
    // Whoever asks next finds the connection gone.
    wait_for("a refusal", || {
        Client::new(TcpStream::connect(http).unwrap()).get("/v1/check?user=ann&api=a");
        daemon.log().contains("refuses the password").then_some(())
    });
    fs::write(&password, "hunter2\n").unwrap();
    wait_for("the store again", || {
        (daemon.log().matches("requests are counted with other hosts in").count() == 2).then_some(())
    });
    assert!(!daemon.log().contains("hunter"), "{}", daemon.log());
}
