//! Questions as protocols ask them: what is counted, whose word counts, and who waits for a turn.

use super::*;
use crate::config;

#[tokio::test]
async fn who_does_not_wait_for_the_turn_of_a_login_has_not_logged_in() {
    let text = "[source]\nlimits = [\"1/s\"]\n[[api]]\nname = \"login\"\npreset = \"login\"\nper_user = [\"1/hour\"]";
    let decisions = DecisionService::new(&config::parse(text, "test").unwrap().policy);
    let guess = Request::new("alice", "login").from("203.0.113.9".parse().unwrap());
    let served = async || {
        decisions.check(&guess, Asking::Counted, |decision| decision.outcome.is_served()).await.unwrap()
    };
    assert!(served().await);
    decisions.give_back(&guess).await;
    assert!(!served().await, "nothing comes back, and nobody is known");
    decisions.refund(&guess, 0).await.unwrap();
    assert!(served().await, "this one has logged in");
}

#[tokio::test]
async fn turns_stay_apart_whoever_hangs_up() {
    let text = "[source]\nlimits = [\"1/s\"]\n[[api]]\nname = \"api\"\nlimits = [\"10/s burst 100 leaky-bucket\"]\non_limit = \"delay 3s\"";
    let decisions = Arc::new(DecisionService::new(&config::parse(text, "test").unwrap().policy));
    let request = Request::new("u", "api");
    // A turn is known from when to when, not to the microsecond: a busy machine may stop this thread before or after the decision.
    let turn = async || {
        let asked_us = decisions.clock.now_us();
        let outcome = decisions.check(&request, Asking::Counted, |decision| decision.outcome).await.unwrap();
        let answered_us = decisions.clock.now_us();
        match outcome {
            Outcome::Delayed { wait_us } => {
                Some((asked_us + wait_us..=answered_us + wait_us, decisions.turn(&request, wait_us)))
            }
            Outcome::Allowed => Some((asked_us..=answered_us, None)),
            _ => None,
        }
    };
    let mut waiting = Vec::new();
    while let Some(one) = turn().await {
        waiting.push(one);
    }
    assert_eq!(waiting.len(), 31, "one at once, and thirty within three seconds");
    // Ten from the middle hang up, and twenty others come.
    drop(waiting.drain(5..15));
    for _ in 0..20 {
        waiting.extend(turn().await);
    }
    assert_eq!(waiting.len(), 31, "ten have the places of those who have gone, and others none");
    let mut turns: Vec<_> = waiting.iter().map(|(turn_us, _)| turn_us.clone()).collect();
    turns.sort_unstable_by_key(|turn_us| *turn_us.end());
    let nearest = turns.windows(2).map(|two| two[1].end() - two[0].start()).min().unwrap();
    assert!(nearest > 90_000, "{nearest} us between two of ten a second: {turns:?}");
}

#[tokio::test]
async fn what_is_given_back_moves_nobody_who_waits() {
    let text = "[source]\nlimits = [\"1/s\"]\n[[api]]\nname = \"leaky\"\nlimits = [\"1/min burst 9 leaky-bucket\"]\non_limit = \"delay 60s\"\n\
                [[api]]\nname = \"bucket\"\nlimits = [\"1/min burst 2\"]\non_limit = \"delay 60s\"";
    let decisions = DecisionService::new(&config::parse(text, "test").unwrap().policy);
    let wait_s = async |api| {
        let outcome =
            decisions.check(&Request::new("u", api), Asking::Counted, |decision| decision.outcome).await;
        match outcome.unwrap() {
            Outcome::Allowed => Some(0),
            Outcome::Delayed { wait_us } => Some(wait_us.div_ceil(1_000_000)),
            _ => None,
        }
    };
    for (api, at_once) in [("leaky", 1), ("bucket", 2)] {
        for _ in 0..at_once {
            assert_eq!(wait_s(api).await, Some(0));
        }
        decisions.refund(&Request::new("u", api), 0).await.unwrap();
        assert_eq!(wait_s(api).await, Some(0), "{api}: nobody waits, so it is there again");
        assert_eq!(wait_s(api).await, Some(60), "{api}");
        decisions.refund(&Request::new("u", api), 0).await.unwrap();
        assert_eq!(wait_s(api).await, None, "{api}: the turn at 60 s is somebody else's");
    }
}

