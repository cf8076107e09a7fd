//! What leases and the answers of the store come to, for requests that hosts count together.

use super::*;
use crate::{
    config,
    requests::{Engine, Priority, renewal},
    store::exchange::Entry,
};

const PACKETS: &str = "[source]\nlimits = [\"1/s\"]\n[cluster]\nredis = \"redis://127.0.0.1:1\"\n";

/// Returns what the store would be asked about a request for the API of this text.
fn asked(api: &str, request: &Request<'_>, leases: &RequestLeases) -> Vec<Ask> {
    let text = format!("{PACKETS}{api}");
    let engine = Engine::new(&config::parse(&text, "test").unwrap().policy, 0);
    let rules = engine.rules();
    let counters = engine.counter_keys(&rules, request, 0).unwrap();
    let mut all = inquiries(&counters, request, leases, "c", true, ahead(&counters, request), 0);
    all.extend(refunds(&counters, 0, request, "c", true, 0));
    all.into_iter().map(|inquiry| inquiry.ask).collect()
}

/// Keys that there is room for: so many that no two keys of a test share the last place of a shard.
const ROOM: u64 = 10_000;

#[test]
fn a_refund_has_the_patience_of_those_who_still_wait() {
    let api = "[[api]]\nname = \"a\"\nlimits = [\"640/s\"]\non_limit = \"delay 60s\"\n";
    let asked = asked(api, &Request::new("u", "a"), &RequestLeases::new(ROOM));
    assert_eq!(asked.iter().map(|ask| ask.patience_us).collect::<Vec<_>>(), [60_000_000; 2]);
    assert_eq!(asked[0].lease.sequence, 0, "who waits for a turn is in the store's queue");
}

#[test]
fn nothing_is_held_of_a_key_whose_requests_the_store_decides_because_of_another_key() {
    let plan = "[plan.default]\nlimits = [\"15/s\"]\n";
    let api = "[[api]]\nname = \"a\"\nlimits = [\"640/s\"]\n";
    let wanted = |text: &str| -> Vec<u64> {
        let asked = asked(text, &Request::new("u", "a"), &RequestLeases::new(ROOM));
        asked.iter().filter(|ask| ask.refund == 0).map(|ask| ask.lease.wanted).collect()
    };
    assert_eq!(wanted(api), [10]);
    assert_eq!(wanted(&format!("{plan}{api}")), [0, 0]);
}

#[test]
fn of_several_keys_that_the_store_refuses_the_longest_wait_is_told_at_once_and_again() {
    let text = format!(
        "{PACKETS}[plan.default]\nlimits = [\"640/hour\"]\n[[api]]\nname = \"a\"\nlimits = [\"6400/day\"]\n"
    );
    let engine = Engine::new(&config::parse(&text, "test").unwrap().policy, 0);
    let (rules, request) = (engine.rules(), Request::new("u", "a"));
    let counters = engine.counter_keys(&rules, &request, 0).unwrap();
    assert_eq!(counters.iter().count(), 2);
    for waits_s in [[5, 60], [60, 5]] {
        let leases = RequestLeases::new(ROOM);
        let asked = inquiries(&counters, &request, &leases, "c", true, Taking::Once, 0);
        let told = waits_s.map(|wait_s| Told {
            spent: false,
            wait_us: wait_s * 1_000_000,
            granted: 0,
            free: 0,
            nearest: 0,
            more_us: 1,
            violated: 1,
            above: false,
            holds: 0,
            heard: 0,
        });
        let longest = Outcome::Refused { retry_us: Some(60_000_000) };
        let SharedVerdict { decision, is_doubtful } = verdict(&counters, &asked, &told, &leases, true, 0);
        assert_eq!((decision.outcome, is_doubtful), (longest, false), "{waits_s:?}");
        let waits = waits_s.iter().position(|wait_s| *wait_s == 60).unwrap();
        let allowance = counters.iter().nth(waits).unwrap().allowance;
        assert_eq!(decision.limit.unwrap().allowance.id, allowance.id, "{waits_s:?}");
        assert_eq!(decision.violated.limits().count(), 2);
        // The store is not asked again for a second.
        let Step::Decided { decision, .. } = step(&counters, &request, &leases, 1) else { panic!("asks") };
        let a_moment_less = Outcome::Refused { retry_us: Some(59_999_999) };
        assert_eq!(decision.outcome, a_moment_less, "{waits_s:?}");
        assert_eq!(decision.limit.unwrap().allowance.id, allowance.id, "{waits_s:?}");
    }
}

