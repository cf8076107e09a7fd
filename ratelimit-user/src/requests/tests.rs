//! The engine with policies as they are written, and a clock of our own. The examples of the documents that the project began with are here by name.

use std::net::IpAddr;

use super::{Decision, Engine, Mode, Outcome, Priority, Request};
use crate::config;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
/// The beginning of a day.
const START: u64 = 20_718 * 86_400 * SECOND;

struct World {
    engine: Engine,
}

impl World {
    fn new(policy: &str) -> Self {
        let text = format!("[source]\nlimits = [\"1000 packets/s\"]\n{policy}");
        let loaded = config::parse(&text, "test").unwrap_or_else(|error| panic!("{error}"));
        Self { engine: Engine::new(&loaded.policy, START) }
    }

    fn ask<R>(&self, request: &Request<'_>, now_us: u64, look: impl FnOnce(&Decision<'_>) -> R) -> R {
        let rules = self.engine.rules();
        look(&self.engine.decide(&rules, request, now_us).unwrap())
    }

    fn outcome(&self, request: &Request<'_>, now_us: u64) -> Outcome {
        self.ask(request, now_us, |decision| decision.outcome)
    }

    fn serves(&self, request: &Request<'_>, now_us: u64) -> bool {
        self.outcome(request, now_us).is_served()
    }

    /// How many of so many are served at once.
    fn served(&self, request: &Request<'_>, now_us: u64, asked: usize) -> usize {
        (0..asked).filter(|_| self.serves(request, now_us)).count()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn fifteen_requests_a_second_for_each_user() {
    let world = World::new("[[api]]\nname = \"api\"\nlimits = [\"15/s\"]");
    let (one, other) = (Request::new("one", "api"), Request::new("other", "api"));
    assert_eq!(world.served(&one, START, 100), 15);
    assert_eq!(world.served(&other, START, 100), 15, "each for itself");
    assert_eq!(world.served(&one, START + SECOND, 100), 15);
    let refused = world.ask(&one, START + SECOND, |decision| {
        let near = decision.limit.unwrap();
        assert_eq!((near.limit.name.as_str(), near.limit.quota, near.limit.window_s), ("api", 15, 1));
        assert_eq!((near.remaining, near.reset_us), (0, SECOND));
        decision.outcome
    });
    assert_eq!(refused, Outcome::Refused { retry_us: Some(66_667) });
}

#[test]
fn three_a_minute_and_the_edge_of_the_window() {
    for (algorithm, across) in [("fixed-window", 6), ("sliding-window", 3), ("sliding-log", 3)] {
        let world = World::new(&format!(
            "[[api]]\nname = \"api\"\nlimits = [\"3/min\"]\nalgorithm = \"{algorithm}\""
        ));
        let user = Request::new("user", "api");
        let before = world.served(&user, START + 59 * SECOND, 5);
        let after = world.served(&user, START + 61 * SECOND, 5);
        assert_eq!(before + after, across, "{algorithm}");
    }
}

#[test]
fn five_hundred_an_hour_and_ten_a_minute() {
    let world = World::new(
        "[plan.gold]\nlimits = [\"500/hour sliding-window\", \"10/min sliding-window\"]\n[[user]]\nname = \"acme\"\nplan = \"gold\"\n[[api]]\nname = \"*\"\nlimits = []",
    );
    let acme = Request::new("acme", "anything");
    let mut by_minute = Vec::new();
    for minute in 0..60 {
        by_minute.push(world.served(&acme, START + minute * (MINUTE + 2 * SECOND), 30));
    }
    assert!(by_minute.iter().take(50).all(|served| *served == 10), "{by_minute:?}");
    assert_eq!(by_minute.iter().take(58).sum::<usize>(), 500, "{by_minute:?}");
    let limit = world.ask(&acme, START + 57 * (MINUTE + 2 * SECOND), |decision| {
        decision.limit.unwrap().limit.name.clone()
    });
    assert_eq!(limit, "gold-hour");
}

#[test]
fn a_hundred_an_hour_and_three_a_minute_for_each_user_and_api() {
    let world = World::new(
        "[[api]]\nname = \"create-url\"\nlimits = [\"100/hour\", \"3/min\"]\nalgorithm = \"fixed-window\"\n[[api]]\nname = \"delete-url\"\nlimits = [\"100/hour\", \"3/min\"]",
    );
    let (create, delete) = (Request::new("u", "create-url"), Request::new("u", "delete-url"));
    assert_eq!(world.served(&create, START, 10), 3);
    assert_eq!(world.served(&delete, START, 10), 3, "another API, other limits");
    let in_an_hour: usize = (0..60).map(|minute| world.served(&create, START + minute * MINUTE, 10)).sum();
    assert_eq!(in_an_hour, 97, "three went before");
}

#[test]
fn a_hundred_and_ten_of_a_hundred_with_soft_10_percent() {
    let world = World::new(
        "[[api]]\nname = \"api\"\nlimits = [\"100/min\"]\nalgorithm = \"fixed-window\"\nthrottle = \"soft 10%\"",
    );
    let user = Request::new("user", "api");
    let outcomes: Vec<Outcome> = (0..120).map(|_| world.outcome(&user, START)).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Allowed).count(), 100);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::InMargin).count(), 10);
    assert_eq!(outcomes.iter().filter(|outcome| !outcome.is_served()).count(), 10);
}