#[tokio::test]
async fn what_is_given_back_is_there_again() {
    let text = "[source]\nlimits = [\"1/s\"]\n[[api]]\nname = \"api\"\nlimits = [\"1/hour\"]";
    let decisions = DecisionService::new(&config::parse(text, "test").unwrap().policy);
    let request = Request::new("u", "api");
    for _ in 0..3 {
        let served =
            decisions.check(&request, Asking::Counted, |decision| decision.outcome.is_served()).await;
        assert_eq!(served, Ok(true));
        decisions.give_back(&request).await;
    }
}

fn service(text: &str) -> DecisionService {
    let text = format!("[source]\nlimits = [\"1/s\"]\n{text}");
    let loaded = config::parse(&text, "test").unwrap_or_else(|error| panic!("{error}"));
    DecisionService::new(&loaded.policy)
}

#[tokio::test]
async fn every_decision_is_counted_once_with_its_time_and_a_look_is_not() {
    let decisions = service(
        "[[api]]\nname = \"a\"\nlimits = [\"2/hour\"]\n[[api]]\nname = \"b\"\nlimits = [\"9/hour\"]\n",
    );
    for (api, asking) in [
        ("a", Asking::Counted),
        ("a", Asking::Peeking),
        ("a", Asking::InBulk),
        ("a", Asking::Peeking),
        ("a", Asking::Counted),
        ("b", Asking::Counted),
    ] {
        decisions.check(&Request::new("u", api), asking, |_| ()).await.unwrap();
    }
    // Of requests that are charged together or not at all, a refusal is counted where it is found out, and a served request where it is charged.
    let of_both = ["a", "b"].map(|api| (Request::new("u", api), Asking::Counted));
    decisions.peek_together(&of_both, |_| ()).await.unwrap();
    decisions.peek_together(&of_both.map(|(request, _)| (request, Asking::Peeking)), |_| ()).await.unwrap();
    let status = decisions.status();
    let mut counted: Vec<(&str, &str, u64)> = (status.decisions.iter())
        .filter(|count| count.decisions > 0)
        .map(|count| (count.api.as_str(), count.outcome.as_str(), count.decisions))
        .collect();
    counted.sort_unstable();
    assert_eq!(counted, [("a", "allowed", 2), ("a", "refused", 2), ("b", "allowed", 1)]);
    assert_eq!(status.decision_times.counts.iter().map(|count| count.decisions).sum::<u64>(), 5);
    assert!(status.decision_times.total_us < 10_000_000, "a time, and no moment");
    assert_eq!((status.keys, status.evicted, status.store_up), (2, 0, None));
}

#[tokio::test]
async fn who_comes_while_a_turn_is_free_has_it_if_it_is_before_the_own_one_which_is_free_then() {
    let decisions = service(
        "[[api]]\nname = \"a\"\nlimits = [\"12/min burst 9 leaky-bucket\"]\non_limit = \"delay 60s\"",
    );
    let request = Request::new("u", "a");
    // Returns waits in steps of five seconds, rounded up: the test takes less time than one step.
    let ask = async |asking: Asking| {
        let outcome = decisions.check(&request, asking, |decision| decision.outcome).await.unwrap();
        match outcome {
            Outcome::Allowed => 0,
            Outcome::Delayed { wait_us } => wait_us.div_ceil(5_000_000),
            other => panic!("{other:?}"),
        }
    };
    let hang_up = |turn: u64| drop(decisions.turn(&request, turn * 5_000_000).unwrap());
    assert_eq!(
        (ask(Asking::Counted).await, ask(Asking::Counted).await, ask(Asking::Counted).await),
        (0, 1, 2)
    );
    assert_eq!(ask(Asking::Peeking).await, 3, "nobody has hung up");
    hang_up(1);
    assert_eq!(ask(Asking::Peeking).await, 1, "who looks is told of the turn that is free");
    assert_eq!(ask(Asking::InBulk).await, 3, "a proxy does not wait for one");
    assert_eq!(ask(Asking::Counted).await, 1, "instead of the fourth");
    assert_eq!(ask(Asking::Peeking).await, 4, "which is free now");
    assert_eq!(ask(Asking::Counted).await, 4);
    // A caller gets the first turn that is free, but none behind its own.
    hang_up(8);
    assert_eq!(ask(Asking::Peeking).await, 5);
    assert_eq!((ask(Asking::Counted).await, ask(Asking::Counted).await), (5, 6));
}