const SECOND: u64 = 1_000_000;

/// The answer of the store about a key that has enough.
fn yes(free: u64) -> Told {
    Told {
        spent: true,
        wait_us: 0,
        granted: 0,
        free,
        nearest: 0,
        more_us: 7,
        violated: 0,
        above: false,
        holds: 0,
        heard: 0,
    }
}

fn no(wait_us: u64) -> Told {
    Told { spent: false, wait_us, violated: 1, ..yes(0) }
}

/// An engine of a plan and an API. Each text is the rest of its table.
fn engine(plan: &str, api: &str) -> Engine {
    let text = format!("{PACKETS}[plan.default]\n{plan}\n[[api]]\nname = \"a\"\n{api}\n");
    Engine::new(&config::parse(&text, "test").unwrap_or_else(|error| panic!("{error}")).policy, 0)
}

/// Asks the store ahead, and passes on its answers about the API and about the plan.
fn answered<'r>(
    counters: &CounterKeys<'r>,
    request: &Request<'_>,
    leases: &RequestLeases,
    told: [Told; 2],
    now_us: u64,
) -> SharedVerdict<'r> {
    let asked = inquiries(counters, request, leases, "c", true, Taking::Ahead, now_us);
    assert_eq!(asked.len(), 2);
    verdict(counters, &asked, &told, leases, true, now_us)
}

#[test]
fn a_request_is_spent_from_every_lease_or_from_none() {
    let engine = engine("limits = [\"640/hour\"]", "limits = [\"6400/hour\"]");
    let (rules, request) = (engine.rules(), Request::new("u", "a").costing(3));
    let counters = engine.counter_keys(&rules, &request, 0).unwrap();
    let leases = RequestLeases::new(ROOM);
    let held = || -> Vec<(u64, u64)> {
        let left = |counter: &CounterKey<'_>| leases.with_known(counter.hash, |lease| lease.left(0));
        counters.iter().map(|counter| left(counter).map_or((0, 0), |left| (left.held, left.used))).collect()
    };
    assert!(matches!(step(&counters, &request, &leases, 0), Step::Ask), "nothing is held");
    // A hundred units of the API are granted, and ten of the plan.
    let granted = [100, 10].map(|granted| Told { granted, ..yes(500) });
    let first = answered(&counters, &request, &leases, granted, 0);
    assert_eq!(first.decision.outcome, Outcome::Allowed);
    assert_eq!(held(), [(100, 0), (10, 0)]);
    let spend = || match step(&counters, &request, &leases, 0) {
        Step::Decided { decision, due } => (decision.outcome, decision.limit.unwrap(), due),
        Step::Ask => panic!("asks"),
    };
    let (outcome, near, due) = spend();
    assert_eq!((outcome, due, held()), (Outcome::Allowed, false, vec![(97, 3), (7, 3)]));
    assert_eq!(
        (near.allowance.name.as_str(), near.remaining),
        ("default", 507),
        "the one that has less left"
    );
    assert!(!spend().2, "four of ten are left");
    // Less than a quarter of the plan's units is left now: the plan's lease is renewed, and the API's is not.
    assert!(spend().2);
    let renewed = renewal::due(&counters, &request, &leases, "c", true, 0);
    assert_eq!(renewed.iter().map(|one| one.inquiry.ask.lease.used).collect::<Vec<_>>(), [9]);
    let again = || renewal::due(&counters, &request, &leases, "c", true, 0);
    assert!(again().is_empty(), "one at a time");
    renewed[0].failed(&leases);
    assert_eq!(again()[0].inquiry.ask.lease, renewed[0].inquiry.ask.lease, "it is said again as it was");
    // One unit of the plan is not enough, and the lease of the API stays as it was.
    assert!(matches!(step(&counters, &request, &leases, 0), Step::Ask));
    assert_eq!(held(), [(91, 9), (1, 9)]);
}

