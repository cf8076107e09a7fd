//! Limits with a margin: soft limits, elastic limits, and limits that keep a part for requests of a priority.

use super::{SECOND, START, World};
use crate::requests::{Outcome, Priority, Request};

/// Returns the outcomes of a request that is made `times` times, evenly over `lasting_us` microseconds.
fn paced(world: &World, request: &Request<'_>, times: u64, lasting_us: u64) -> Vec<Outcome> {
    (0..times).map(|nth| world.outcome(request, START + nth * lasting_us / times)).collect()
}

#[test]
fn what_a_soft_bucket_serves_above_its_limit_is_what_a_hard_one_refuses() {
    for (algorithm, limit, per_second) in
        [("token-bucket", "100/s", 105), ("leaky-bucket", "100/s", 105), ("token-bucket", "10/s burst 1", 11)]
    {
        let policy = |throttle: &str| {
            format!(
                "[[api]]\nname = \"api\"\nlimits = [\"{limit}\"]\nalgorithm = \"{algorithm}\"\nthrottle = \"{throttle}\""
            )
        };
        let user = Request::new("u", "api");
        let count = |throttle: &str, wanted: fn(&Outcome) -> bool| {
            let outcomes = paced(&World::new(&policy(throttle)), &user, 60 * per_second, 60 * SECOND);
            outcomes.iter().filter(|outcome| wanted(outcome)).count()
        };
        let above = count("hard", |outcome| !outcome.is_served());
        let flagged = count("soft 20%", |outcome| *outcome == Outcome::InMargin);
        assert_eq!(count("soft 20%", |outcome| !outcome.is_served()), 0, "{algorithm} {limit}");
        assert!(above > 50, "{algorithm} {limit}: {above}");
        assert_eq!(flagged, above, "{algorithm} {limit}");
    }
}

#[test]
fn what_is_in_the_margin_of_a_soft_bucket_comes_back_like_the_rest() {
    let world = World::new("[[api]]\nname = \"api\"\nlimits = [\"10/min\"]\nthrottle = \"soft 50%\"");
    let (user, rules) = (Request::new("u", "api"), world.engine.rules());
    let outcomes: Vec<Outcome> = (0..16).map(|_| world.outcome(&user, START)).collect();
    let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    assert_eq!((count(Outcome::Allowed), count(Outcome::InMargin)), (10, 5));
    assert!(!outcomes[15].is_served());
    assert_eq!(world.engine.refund(&rules, &user, START), Ok(true));
    assert!(world.serves(&user, START) && !world.serves(&user, START));
}

#[test]
fn a_request_that_is_too_large_for_what_a_soft_bucket_has_below_its_limit_leaves_that_to_smaller_ones() {
    let world = World::new("[[api]]\nname = \"api\"\nlimits = [\"10/min\"]\nthrottle = \"soft 50%\"");
    assert_eq!(world.served(&Request::new("u", "api"), START, 9), 9);
    let large = Request::new("u", "api").costing(3);
    let told = world.ask(&large, START, |decision| (decision.outcome, decision.limit.unwrap().remaining));
    assert_eq!(told, (Outcome::InMargin, 1), "all three come out of the margin");
    assert_eq!(world.outcome(&Request::new("u", "api"), START), Outcome::Allowed);
}

#[test]
fn an_elastic_limit_gives_more_only_while_there_is_headroom() {
    for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        let text = format!(
            "[[api]]\nname = \"api\"\nlimits = [\"100/min\"]\nalgorithm = \"{algorithm}\"\nthrottle = \"elastic 50%\""
        );
        for (headroom, served) in [(true, 150), (false, 100)] {
            let world = World::new(&text);
            world.engine.set_headroom(headroom);
            assert_eq!(world.served(&Request::new("u", "api"), START, 200), served, "{algorithm} {headroom}");
        }
    }
}

#[test]
fn background_requests_give_way_first_and_critical_ones_are_untouched() {
    for algorithm in ["token-bucket", "fixed-window", "sliding-window"] {
        let world = World::new(&format!(
            "[[api]]\nname = \"api\"\nlimits = [\"100/min\"]\nalgorithm = \"{algorithm}\"\nreserved = {{ critical = \"20%\", normal = \"30%\" }}"
        ));
        let ask = |priority| Request::new("u", "api").with_priority(priority);
        assert_eq!(world.served(&ask(Priority::Background), START, 200), 50, "{algorithm}");
        assert_eq!(world.served(&ask(Priority::Normal), START, 200), 30);
        assert_eq!(world.served(&ask(Priority::Critical), START, 200), 20);
    }
}