/// Asks so many times, evenly over so long.
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
fn a_refusal_by_one_limit_charges_none() {
    let world = World::new(
        "[plan.gold]\nlimits = [\"5/hour fixed-window\"]\n[[user]]\nname = \"u\"\nplan = \"gold\"\n[[api]]\nname = \"a\"\nlimits = [\"2/min\"]\nalgorithm = \"fixed-window\"\n[[api]]\nname = \"b\"\nlimits = [\"100/min\"]",
    );
    let (a, b) = (Request::new("u", "a"), Request::new("u", "b"));
    assert_eq!(world.served(&a, START, 50), 2);
    // 48 refusals by the API took nothing from the plan.
    assert_eq!(world.served(&b, START, 50), 3);
    // And refusals by the plan took nothing from the API.
    assert_eq!(world.served(&a, START + MINUTE, 50), 0);
    assert_eq!(world.served(&a, START + 60 * MINUTE, 50), 2);
}

#[test]
fn a_stranger_cannot_lock_a_user_out() {
    let world = World::new(
        "[[api]]\nname = \"login\"\npreset = \"login\"\nper_ip = [\"20/hour\"]\nper_user_and_ip = [\"5/hour\"]\nper_user = [\"100/hour\"]",
    );
    fn from(text: &str) -> Request<'static> {
        Request::new("alice", "login").from(ip(text))
    }
    // Alice has logged in from home before: the attempt is charged, and given back because it did not fail.
    let home = from("192.0.2.1");
    assert!(world.serves(&home, START));
    world.engine.refund(&world.engine.rules(), &home, START).unwrap();
    // One stranger gets five attempts, and Alice is untouched.
    assert_eq!(world.served(&from("203.0.113.9"), START, 100), 5);
    assert!(world.serves(&home, START));
    world.engine.refund(&world.engine.rules(), &home, START).unwrap();
    // Many strangers use up what strangers may try in all.
    let strangers: usize = (0..200).map(|n| world.served(&from(&format!("198.51.100.{n}")), START, 5)).sum();
    assert_eq!(strangers, 95);
    assert!(!world.serves(&from("198.51.100.222"), START), "nobody who is new gets a try");
    assert_eq!(world.served(&home, START, 10), 5, "Alice may try from home, and mistype five times");
    // One address that tries many users is stopped, too.
    let spray = |n: usize| Request { user: ["a", "b", "c", "d", "e", "f"][n % 6], ..from("203.0.113.77") };
    assert_eq!((0..60).filter(|n| world.serves(&spray(*n), START)).count(), 20);
}