#[test]
fn what_the_store_says_of_every_key_comes_to_one_outcome() {
    let (allowed, in_margin) = (Outcome::Allowed, Outcome::InMargin);
    let (refuse, delay, later) = ("", "on_limit = \"delay 9s\"", "on_limit = \"deprioritise\"");
    let above = Told { above: true, ..yes(5) };
    let waits = |wait_s: u64| Told { wait_us: wait_s * SECOND, ..yes(5) };
    for (on_limit, told, outcome) in [
        (refuse, [yes(5), yes(6)], allowed),
        (refuse, [above, yes(5)], in_margin),
        (refuse, [yes(5), above], in_margin),
        (refuse, [waits(3), yes(5)], allowed),
        (refuse, [no(NEVER_US), no(4)], Outcome::Refused { retry_us: None }),
        (delay, [waits(3), waits(9)], Outcome::Delayed { wait_us: 3 * SECOND }),
        (delay, [yes(5), above], in_margin),
        (delay, [above, yes(5)], allowed),
        (delay, [no(9), yes(5)], Outcome::Refused { retry_us: Some(9) }),
        (later, [no(4), yes(5)], Outcome::Deprioritised),
        (later, [no(4), above], Outcome::Deprioritised),
        (later, [no(9), no(4)], Outcome::Refused { retry_us: Some(4) }),
    ] {
        let engine = engine("limits = [\"640/hour\"]", &format!("limits = [\"640/hour\"]\n{on_limit}"));
        let (rules, request) = (engine.rules(), Request::new("u", "a"));
        let counters = engine.counter_keys(&rules, &request, 0).unwrap();
        let verdict = answered(&counters, &request, &RequestLeases::new(ROOM), told, 0);
        assert_eq!(verdict.decision.outcome, outcome, "{on_limit} {told:?}");
    }
}

#[test]
fn of_several_turns_the_last_one_is_waited_for() {
    let login = "preset = \"login\"\nper_ip = [\"640/hour\"]\nper_user = [\"640/hour\"]\nper_user_and_ip = []\non_limit = \"delay 9s\"";
    let engine = engine("limits = []", login);
    let (rules, request) = (engine.rules(), Request::new("u", "a").from("192.0.2.1".parse().unwrap()));
    let counters = engine.counter_keys(&rules, &request, 0).unwrap();
    for waits_s in [[2, 3], [3, 2]] {
        let told = waits_s.map(|wait_s| Told { wait_us: wait_s * SECOND, ..yes(5) });
        let verdict = answered(&counters, &request, &RequestLeases::new(ROOM), told, 0);
        assert_eq!(verdict.decision.outcome, Outcome::Delayed { wait_us: 3 * SECOND }, "{waits_s:?}");
    }
}

#[test]
fn a_refund_is_of_what_was_charged() {
    let engine = engine("limits = [\"640/hour\"]", "limits = [\"640/hour\"]\non_limit = \"delay 9s\"");
    let (rules, request) = (engine.rules(), Request::new("u", "a").costing(3));
    let counters = engine.counter_keys(&rules, &request, 0).unwrap();
    for taking in [Taking::Once, Taking::Nothing] {
        let asked = inquiries(&counters, &request, &RequestLeases::new(ROOM), "c", true, taking, 0);
        let is_peek = taking == Taking::Nothing;
        assert!(asked.iter().all(|asked| asked.ask.spend == 3 && asked.ask.peek == is_peek));
        let back = |one: &Inquiry| (refund(one).key == one.key, refund(one).ask);
        let of = |patience_us| (true, Ask { refund: 3, patience_us, ..Ask::default() });
        assert_eq!(asked.iter().map(back).collect::<Vec<_>>(), [of(9 * SECOND), of(0)]);
    }
}

/// The order in which keys of a plan and of an API are charged: names of each step.
fn charged_in_order(engine: &Engine, request: &Request<'_>, leases: &RequestLeases) -> Vec<Vec<String>> {
    let rules = engine.rules();
    let counters = engine.counter_keys(&rules, request, 0).unwrap();
    let name = |counter: &CounterKey<'_>| counter.allowance.name.clone();
    steps(&counters, request, leases, 1).iter().map(|step| step.iter().map(name).collect()).collect()
}

#[test]
fn keys_that_may_refuse_are_charged_first() {
    let request = Request::new("u", "a");
    for (plan, api, order) in [
        ("40/hour", "20/hour", vec![vec!["a"], vec!["default"]]),
        ("20/hour", "40/hour", vec![vec!["default"], vec!["a"]]),
        ("640/hour", "20/hour", vec![vec!["a"], vec!["default"]]),
        ("640/hour", "6400/hour", vec![vec!["a", "default"]]),
    ] {
        let engine = engine(&format!("limits = [\"{plan}\"]"), &format!("limits = [\"{api}\"]"));
        assert_eq!(charged_in_order(&engine, &request, &RequestLeases::new(ROOM)), order, "{plan} {api}");
    }
    let low = engine("limits = [\"40/hour\"]", "limits = [\"20/hour\"]\non_limit = \"deprioritise\"");
    let order = charged_in_order(&low, &request, &RequestLeases::new(ROOM));
    assert_eq!(order, [["default"], ["a"]], "what refuses nothing is last");
}

