//! Answers that are held until it is the request's turn.

use std::time::{Duration, Instant};

use ratelimit_tests::{redis::wait_for, service::Service};

const POLICY: &str =
    "[[api]]\nname = \"queue\"\nlimits = [\"2/s burst 20 leaky-bucket\"]\non_limit = \"delay 5s\"\n";

#[test]
fn an_answer_comes_when_it_is_the_requests_turn() {
    let service = Service::start(POLICY);
    let begun = Instant::now();
    let mut client = service.connect();
    let first = client.get("/v1/check?user=ann&api=queue");
    assert_eq!((first.status, first.field("x-ratelimit-delayed")), (200, None));
    // Peeking waits for nothing.
    let peeked = client.get("/v1/check?user=ann&api=queue&peek=1");
    assert!((1..=500).contains(&peeked.number("x-ratelimit-delayed").expect("a time")));
    let second = client.get("/v1/check?user=ann&api=queue");
    let held = second.number("x-ratelimit-delayed").expect("a time");
    assert_eq!(second.status, 200);
    assert!((1..=500).contains(&held), "{held}");
    assert!(begun.elapsed() >= Duration::from_millis(499), "{:?}", begun.elapsed());
    // Other users are answered meanwhile.
    let mut waiting = service.connect();
    waiting.send(b"GET /v1/check?user=ann&api=queue HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(service.get("/v1/check?user=bob&api=queue").field("x-ratelimit-delayed"), None);
    assert_eq!(waiting.receive().status, 200);
}

#[test]
fn a_caller_that_does_not_wait_gives_its_place_back() {
    let service = Service::start(POLICY);
    let left = || {
        let reply = service.get("/v1/check?user=ann&api=queue&peek=1");
        reply.number("x-ratelimit-delayed").unwrap_or(0)
    };
    assert_eq!(service.get("/v1/check?user=ann&api=queue").status, 200);
    let mut gone: Vec<_> = (0..4).map(|_| service.connect()).collect();
    for client in &mut gone {
        client.send(b"GET /v1/check?user=ann&api=queue HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    // Five places of half a second each, less what has passed.
    let queued = wait_for("four places in the queue", || Some(left()).filter(|left| *left > 1_000));
    let asked = Instant::now();
    drop(gone);
    wait_for("places that are given back", || (left() < queued.saturating_sub(1_400)).then_some(()));
    // The places were given back, and did not run out while the test waited.
    assert!(asked.elapsed() < Duration::from_millis(800), "{:?}", asked.elapsed());
}
