//! What operators see of a `ratelimit serve`.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::Command,
};

use ratelimit_tests::{
    answer::assert_refused,
    daemon::binary,
    redis::free_port,
    service::{Client, Service},
};

use crate::allowed;

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
    std::fs::write(&file, text).unwrap();
    let output = Command::new(binary("ratelimit")).arg("serve").arg("--policy").arg(&file).output().unwrap();
    let says = format!("cannot listen for metrics on {}: ", service.http);
    assert_refused(&output, 2, &[&says]);
}

#[test]
fn escalation_that_nobody_can_carry_out_is_warned_about() {
    let service = Service::start(POLICY);
    assert!(service.log().contains("api \"search\": escalate does nothing here"), "{}", service.log());
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
    assert!(service.log().contains("fortnight"), "{}", service.log());
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
}