#[test]
fn the_key_with_least_left_is_charged_first() {
    let request = Request::new("u", "a");
    for (plan, api, of_api, of_plan, order) in [
        ("40/hour", "20/hour", 9, 8, vec![vec!["default"], vec!["a"]]),
        ("40/hour", "20/hour", 8, 9, vec![vec!["a"], vec!["default"]]),
        ("40/hour", "20/hour", 9, 9, vec![vec!["a"], vec!["default"]]),
        ("6400/hour", "640/hour", 320, 3_200, vec![vec!["a", "default"]]),
        ("6400/hour", "640/hour", 320, 3_199, vec![vec!["default"], vec!["a"]]),
    ] {
        let engine = engine(&format!("limits = [\"{plan}\"]"), &format!("limits = [\"{api}\"]"));
        let (rules, leases) = (engine.rules(), RequestLeases::new(ROOM));
        let counters = engine.counter_keys(&rules, &request, 0).unwrap();
        let asked = inquiries(&counters, &request, &leases, "c", true, Taking::Nothing, 1);
        verdict(&counters, &asked, &[yes(of_api), yes(of_plan)], &leases, false, 1);
        assert_eq!(charged_in_order(&engine, &request, &leases), order, "{of_api} and {of_plan}");
    }
}

#[test]
fn a_first_long_refusal_is_not_remembered() {
    let engine = engine("limits = [\"640/hour\"]", "limits = [\"640/hour\"]");
    let (rules, request) = (engine.rules(), Request::new("u", "a"));
    let counters = engine.counter_keys(&rules, &request, 0).unwrap();
    let leases = RequestLeases::new(ROOM);
    let told = |wait_us, is_final, now_us| {
        let asked = inquiries(&counters, &request, &leases, "c", true, Taking::Nothing, now_us);
        let told = verdict(&counters, &asked, &[no(wait_us), yes(9)], &leases, is_final, now_us);
        let is_remembered = matches!(step(&counters, &request, &leases, now_us), Step::Decided { .. });
        (told.is_doubtful, is_remembered)
    };
    assert_eq!(told(90 * SECOND, false, 1), (true, false));
    assert_eq!(told(90 * SECOND, true, 2), (false, true), "it was looked at again");
    assert_eq!(told(80 * SECOND, false, 10 * SECOND), (false, true), "it still holds");
    assert_eq!(told(90 * SECOND, false, 95 * SECOND), (true, false), "the refusal before has ended");
    hope(&counters, &leases);
    assert_eq!(told(90 * SECOND, false, 96 * SECOND), (true, false), "something was given back");
    assert_eq!(told(SECOND, false, 97 * SECOND), (false, true), "it ends soon");
    assert_eq!(told(NEVER_US, false, 99 * SECOND), (false, true), "it never fits");
}

#[test]
fn a_refusal_says_what_is_left_and_when_there_is_more_of_what_refused() {
    let engine = engine("limits = [\"640/hour\"]", "limits = [\"6400/hour\"]");
    let (rules, request) = (engine.rules(), Request::new("u", "a").costing(9));
    let counters = engine.counter_keys(&rules, &request, 0).unwrap();
    let leases = RequestLeases::new(ROOM);
    // The next unit comes after seven microseconds: before what is asked for, or it would fit then.
    let refused = Told { free: 3, more_us: 7, ..no(50) };
    let enough = Told { granted: 100, ..yes(3_000) };
    let told = answered(&counters, &request, &leases, [enough, refused], 0).decision;
    let near = told.limit.unwrap();
    assert_eq!((near.allowance.name.as_str(), near.remaining, near.more_us), ("default", 3, 7));
    let soon = Told { more_us: 99, ..refused };
    let told = answered(&counters, &request, &RequestLeases::new(ROOM), [yes(3_000), soon], 0).decision;
    assert_eq!(told.limit.unwrap().more_us, 50, "no later than what is asked for");
    assert_eq!(told.violated.limits().map(|limit| limit.name.as_str()).collect::<Vec<_>>(), ["default"]);
    // The next refusal, 20 microseconds later, comes from memory.
    let Step::Decided { decision, due } = step(&counters, &request, &leases, 20) else { panic!("asks") };
    assert_eq!((decision.outcome, due), (Outcome::Refused { retry_us: Some(30) }, false));
    let near = decision.limit.unwrap();
    assert_eq!((near.allowance.name.as_str(), near.remaining, near.more_us), ("default", 3, 30));
    // A request that needs less may fit: the store is asked.
    let less = Request::new("u", "a").costing(8);
    assert!(matches!(step(&counters, &less, &leases, 20), Step::Ask));
    hope(&counters, &leases);
    assert!(matches!(step(&counters, &request, &leases, 20), Step::Ask), "something has been given back");
}