#[test]
fn the_word_of_a_peer_counts_if_the_policy_names_it() {
    let named = service("[listen]\ntrusted_proxies = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n");
    for (peer, trusted) in [
        ("192.0.2.7", true),
        ("::ffff:192.0.2.7", true),
        ("192.0.3.7", false),
        ("2001:db8::1", true),
        ("2001:db9::1", false),
        ("127.0.0.1", false),
    ] {
        assert_eq!(named.trusts(peer.parse().unwrap()), trusted, "{peer}");
    }
    // Another policy names others.
    let text = "[source]\nlimits = [\"1/s\"]\n[listen]\ntrusted_proxies = [\"192.0.3.0/24\"]\n";
    named.follow(&config::parse(text, "test").unwrap().policy, None);
    assert!(named.trusts("192.0.3.7".parse().unwrap()) && !named.trusts("192.0.2.7".parse().unwrap()));
}

#[test]
fn what_an_operator_should_know_is_what_was_said_last() {
    let decisions = service("");
    assert_eq!(decisions.warnings(), [""; 0]);
    decisions.warn(vec!["one".to_owned(), "two".to_owned()]);
    assert_eq!(decisions.warnings(), ["one", "two"]);
    decisions.warn(vec!["three".to_owned()]);
    assert_eq!(decisions.warnings(), ["three"]);
    assert_eq!(decisions.unready(), None, "a host that has no store needs none");
    assert!(decisions.escalations().is_some() && decisions.escalations().is_none(), "for one taker");
}

#[tokio::test]
async fn who_is_refused_for_too_long_is_to_be_blocked_if_somebody_answers_for_the_address() {
    let decisions = service(
        "[[api]]\nname = \"a\"\nlimits = [\"1/day\"]\nescalate = { above = \"1/day\", for = \"1s\", block = \"9m\" }\n",
    );
    let mut blocks = decisions.escalations().unwrap();
    let from = |ip: &str| Request::new("u", "a").from(ip.parse().unwrap());
    let api = |rules: &Rules| rules.apis().into_iter().next().unwrap().index;
    assert_eq!(api(&decisions.engine.rules()), 0);
    let refused = Outcome::Refused { retry_us: None };
    let rules = decisions.engine.rules();
    let of = rules.apis().into_iter().next().unwrap();
    let vouched = Request { vouched: true, ..from("192.0.2.1") };
    let claimed = Request { vouched: false, ..from("192.0.2.2") };
    let nowhere = Request { vouched: true, ..Request::new("u", "a") };
    for second in 1..9_u64 {
        for request in [&vouched, &claimed, &nowhere] {
            decisions.note(of, request, Asking::Counted, refused, second * 1_000_000);
        }
        let served = Request { vouched: true, ..from("192.0.2.3") };
        decisions.note(of, &served, Asking::Counted, Outcome::Allowed, second * 1_000_000);
        let looks = Request { vouched: true, ..from("192.0.2.4") };
        decisions.note(of, &looks, Asking::Peeking, refused, second * 1_000_000);
    }
    let block = blocks.try_recv().unwrap();
    assert_eq!((block.prefix.to_string().as_str(), block.for_ns), ("192.0.2.1/32", 540_000_000_000));
    assert_eq!(block.reason, "refused by api a");
    while let Ok(block) = blocks.try_recv() {
        assert_eq!(block.prefix.to_string(), "192.0.2.1/32");
    }
}