#[test]
fn an_address_that_a_user_has_logged_in_from_is_known_for_as_long_as_the_policy_says() {
    let world = World::new(
        "[[api]]\nname = \"login\"\npreset = \"login\"\nper_user = [\"3/hour\"]\nknown_for = \"7d\"",
    );
    let (rules, home) = (world.engine.rules(), Request::new("alice", "login").from(ip("192.0.2.1")));
    let keys = |now_us| world.engine.counter_keys(&rules, &home, now_us).unwrap().iter().count();
    assert!(world.serves(&home, START));
    assert_eq!((world.engine.refund(&rules, &home, START), keys(START)), (Ok(true), 2));
    let week = 7 * 86_400 * SECOND;
    assert_eq!((keys(START + week - 1), keys(START + week)), (2, 3), "then it is a stranger's again");
    // Each login begins the time anew.
    let later = START + week - SECOND;
    assert!(world.serves(&home, later));
    assert_eq!((world.engine.refund(&rules, &home, later), keys(later + week - 1)), (Ok(true), 2));
}

#[test]
fn a_login_without_one_of_its_limits_has_the_others() {
    let world = World::new(
        "[[api]]\nname = \"login\"\npreset = \"login\"\nper_ip = [\"1000/hour\"]\nper_user_and_ip = []\nper_user = [\"3/hour\"]",
    );
    let users: Vec<String> = (0..100).map(|n| format!("user-{n}")).collect();
    for user in &users {
        assert_eq!(world.served(&Request::new(user, "login").from(ip("192.0.2.1")), START, 5), 3, "{user}");
    }
}

