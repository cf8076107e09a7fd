//! Limits of the policy.

use std::time::{Duration, Instant};

use ratelimit_tests::{
    redis::wait_for,
    resp::{Caller, packed_bytes},
    service::Service,
};

use super::{caller, service};

/// The numbers of an answer, without times: allowed, remaining, policy, outcome.
fn timeless(answer: &str) -> String {
    let words: Vec<&str> = answer.split(' ').collect();
    let [allowed, remaining, _retry, _reset, policy, outcome] = words[..] else { panic!("{answer}") };
    format!("{allowed} {remaining} {policy} {outcome}")
}

#[test]
fn a_limit_of_the_policy_is_taken_from_looked_at_given_back_and_forgotten() {
    let service = service();
    let mut caller = caller(&service);
    let mut operator = Caller::open(&service.resp_socket());
    let mut steps = Vec::new();
    for question in [
        "CHECK ann search",
        "check ann search 2",
        "CHECK ann search 3 PEEK",
        "CHECK ann search 3",
        "CHECK ann search 192.0.2.1 2 PRIORITY critical",
        "CHECK ann search PEEK",
        "CHECK bob search PEEK",
    ] {
        steps.push(timeless(&caller.ask(question)));
    }
    let expected = [
        "1 4 search allowed",
        "1 2 search allowed",
        "0 2 search refused",
        "0 2 search refused",
        "1 0 search allowed",
        "0 0 search refused",
        "1 5 search allowed",
    ];
    assert_eq!(steps, expected);
    assert_eq!(operator.ask("REFUND ann search 2"), "OK");
    assert_eq!(timeless(&caller.ask("CHECK ann search PEEK")), "1 2 search allowed");
    assert_eq!(operator.ask("RESETKEY ann search"), "OK");
    assert_eq!(timeless(&caller.ask("CHECK ann search PEEK")), "1 5 search allowed");
}

#[test]
fn a_refusal_says_when_to_come_back() {
    let service = service();
    let mut caller = caller(&service);
    caller.ask("CHECK ann search 5");
    let refusal = caller.ask("CHECK ann search");
    let times: Vec<i64> =
        refusal.split(' ').skip(2).take(2).map(|word| word.parse().expect("a number")).collect();
    // One in 720 seconds, five in an hour.
    assert!((700_000..=720_000).contains(&times[0]), "{refusal}");
    assert!((3_580_000..=3_600_000).contains(&times[1]), "{refusal}");
    let never = caller.ask("CHECK ann search 6");
    assert!(never.starts_with("0 0 -1 "), "{never}");
}

#[test]
fn keys_may_have_further_parts() {
    let service = service();
    let mut caller = caller(&service);
    let mut operator = Caller::open(&service.resp_socket());
    assert_eq!(timeless(&caller.ask("CHECK ann page 192.0.2.1 KEY tenant a")), "1 1 page allowed");
    assert_eq!(timeless(&caller.ask("CHECK ann page 192.0.2.1 2 KEY tenant b")), "1 0 page allowed");
    assert_eq!(timeless(&caller.ask("CHECK ann page 192.0.2.1 KEY tenant a")), "1 0 page allowed");
    assert_eq!(timeless(&caller.ask("CHECK ann page 192.0.2.1 KEY tenant a")), "0 0 page refused");
    assert_eq!(operator.ask("RESETKEY ann page 192.0.2.1 KEY tenant a"), "OK");
    assert_eq!(timeless(&caller.ask("CHECK ann page 192.0.2.1 KEY tenant a")), "1 1 page allowed");
}