#[test]
fn who_is_served_after_others_is_not_refused_from_memory() {
    let engine = engine("limits = [\"640/hour\"]", "limits = [\"640/hour\"]\non_limit = \"deprioritise\"");
    let (rules, request) = (engine.rules(), Request::new("u", "a"));
    let counters = engine.counter_keys(&rules, &request, 0).unwrap();
    let leases = RequestLeases::new(ROOM);
    answered(&counters, &request, &leases, [no(50), yes(5)], 0);
    assert!(matches!(step(&counters, &request, &leases, 1), Step::Ask));
    answered(&counters, &request, &leases, [no(50), no(9)], 1);
    assert!(matches!(step(&counters, &request, &leases, 2), Step::Ask), "the first in line does not refuse");
    let decision = negative_entry(&counters, &request, &leases, 2);
    assert_eq!(decision.outcome, Outcome::Refused { retry_us: Some(8) }, "of the one that refuses");
}

#[test]
fn what_comes_back_to_a_lease_can_be_spent_again_and_is_not_told_the_store() {
    let engine = engine("limits = [\"640/hour\"]", "limits = [\"640/hour\"]\nsharing = \"strict\"");
    let (rules, request) = (engine.rules(), Request::new("u", "a").costing(2));
    let counters = engine.counter_keys(&rules, &request, 0).unwrap();
    let leases = RequestLeases::new(ROOM);
    let plan = counters.iter().nth(1).unwrap();
    // The plan has a lease although the API is for the store: from requests for another API.
    leases.with(plan.hash, 0, |lease| {
        let said = lease.ask(2, 640, 0);
        lease.answer(&said, &Told { granted: 10, ..yes(600) }, 0);
        assert!(lease.spend(2, 0));
    });
    let left = || leases.with_known(plan.hash, |lease| lease.left(0).held).unwrap();
    let settled = unspend(&counters, &request, &leases, 0);
    assert_eq!((settled, left()), (bit(1), 10));
    let told = |settled| -> Vec<String> {
        refunds(&counters, settled, &request, "c", true, 5).into_iter().map(|one| one.key).collect()
    };
    let keys = store_keys(&counters, &request, "c");
    assert_eq!(told(settled), keys[..1], "the lease is settled");
    assert_eq!(told(0), keys);
    assert!(keys[0].starts_with("c:") && keys[0].contains("{u}:api:"), "{keys:?}");
    respend(&counters, settled, &request, &leases, 0);
    assert_eq!(left(), 8);
    respend(&counters, bit(0), &request, &leases, 0);
    assert_eq!(left(), 8, "only what was settled");
    // An entry that the store has not answered is sent again.
    let again = |leases: &RequestLeases| {
        leases.with_known(plan.hash, |lease| lease.ask(100, 640, 0).sequence).unwrap()
    };
    assert_eq!((again(&leases), again(&leases)), (2, 0), "under way");
    let ask = Ask { lease: Entry { sequence: 2, used: 2, held: 8, wanted: 20 }, ..Ask::default() };
    let asked = [inquiry(plan, &request, "c", true, Ask::default()), inquiry(plan, &request, "c", true, ask)];
    failed(&counters, &asked, &leases);
    assert_eq!(again(&leases), 2);
}