#[test]
fn a_login_that_a_host_decides_alone_makes_nobody_known() {
    let world = World::new(
        "[cluster]\nredis = \"redis://127.0.0.1:1\"\nhosts = 1\n[[api]]\nname = \"login\"\npreset = \"login\"\n\
         algorithm = \"fixed-window\"\nwithout_store = \"local\"\nper_user = [\"3/hour\"]",
    );
    let (rules, guess) = (world.engine.rules(), Request::new("alice", "login").from(ip("203.0.113.9")));
    let counters = || world.engine.counter_keys(&rules, &guess, START).unwrap();
    assert_eq!(counters().iter().count(), 3);
    let alone = rules.alone(&counters()).expect("a host that goes on alone");
    assert!(world.engine.judge(&alone, &guess, START, Mode::Take).outcome.is_served());
    assert_eq!(counters().iter().count(), 3, "it is still a stranger");
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

#[test]
fn a_leaky_bucket_as_a_queue_lets_one_through_after_the_other() {
    let world = World::new(
        "[[api]]\nname = \"api\"\nlimits = [\"10/s burst 5\"]\nalgorithm = \"leaky-bucket\"\non_limit = \"delay 1s\"",
    );
    let user = Request::new("u", "api");
    let waits: Vec<Option<u64>> = (0..7)
        .map(|_| match world.outcome(&user, START) {
            Outcome::Allowed => Some(0),
            Outcome::Delayed { wait_us } => Some(wait_us),
            _ => None,
        })
        .collect();
    let tenth = |n: u64| Some(n * SECOND / 10);
    assert_eq!(waits, [Some(0), tenth(1), tenth(2), tenth(3), tenth(4), None, None]);
}

#[test]
fn a_token_bucket_that_delays_holds_the_place_and_no_longer_than_it_may() {
    let world = World::new("[[api]]\nname = \"api\"\nlimits = [\"1/s burst 1\"]\non_limit = \"delay 2s\"");
    let user = Request::new("u", "api");
    assert_eq!(world.outcome(&user, START), Outcome::Allowed);
    assert_eq!(world.outcome(&user, START), Outcome::Delayed { wait_us: SECOND });
    assert_eq!(world.outcome(&user, START), Outcome::Delayed { wait_us: 2 * SECOND });
    assert_eq!(world.outcome(&user, START), Outcome::Refused { retry_us: Some(3 * SECOND) });
    // Whoever gives something back has a turn, and nobody knows which: the last one is somebody's.
    world.engine.refund(&world.engine.rules(), &user, START).unwrap();
    assert_eq!(world.outcome(&user, START), Outcome::Refused { retry_us: Some(3 * SECOND) });
    // When nobody waits any more it is there again.
    let later = START + 2 * SECOND;
    world.engine.refund(&world.engine.rules(), &user, later).unwrap();
    assert_eq!(world.outcome(&user, later), Outcome::Allowed);
}

#[test]
fn what_is_deprioritised_passes_and_does_not_count() {
    for algorithm in ALGORITHMS {
        let world = World::new(&format!(
            "[[api]]\nname = \"api\"\nlimits = [\"2/min\"]\nalgorithm = \"{algorithm}\"\non_limit = \"deprioritise\""
        ));
        let user = Request::new("u", "api");
        let outcomes: Vec<Outcome> = (0..6).map(|_| world.outcome(&user, START)).collect();
        assert_eq!(outcomes[..2], [Outcome::Allowed; 2], "{algorithm}");
        assert_eq!(outcomes[2..], [Outcome::Deprioritised; 4], "{algorithm}");
        // As if the four had never been asked: two of the next minute are within the limit, and what is above both is not.
        let later = START + 2 * MINUTE;
        let outcomes: Vec<Outcome> = (0..3).map(|_| world.outcome(&user, later)).collect();
        assert_eq!(outcomes, [Outcome::Allowed, Outcome::Allowed, Outcome::Deprioritised], "{algorithm}");
    }
}

#[test]
fn what_one_limit_deprioritises_is_charged_to_the_limits_that_would_refuse() {
    let world = World::new(
        "[plan.default]\nlimits = [\"4/hour fixed-window\"]\n[[api]]\nname = \"api\"\nlimits = [\"3/min\"]\non_limit = \"deprioritise\"",
    );
    let user = Request::new("u", "api");
    let outcomes: Vec<Outcome> = (0..5).map(|_| world.outcome(&user, START)).collect();
    assert_eq!(outcomes[..4], [Outcome::Allowed, Outcome::Allowed, Outcome::Allowed, Outcome::Deprioritised]);
    assert!(!outcomes[4].is_served(), "the plan has counted all four");
    // The fourth took nothing of what comes back within twenty seconds.
    let rules = world.engine.rules();
    assert!(!world.engine.peek(&rules, &user, START + 20 * SECOND).unwrap().outcome.is_served());
    let without_plan =
        World::new("[[api]]\nname = \"api\"\nlimits = [\"3/min\"]\non_limit = \"deprioritise\"");
    assert_eq!(without_plan.served(&user, START, 10), 10);
    assert_eq!(without_plan.outcome(&user, START + 20 * SECOND), Outcome::Allowed, "one has come back");
    assert_eq!(without_plan.outcome(&user, START + 20 * SECOND), Outcome::Deprioritised);
}

#[test]
fn of_several_limits_that_refuse_or_delay_the_longest_wait_is_told_whatever_their_order() {
    let third = |limits: &str, further: &str| {
        let world = World::new(&format!("[[api]]\nname = \"api\"\nlimits = [{limits}]\n{further}"));
        let user = Request::new("u", "api");
        assert_eq!(world.served(&user, START, 2), 2);
        world.ask(&user, START + SECOND / 4, |decision| {
            let violated = decision.violated.limits().count();
            (decision.outcome, decision.limit.unwrap().limit.name.clone(), violated)
        })
    };
    for [first, second] in [["2/s", "2/min"], ["2/min", "2/s"]] {
        let limits = format!("\"{first}\", \"{second}\"");
        let longest = MINUTE - SECOND / 4;
        let (outcome, name, violated) = third(&limits, "algorithm = \"fixed-window\"");
        assert_eq!(outcome, Outcome::Refused { retry_us: Some(longest) }, "{limits}");
        assert_eq!((name.as_str(), violated), ("api-min", 2), "{limits}");
        let (outcome, ..) = third(&limits, "on_limit = \"delay 60s\"");
        assert_eq!(outcome, Outcome::Delayed { wait_us: MINUTE / 2 - SECOND / 4 }, "{limits}");
    }
}

#[test]
fn keys_are_made_of_what_the_policy_says() {
    let world = World::new(
        "[[api]]\nname = \"both\"\nkey = [\"user\", \"ip\"]\nlimits = [\"1/min\"]\n[[api]]\nname = \"net\"\nkey = [\"ip\"]\nipv4_prefix = 24\nlimits = [\"1/min\"]\n[[api]]\nname = \"tenant\"\nkey = [\"tenant\"]\nlimits = [\"1/min\"]",
    );
    let both = |user, address| Request::new(user, "both").from(ip(address));
    assert!(world.serves(&both("a", "192.0.2.1"), START) && world.serves(&both("a", "192.0.2.2"), START));
    assert!(world.serves(&both("b", "192.0.2.1"), START) && !world.serves(&both("a", "192.0.2.1"), START));
    assert!(!world.serves(&both("a", "::ffff:192.0.2.1"), START), "IPv4 in IPv6 is IPv4");
    let net = |address| Request::new("", "net").from(ip(address));
    assert!(world.serves(&net("192.0.2.1"), START) && !world.serves(&net("192.0.2.200"), START));
    assert!(world.serves(&net("2001:db8::1"), START) && !world.serves(&net("2001:db8::2"), START));
    assert!(world.serves(&net("2001:db8:0:1::"), START));
    let (red, blue) = ([("tenant", "red")], [("tenant", "blue")]);
    let tenant = |parts| Request { parts, ..Request::new("", "tenant") };
    assert!(world.serves(&tenant(&red), START) && world.serves(&tenant(&blue), START));
    assert!(!world.serves(&tenant(&red), START));
}

#[test]
fn parts_of_a_key_are_not_mixed_up_wherever_one_ends() {
    let world = World::new("[[api]]\nname = \"api\"\nkey = [\"user\", \"x\"]\nlimits = [\"1/min\"]");
    let (c, bc) = ([("x", "c")], [("x", "bc")]);
    assert!(world.serves(&Request { parts: &c, ..Request::new("ab", "api") }, START));
    assert!(world.serves(&Request { parts: &bc, ..Request::new("a", "api") }, START));
}

#[test]
fn plans_and_users_have_limits_of_their_own_and_others_the_default() {
    let world = World::new(
        "[plan.gold]\n[plan.default]\nlimits = [\"3/min fixed-window\"]\n[[user]]\nname = \"acme\"\nplan = \"gold\"\n[[user]]\nname = \"vip\"\nplan = \"gold\"\n[[api]]\nname = \"api\"\nlimits = [\"10/min\"]\nplans = { gold = [\"20/min\"] }\nusers = { vip = [\"30/min\"] }",
    );
    let served = |user| world.served(&Request::new(user, "api"), START, 100);
    assert_eq!((served("vip"), served("acme"), served("nobody")), (30, 20, 3));
}

#[test]
fn a_day_of_a_calendar_begins_at_midnight_there() {
    let world = World::new(
        "[[api]]\nname = \"api\"\nlimits = [\"2/day\"]\nalgorithm = \"fixed-window\"\ntime_zone = \"Asia/Tokyo\"",
    );
    let user = Request::new("u", "api");
    let midnight = START + 15 * 3_600 * SECOND;
    assert_eq!(world.served(&user, midnight - 1, 5), 2);
    assert_eq!(world.served(&user, midnight, 5), 2);
}

#[test]
fn cost_peek_refund_and_reset() {
    let world = World::new("[[api]]\nname = \"api\"\nlimits = [\"10/min\"]\nalgorithm = \"sliding-window\"");
    let (user, rules) = (Request::new("u", "api"), world.engine.rules());
    assert!(world.serves(&user.costing(7), START));
    assert_eq!(world.engine.peek(&rules, &user.costing(3), START).unwrap().outcome, Outcome::Allowed);
    assert!(!world.serves(&user.costing(4), START), "only three are left");
    assert!(world.serves(&user.costing(3), START), "peeking took nothing");
    world.engine.refund(&rules, &user.costing(2), START).unwrap();
    assert_eq!(world.served(&user, START, 10), 2);
    world.engine.reset(&rules, &user).unwrap();
    assert_eq!(world.served(&user, START, 20), 10);
    assert_eq!(world.outcome(&user.costing(11), START), Outcome::Refused { retry_us: None }, "it never fits");
}

const ALGORITHMS: [&str; 6] = [
    "token-bucket",
    "leaky-bucket",
    "fixed-window",
    "sliding-window",
    "sliding-window-weighted",
    "sliding-log",
];

#[test]
fn there_is_more_when_the_answer_says_so_and_no_moment_before() {
    for algorithm in ALGORITHMS {
        for throttle in ["hard", "soft 20%"] {
            let world = World::new(&format!(
                "[[api]]\nname = \"api\"\nlimits = [\"10/min\"]\nalgorithm = \"{algorithm}\"\nthrottle = \"{throttle}\""
            ));
            let (user, rules) = (Request::new("u", "api"), world.engine.rules());
            let left = |now_us| {
                let at_once = |cost| world.engine.peek(&rules, &user.costing(cost), now_us).unwrap();
                (1..20).take_while(|cost| at_once(*cost).outcome.is_served()).count()
            };
            for nth in 0..15 {
                let now_us = START + 3_123_457 + nth * 1_234_567;
                let (outcome, more_us) =
                    world.ask(&user, now_us, |decision| (decision.outcome, decision.limit.unwrap().more_us));
                assert!(more_us > 0, "{algorithm} {throttle} {nth}");
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
fn what_was_charged_in_an_earlier_window_adds_nothing_to_a_later_one() {
    for algorithm in ["fixed-window", "sliding-window-weighted", "sliding-window", "sliding-log"] {
        let world = World::new(&format!(
            "[[api]]\nname = \"api\"\nlimits = [\"10/min\"]\nalgorithm = \"{algorithm}\""
        ));
        let (user, rules) = (Request::new("u", "api"), world.engine.rules());
        let counters = |now_us| world.engine.counter_keys(&rules, &user, now_us).unwrap();
        let later = START + 3 * MINUTE;
        assert!(world.serves(&user.costing(5), START));
        assert!(world.serves(&user.costing(2), later));
        assert_eq!(
            world.engine.refund(&rules, &user.costing(5), later),
            Ok(false),
            "{algorithm}: two are less"
        );
        assert!(
            !world.engine.give_back(&counters(later), &user, 3 * MINUTE, later),
            "{algorithm}: that is over"
        );
        assert_eq!(world.served(&user, later, 20), 8, "{algorithm}");
        assert!(world.engine.give_back(&counters(later), &user, 1, later + 1), "{algorithm}");
        assert_eq!(world.served(&user, later + 1, 20), 1, "{algorithm}");
    }
}

#[test]
fn a_bucket_gives_back_what_has_not_come_back_by_itself() {
    let world = World::new("[[api]]\nname = \"api\"\nlimits = [\"10/s\"]");
    let (user, rules) = (Request::new("u", "api"), world.engine.rules());
    let counters = world.engine.counter_keys(&rules, &user, START).unwrap();
    assert!(world.serves(&user.costing(10), START));
    let later = START + SECOND / 2;
    assert_eq!(world.served(&user, later, 20), 5);
    assert!(world.engine.give_back(&counters, &user.costing(10), SECOND / 2, later));
    assert_eq!(world.served(&user, later, 20), 5, "five have come back by themselves");
    assert!(!world.engine.give_back(&counters, &user.costing(10), SECOND, later), "all of them");
    assert!(!world.engine.give_back(&counters, &user.costing(11), 0, later), "more than there ever was");
}

#[test]
fn who_refunds_what_was_never_charged_gets_nothing_and_is_not_known() {
    let world = World::new(
        "[[api]]\nname = \"login\"\npreset = \"login\"\nper_user = [\"3/hour\"]\n[[api]]\nname = \"api\"\nlimits = [\"3/hour\"]",
    );
    let rules = world.engine.rules();
    let guess = Request::new("alice", "login").from(ip("203.0.113.9"));
    assert_eq!(world.engine.refund(&rules, &guess, START), Ok(false));
    let keys = || world.engine.counter_keys(&rules, &guess, START).unwrap().iter().count();
    assert_eq!(keys(), 3, "a stranger");
    assert!(world.serves(&guess, START));
    assert_eq!(world.engine.refund(&rules, &guess, START), Ok(true));
    assert_eq!(keys(), 2, "known");
    let user = Request::new("u", "api");
    assert_eq!(world.engine.refund(&rules, &user, START), Ok(false));
    assert_eq!(world.served(&user, START, 10), 3);
}

#[test]
fn a_change_of_numbers_keeps_what_was_counted() {
    let policy = |limit: &str| {
        let text = format!(
            "[source]\nlimits = [\"1/s\"]\n[[api]]\nname = \"api\"\nlimits = [\"{limit}\"]\nalgorithm = \"fixed-window\""
        );
        config::parse(&text, "test").unwrap().policy
    };
    let world = World { engine: Engine::new(&policy("10/min"), START) };
    let user = Request::new("u", "api");
    assert_eq!(world.served(&user, START, 8), 8);
    world.engine.follow(&policy("9/min"), START);
    assert_eq!(world.served(&user, START, 8), 1);
}

#[test]
fn a_handle_decides_by_the_rules_that_are_in_force_now() {
    let policy = |limit: &str| {
        let text = format!("[source]\nlimits = [\"1/s\"]\n[[api]]\nname = \"api\"\nlimits = [\"{limit}\"]");
        config::parse(&text, "test").unwrap().policy
    };
    let engine = Engine::new(&policy("10/min"), START);
    let (mut handle, user) = (engine.handle(), Request::new("u", "api"));
    let left = |decision: Decision<'_>| decision.limit.unwrap().remaining;
    assert_eq!(left(handle.decide(&user, START).unwrap()), 9);
    engine.follow(&policy("5/min"), START);
    assert_eq!(left(handle.decide(&user, START).unwrap()), 3, "five, one of which was taken before");
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

#[test]
fn parts_that_the_policy_names_are_counted_apart_and_others_are_not() {
    let world = World::new("[[api]]\nname = \"api\"\nkey = [\"user\", \"tenant\"]\nlimits = [\"2/min\"]\n");
    for (parts, served) in [
        ([("tenant", "a"), ("colour", "red")], 2),
        ([("tenant", "b"), ("colour", "red")], 2),
        ([("tenant", "a"), ("colour", "blue")], 0),
    ] {
        let request = Request::new("u", "api").with_parts(&parts);
        assert_eq!(world.served(&request, START, 100), served, "{parts:?}");
    }
}

#[test]
fn those_who_give_no_name_are_one_and_on_the_default_plan_where_names_count() {
    let world = World::new(
        "[plan.default]\nlimits = [\"3/min fixed-window\"]\n[[api]]\nname = \"api\"\nlimits = []\n[[api]]\nname = \"net\"\nkey = [\"ip\"]\nlimits = [\"9/min\"]\n\
         [[api]]\nname = \"tenant\"\nkey = [\"user\", \"tenant\"]\nlimits = [\"2/min\"]\n",
    );
    let nobody = |api| Request::new("", api).from(ip("192.0.2.1"));
    assert_eq!(world.served(&nobody("net"), START, 100), 9, "nobody is asked for a name here");
    let empty = [("tenant", "")];
    assert_eq!(world.served(&nobody("tenant"), START, 100), 2);
    assert_eq!(world.served(&nobody("tenant").with_parts(&empty), START, 100), 0, "empty is none");
    assert_eq!(world.served(&nobody("api"), START, 100), 1, "of three over all APIs that count names");
    let (long, longer) = ("x".repeat(100_000), "x".repeat(100_001));
    assert_eq!(world.served(&Request::new(&long, "api"), START, 100), 3);
    assert_eq!(world.served(&Request::new(&longer, "api"), START, 100), 3);
}

#[test]
fn many_threads_together_get_no_more_than_the_limit() {
    let world = World::new(
        "[plan.default]\nlimits = [\"5000/hour\"]\n[[api]]\nname = \"api\"\nlimits = [\"3000/hour\"]\nalgorithm = \"sliding-window\"",
    );
    let served: usize = std::thread::scope(|scope| {
        let ask = || world.served(&Request::new("u", "api"), START, 2_000);
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(served, 3_000);
}