#[test]
fn what_cannot_be_asked_is_answered_with_a_sentence() {
    let service = service();
    let mut caller = caller(&service);
    let cases = [
        ("CHECK ann", "-ERR wrong number of arguments for 'check' command"),
        ("CHECK ann search 0", "-ERR \"0\" is no address, and no cost from 1 on"),
        ("CHECK ann search SOON", "-ERR \"SOON\" is no address, no cost, and none of PRIORITY, PEEK and KEY"),
        ("CHECK ann page", "-ERR ip is missing; requests for api \"page\" are counted by it"),
        ("REFUND ann search PEEK", "-ERR \"PEEK\" is no address, no cost, and none of KEY"),
        (
            "CHECK ann nothing",
            "-ERR api \"nothing\" is not in the policy; there is free, page, queue, search",
        ),
    ];
    for (question, answer) in cases {
        assert_eq!(caller.ask(question), answer, "{question}");
    }
}

#[test]
fn a_name_is_of_any_bytes_as_long_as_it_likes_or_none() {
    let service = service();
    let mut caller = caller(&service);
    for user in [&b"\xff"[..], b"\xfe", b"", &[b'x'; 5_000], &[b'x'; 5_001]] {
        for expected in ["1 2 search allowed", "0 2 search refused"] {
            caller.send(&packed_bytes(&[b"CHECK", user, b"search", b"3"]));
            assert_eq!(timeless(&caller.receive()), expected, "{} bytes", user.len());
        }
    }
    // Who only asks for parts that were not given is one as well.
    for expected in ["1 0 page allowed", "0 0 page refused"] {
        assert_eq!(timeless(&caller.ask("CHECK ann page 192.0.2.1 2")), expected);
    }
}

#[test]
fn a_caller_that_does_not_wait_leaves_its_place_to_the_next() {
    let service = Service::start(
        "[[api]]\nname = \"slow\"\nlimits = [\"1/s burst 9 leaky-bucket\"]\non_limit = \"delay 9s\"\n",
    );
    let mut callers: Vec<_> = (0..3).map(|_| caller(&service)).collect();
    assert_eq!(timeless(&callers[0].ask("CHECK ann slow")), "1 8 slow allowed");
    let ahead =
        || service.get("/v1/check?user=ann&api=slow&peek=1").number("x-ratelimit-delayed").unwrap_or(0);
    for (at, least) in [(1, 1_000), (2, 2_000)] {
        // More than one question, of which the second is not looked at before its turn.
        callers[at].send(&packed_bytes(&[b"CHECK", b"ann", b"slow"]));
        callers[at].send(&packed_bytes(&[b"PING"]));
        wait_for("a place in the queue", || (ahead() > least).then_some(()));
    }
    drop(callers.remove(1));
    // The turn of the one in the middle is the next one's; the last one keeps its own.
    wait_for("a place that is free", || (ahead() <= 1_000).then_some(()));
    let begun = Instant::now();
    let next = caller(&service).ask("CHECK ann slow");
    assert_eq!(timeless(&next).split(' ').next(), Some("1"), "{next}");
    assert!(begun.elapsed() < Duration::from_millis(1_500), "{:?}", begun.elapsed());
    assert!(timeless(&callers[1].receive()).ends_with("slow delayed"));
    assert_eq!(callers[1].receive(), "PONG");
}

#[test]
fn a_delayed_answer_is_held_and_those_behind_it_wait() {
    let service = service();
    let mut caller = caller(&service);
    let mut other = Caller::connect(service.resp);
    let began = Instant::now();
    caller.send(b"CHECK ann queue\r\nCHECK ann queue\r\nCHECK ann queue\r\nPING behind\r\n");
    assert_eq!(timeless(&caller.receive()), "1 4 queue allowed");
    // No other caller waits meanwhile.
    assert_eq!(other.ask("PING"), "PONG");
    let delayed = caller.receive();
    assert!(delayed.ends_with("queue delayed"), "{delayed}");
    assert!(began.elapsed() >= Duration::from_millis(49), "{:?}", began.elapsed());
    assert!(caller.receive().ends_with("queue delayed"));
    assert!(began.elapsed() >= Duration::from_millis(98), "{:?}", began.elapsed());
    assert_eq!(caller.receive(), "behind");
    let asked = Instant::now();
    assert!(caller.ask("CHECK ann queue 30 PEEK").ends_with("queue refused"));
    assert!(asked.elapsed() < Duration::from_secs(2));
}
