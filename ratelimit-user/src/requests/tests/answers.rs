//! What a decision says beside its outcome: what is left, when there is more, which limits refuse, and what is wrong with a question.

use super::{ALGORITHMS, MINUTE, SECOND, START, World, ip};
use crate::requests::{Outcome, Request};

#[test]
fn there_is_more_when_the_answer_says_so_and_no_moment_before() {
    for algorithm in ALGORITHMS {
        for throttle in ["hard", "soft 20%"] {
            let world = World::new(&format!(
                "[[api]]\nname = \"api\"\nlimits = [\"10/min\"]\nalgorithm = \"{algorithm}\"\nthrottle = \"{throttle}\""
            ));
            let (user, rules) = (Request::new("u", "api"), world.engine.rules());
            let at_once = |cost, now_us| world.engine.peek(&rules, &user.costing(cost), now_us).unwrap();
            // After a served request, `more_us` is about what remains. After a refusal, it is about what is served, which may be of the margin.
            let remaining = |now_us| at_once(1, now_us).limit.unwrap().remaining;
            let serves =
                |now_us| (1..20).take_while(|cost| at_once(*cost, now_us).outcome.is_served()).count() as u64;
            for nth in 0..15 {
                let now_us = START + 3_123_457 + nth * 1_234_567;
                let (outcome, more_us) =
                    world.ask(&user, now_us, |decision| (decision.outcome, decision.limit.unwrap().more_us));
                assert!(more_us > 0, "{algorithm} {throttle} {nth}");
                let left = |now_us| if outcome.is_served() { remaining(now_us) } else { serves(now_us) };
                assert!(left(now_us + more_us) > left(now_us), "{algorithm} {throttle} {nth}");
                assert_eq!(left(now_us + more_us - 1), left(now_us), "{algorithm} {throttle} {nth}");
                if let Outcome::Refused { retry_us } = outcome {
                    assert!(
                        retry_us >= Some(more_us),
                        "{algorithm} {throttle} {nth}: {retry_us:?} {more_us}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_refusal_says_what_is_left_and_names_all_that_refuse() {
    let world = World::new(
        "[plan.default]\nlimits = [\"20/day fixed-window\"]\n[[api]]\nname = \"api\"\n\
         limits = [\"100/hour\", \"10/min\", \"12/day\"]\nalgorithm = \"fixed-window\"",
    );
    let user = Request::new("u", "api");
    let said = |cost, now_us| {
        world.ask(&user.costing(cost), now_us, |decision| {
            let names: Vec<String> = decision.violated.limits().map(|limit| limit.name.clone()).collect();
            let near = decision.limit.unwrap();
            (near.limit.name.clone(), near.remaining, names.join(" "))
        })
    };
    let said_is = |cost, now_us, (name, left, names): (&str, u64, &str)| {
        assert_eq!(said(cost, now_us), (name.to_owned(), left, names.to_owned()));
    };
    said_is(7, START, ("api-min", 3, ""));
    said_is(4, START, ("api-min", 3, "api-min"));
    said_is(6, START, ("api-day", 5, "api-min api-day"));
    said_is(5, START + MINUTE, ("api-day", 0, ""));
    said_is(6, START + MINUTE, ("api-day", 0, "api-min api-day"));
    said_is(9, START + MINUTE, ("api-day", 0, "api-min api-day default"));
    let peek = |cost| {
        world
            .engine
            .peek(&world.engine.rules(), &user.costing(cost), START + 86_400 * SECOND)
            .map(|d| d.limit.unwrap().remaining)
    };
    assert_eq!((peek(1), peek(10)), (Ok(10), Ok(10)), "who looks is shown what is left");
}

#[test]
fn of_two_limits_that_have_as_much_left_the_first_of_the_policy_is_told() {
    for (limits, name) in [("\"9/min\", \"9/hour\"", "api-min"), ("\"9/hour\", \"9/min\"", "api-hour")] {
        let world = World::new(&format!(
            "[[api]]\nname = \"api\"\nlimits = [{limits}]\nalgorithm = \"fixed-window\""
        ));
        world.ask(&Request::new("u", "api"), START, |decision| {
            let near = decision.limit.unwrap();
            assert_eq!((near.limit.name.as_str(), near.remaining), (name, 8), "{limits}");
        });
    }
}

#[test]
fn questions_without_an_answer_say_what_is_missing() {
    let world = World::new("[[api]]\nname = \"api\"\nkey = [\"user\", \"ip\"]\nlimits = [\"1/min\"]");
    let rules = world.engine.rules();
    let says = |request: &Request<'_>| world.engine.decide(&rules, request, START).unwrap_err().to_string();
    assert_eq!(says(&Request::new("u", "nope")), "api \"nope\" is not in the policy; there is api");
    assert_eq!(says(&Request::new("u", "api")), "ip is missing; requests for api \"api\" are counted by it");
    let nobody = Request::new("", "api").from(ip("::1"));
    assert_eq!(says(&nobody.costing(0)), "cost 0 counts nothing; use at least 1, or peek");
}