#[test]
fn leases_are_for_requests_that_no_other_can_be_in_the_way_of() {
    for (api, request, leased) in [
        ("limits = [\"64/hour\"]", Request::new("u", "a"), true),
        ("limits = [\"63/hour\"]", Request::new("u", "a"), false),
        ("limits = [\"640/hour\"]\nsharing = \"strict\"", Request::new("u", "a"), false),
        ("limits = [\"640/hour\"]\nsharing = \"local\"", Request::new("u", "a"), false),
        ("limits = [\"640/hour\"]\non_limit = \"delay 1s\"", Request::new("u", "a"), false),
        ("limits = [\"640/hour\"]\non_limit = \"deprioritise\"", Request::new("u", "a"), true),
        ("limits = [\"640/hour\"]\nreserved = { critical = \"20%\" }", Request::new("u", "a"), false),
        (
            "limits = [\"640/hour\"]\nreserved = { critical = \"20%\" }",
            Request::new("u", "a").with_priority(Priority::Critical),
            true,
        ),
        ("limits = [\"640/hour\"]\nthrottle = \"soft 10%\"", Request::new("u", "a"), false),
        ("limits = [\"700/hour fixed-window\"]\nthrottle = \"soft 14%\"", Request::new("u", "a"), true),
        ("limits = [\"700/hour fixed-window\"]\nthrottle = \"soft 15%\"", Request::new("u", "a"), false),
    ] {
        let engine = engine("limits = []", api);
        let rules = engine.rules();
        let counters = engine.counter_keys(&rules, &request, 0).unwrap();
        let counter = counters.iter().next().unwrap();
        assert_eq!(may_lease(counter.allowance, &request), leased, "{api}");
        assert_eq!(is_shared(counter), !api.contains("local"), "{api}");
    }
}

#[test]
fn a_request_fits_some_time_if_every_limit_has_room_for_it_and_for_what_is_reserved() {
    let api = "limits = [\"100/min fixed-window\", \"500/hour fixed-window\"]\nthrottle = \"elastic 10%\"\nreserved = { critical = \"20%\" }";
    let engine = engine("limits = []", api);
    let (rules, one) = (engine.rules(), Request::new("u", "a"));
    let counters = engine.counter_keys(&rules, &one, 0).unwrap();
    let allowance = counters.iter().next().unwrap().allowance;
    let critical = one.with_priority(Priority::Critical);
    for (request, headroom, is_ever) in [
        (critical.costing(100), false, true),
        (critical.costing(101), false, false),
        (critical.costing(110), true, true),
        (critical.costing(111), true, false),
        (one.costing(80), false, true),
        (one.costing(81), false, false),
    ] {
        assert_eq!(fits(allowance, &request, headroom), is_ever, "{request:?} {headroom}");
    }
    // The store counts up to the margin, and holds it back while there is no headroom.
    let counted = |headroom| {
        let asked = inquiries(&counters, &one, &RequestLeases::new(1), "c", headroom, Taking::Once, 0);
        let numbers = |one: &CountedLimit| (one.meter.capacity(), one.margin, one.held_back, one.queue);
        (asked[0].limits.iter().map(numbers).collect::<Vec<_>>(), asked[0].ask.reserved)
    };
    assert_eq!(counted(true), (vec![(110, 10, 0, false), (550, 50, 0, false)], 20));
    assert_eq!(counted(false), (vec![(110, 0, 10, false), (550, 0, 50, false)], 20));
}

#[test]
fn what_is_left_is_what_the_store_had_and_what_is_held_and_never_more_than_there_is() {
    let engine = engine("limits = []", "limits = [\"3600/hour\", \"100/min fixed-window\"]");
    let (rules, request) = (engine.rules(), Request::new("u", "a"));
    let counters = engine.counter_keys(&rules, &request, 0).unwrap();
    let allowance = counters.iter().next().unwrap().allowance;
    let of = |left: Left| {
        let near = nearest(allowance, &left, 10 * SECOND).unwrap();
        (near.limit.quota, near.remaining, near.reset_us, near.more_us)
    };
    let left = Left { held: 50, used: 20, free: 100, told_us: 10 * SECOND, nearest: 0 };
    assert_eq!(of(left), (3_600, 150, 3_450 * SECOND, SECOND));
    // Ten units have come since the store answered.
    assert_eq!(of(Left { told_us: 0, ..left }), (3_600, 160, 3_440 * SECOND, SECOND));
    // Units that are held or were spent are not free at the store, whatever it answered.
    assert_eq!(of(Left { free: 3_600, ..left }), (3_600, 3_580, 20 * SECOND, SECOND));
    assert_eq!(of(Left { free: 3_600, held: 5_000, used: 0, ..left }), (3_600, 3_600, 0, 0));
    assert_eq!(of(Left { nearest: 1, held: 0, used: 0, ..left }), (100, 100, 0, 0));
    assert_eq!(
        of(Left { nearest: 1, held: 0, used: 0, free: 30, ..left }),
        (100, 30, 50 * SECOND, 50 * SECOND)
    );
    assert_eq!(of(Left { nearest: 9, ..left }).0, 3_600, "a limit that is not there any more");
}
