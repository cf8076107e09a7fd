//! What limits keep when the list that they are in changes.

use crate::{
    config,
    policy::Policy,
    requests::{Engine, JudgeMode, Outcome, Request},
};

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
/// The beginning of a day.
const START: u64 = 20_718 * 86_400 * SECOND;

fn policy(text: &str) -> Policy {
    let text = format!("[source]\nlimits = [\"1000 packets/s\"]\n{text}");
    config::parse(&text, "test").unwrap_or_else(|error| panic!("{error}")).policy
}

fn api(limits: &[&str]) -> String {
    format!("[[api]]\nname = \"api\"\nlimits = {limits:?}\n")
}

/// How many of fifteen requests are served under each of these policies, one after the other.
fn served(policies: &[String]) -> Vec<usize> {
    let engine = Engine::new(&policy(&policies[0]), START);
    let user = Request::new("u", "api");
    let served = policies.iter().map(|text| {
        engine.follow(&policy(text), START);
        (0..15).filter(|_| serves(&engine, &user, START)).count()
    });
    served.collect()
}

fn serves(engine: &Engine, request: &Request<'_>, now_us: u64) -> bool {
    engine.decide(&engine.rules(), request, now_us).unwrap().outcome.is_served()
}

#[test]
fn a_limit_keeps_what_it_counted_when_others_come_go_and_move() {
    for algorithm in ALGORITHMS {
        let (hour, day) = (format!("10/hour{algorithm}"), format!("1000/day{algorithm}"));
        let lists: [&[&str]; 6] =
            [&[&hour], &[&hour, "12/min"], &["12/min", &hour], &[&hour], &[&day, &hour, "900/min"], &[&hour]];
        let lists: Vec<String> = lists.iter().map(|limits| api(limits)).collect();
        assert_eq!(served(&lists), [10, 0, 0, 0, 0, 0], "{algorithm}");
    }
}

const ALGORITHMS: [&str; 6] =
    ["", " fixed-window", " sliding-window", " sliding-window-weighted", " sliding-log", " leaky-bucket"];

#[test]
fn another_algorithm_hands_out_nothing_again() {
    for rotated in 0..ALGORITHMS.len() {
        let mut algorithms = ALGORITHMS;
        algorithms.rotate_left(rotated);
        for (used, left) in [(15, 0), (4, 6)] {
            let mut now_us = START + 30 * 60 * SECOND;
            let of = |algorithm: &str| policy(&api(&["900/min", &format!("10/hour{algorithm}")]));
            let engine = Engine::new(&of(algorithms[0]), now_us);
            let user = Request::new("u", "api");
            let served =
                |requests: usize, now_us| (0..requests).filter(|_| serves(&engine, &user, now_us)).count();
            let mut admitted = served(used, now_us);
            for algorithm in algorithms.iter().chain(&algorithms) {
                engine.follow(&of(algorithm), now_us);
                assert_eq!(peeked(&engine, &user, now_us), left, "{algorithm} of {algorithms:?}");
                // A bucket gives a unit in six minutes.
                now_us += SECOND;
            }
            admitted += served(15, now_us);
            assert_eq!(admitted, 10, "{algorithms:?}");
            now_us += 2 * HOUR;
            assert_eq!(served(15, now_us), 10, "{algorithms:?}: all of it comes back");
        }
    }
}

#[test]
fn another_algorithm_there_and_back_hands_out_nothing() {
    for other in ALGORITHMS {
        for algorithm in ALGORITHMS.iter().filter(|algorithm| **algorithm != other) {
            let lists = [12, 3, 12].map(|amount| {
                api(&[&format!("{amount}/hour{}", if amount == 3 { other } else { *algorithm })])
            });
            let [large, small, again] = served(&lists)[..] else { unreachable!("three policies") };
            assert_eq!((large, small), (12, 0), "{algorithm} and{other}");
            assert_eq!(again, 0, "{algorithm} and{other}");
        }
    }
}

/// How many requests a user has left.
fn peeked(engine: &Engine, request: &Request<'_>, now_us: u64) -> u64 {
    let rules = engine.rules();
    engine.peek(&rules, request, now_us).unwrap().limit.unwrap().remaining
}

#[test]
fn a_limit_that_was_away_goes_on_where_it_was() {
    assert_eq!(served(&[api(&["10/hour"]), api(&["5/min"]), api(&["10/hour"])]), [10, 5, 0]);
    assert_eq!(served(&[api(&["10/hour"]), api(&[]), api(&["10/hour"])]), [10, 15, 0]);
    let (both, other) = (api(&["10/hour", "3/min"]), api(&["3/min"]));
    assert_eq!(served(&[both.clone(), other, both]), [3, 0, 0], "three of ten are used, and all of three");
    let gone = "[[api]]\nname = \"other\"\nlimits = []\n[[api]]\nname = \"*\"\nlimits = []\n".to_owned();
    let lists = [api(&["10/hour"]), api(&["10/hour", "12/min"]), gone, api(&["10/hour", "12/min"])];
    assert_eq!(served(&lists), [10, 0, 15, 0], "an API that comes back");
}

#[test]
fn of_several_limits_with_one_window_each_keeps_its_own() {
    let (small, large) = ("4/hour burst 4", "9/hour burst 9");
    assert_eq!(served(&[api(&[small, large]), api(&[large])]), [4, 5]);
    assert_eq!(served(&[api(&[small]), api(&[large, small]), api(&[large])]), [4, 0, 9]);
}

#[test]
fn a_margin_that_comes_or_goes_changes_nothing_of_what_was_counted() {
    for algorithm in ["", " fixed-window", " sliding-window", " sliding-window-weighted", " sliding-log"] {
        let (hard, soft) = (format!("10/hour{algorithm}"), format!("10/hour{algorithm} soft 10%"));
        let lists = [&hard, &soft, &hard].map(|limit| api(&[limit]));
        assert_eq!(served(&lists), [10, 1, 0], "{algorithm}");
    }
    let lists = ["10/hour soft 10%", "20/hour soft 10%"].map(|limit| api(&[limit, "1000/day"]));
    assert_eq!(served(&lists), [11, 11]);
}

#[test]
fn another_number_of_a_log_forgets_nothing_of_what_lies_in_its_window() {
    let log = |amount: u32| format!("{amount}/hour sliding-log");
    let of = |amounts: &[u32]| amounts.iter().map(|amount| api(&[&log(*amount)])).collect::<Vec<_>>();
    assert_eq!(served(&of(&[8, 12, 6, 13])), [8, 4, 0, 1]);
    assert_eq!(served(&of(&[12, 3, 12, 3, 2, 1, 12, 1, 13])), [12, 0, 0, 0, 0, 0, 0, 0, 1]);
    let lists = [&log(12), &log(3), &log(12)].map(|limit| api(&["900/min", limit, "90/day sliding-log"]));
    assert_eq!(served(&lists), [12, 0, 0], "among others");
    let soft = |amount: u32| api(&[&format!("{amount}/hour sliding-log soft 50%")]);
    let lists = [soft(8), api(&[&log(8)]), soft(8), soft(4), api(&[&log(4)]), soft(8), api(&[&log(13)])];
    assert_eq!(served(&lists), [12, 0, 0, 0, 0, 0, 1], "margins");
    let away = [api(&[&log(12)]), api(&["14/min"]), api(&[&log(3)]), api(&[&log(12)])];
    assert_eq!(served(&away), [12, 14, 0, 0], "a limit that was away");
    let one_by_one: Vec<u32> =
        std::iter::once(14).chain((1..14).rev()).chain((1..14).rev()).chain([14]).collect();
    let admitted = served(&of(&one_by_one));
    assert_eq!((admitted[0], admitted.iter().sum::<usize>()), (14, 14), "{admitted:?}");
}

#[test]
fn logs_of_users_logins_and_priorities_forget_nothing_with_another_number() {
    let login = |amount: u32| {
        format!(
            "[[api]]\nname = \"api\"\npreset = \"login\"\nper_ip = [\"{amount}/hour sliding-log\"]\n\
             per_user_and_ip = [\"99/hour\"]\nper_user = [\"99/hour\"]\n"
        )
    };
    let reserved = |amount: u32| {
        format!(
            "{}reserved = {{ critical = \"25%\" }}\n",
            api(&[&format!("{}/hour sliding-log", amount * 4 / 3)])
        )
    };
    let user = |amount: u32| {
        format!(
            "[[user]]\nname = \"u\"\n[[api]]\nname = \"api\"\nlimits = []\nusers = {{ u = [\"{amount}/hour sliding-log\"] }}\n"
        )
    };
    let cases: [&dyn Fn(u32) -> String; 3] = [&login, &reserved, &user];
    for of in cases {
        let engine = Engine::new(&policy(&of(12)), START);
        let request = Request::new("u", "api").from("192.0.2.1".parse().unwrap());
        let admitted = [12, 3, 12, 3, 12].map(|amount| {
            engine.follow(&policy(&of(amount)), START);
            (0..15).filter(|_| serves(&engine, &request, START)).count()
        });
        assert_eq!(admitted, [12, 0, 0, 0, 0], "{}", of(12));
    }
}

#[test]
fn a_log_has_room_for_its_largest_amount_until_nothing_of_that_counts_any_more() {
    let of = |amount: u32| policy(&api(&[&format!("{amount}/hour sliding-log")]));
    let engine = Engine::new(&of(100), START);
    let user = Request::new("u", "api");
    let words = || {
        let rules = engine.rules();
        engine.counter_keys(&rules, &user, START).unwrap().iter().next().unwrap().allowance.limits[0]
            .meter
            .words()
    };
    let mut now_us = START;
    for amount in (10..100).rev() {
        engine.follow(&of(amount), now_us);
        assert_eq!(words(), 101, "{amount}");
        now_us += SECOND;
    }
    now_us += HOUR;
    (0..10).for_each(|_| assert!(serves(&engine, &user, now_us)));
    engine.follow(&of(10), START + 3 * HOUR);
    assert_eq!(words(), 11);
    assert!(serves(&engine, &user, START + 3 * HOUR), "all of it has left the window");
    engine.follow(&of(20), START + 3 * HOUR);
    assert_eq!(words(), 21);
    assert_eq!((0..30).filter(|_| serves(&engine, &user, START + 3 * HOUR)).count(), 19);
}

#[test]
fn limits_of_plans_and_users_and_logins_keep_what_they_counted() {
    let none = "[[api]]\nname = \"api\"\nlimits = []\n";
    for table in ["[plan.default]\n", "[[user]]\nname = \"u\"\n"] {
        let of = |limits: &[&str]| format!("{table}limits = {limits:?}\n{none}");
        let (one, two) = (["10/hour"], ["12/min", "10/hour"]);
        assert_eq!(served(&[of(&one), of(&two), of(&one)]), [10, 0, 0], "{table}");
    }
    let login = |both: &str| {
        policy(&format!(
            "[[api]]\nname = \"api\"\npreset = \"login\"\nper_ip = [\"99/hour\"]\nper_user_and_ip = [{both}]\nper_user = [\"6/hour\"]\n"
        ))
    };
    let engine = Engine::new(&login("\"5/hour\""), START);
    let from = |ip: &str| Request::new("u", "api").from(ip.parse().unwrap());
    let home = from("192.0.2.1");
    assert!(serves(&engine, &home, START));
    assert_eq!(engine.refund(&engine.rules(), &home, START), Ok(true));
    engine.follow(&login("\"5/hour\", \"4/min\""), START);
    assert_eq!((0..9).filter(|_| serves(&engine, &from("192.0.2.2"), START)).count(), 4);
    let known = engine.rules().counter_keys(&home).unwrap().iter().count();
    let counters = engine.counter_keys(&engine.rules(), &home, START).unwrap().iter().count();
    assert_eq!((known, counters), (3, 2), "who was known stays known");
}

#[test]
fn whoever_stands_in_a_queue_keeps_its_turn() {
    let queue = |limits: &[&str]| policy(&format!("{}on_limit = \"delay 60s\"\n", api(limits)));
    let engine = Engine::new(&queue(&["1/s burst 1"]), START);
    let user = Request::new("u", "api");
    (0..7).for_each(|_| assert!(serves(&engine, &user, START)));
    engine.follow(&queue(&["100/hour", "1/s burst 1"]), START);
    let outcome = engine.decide(&engine.rules(), &user, START).unwrap().outcome;
    assert_eq!(outcome, Outcome::Delayed { wait_us: 7 * SECOND });
}

#[test]
fn what_was_carried_over_can_be_given_back_and_forgotten() {
    let engine = Engine::new(&policy(&api(&["10/hour"])), START);
    let user = Request::new("u", "api");
    (0..10).for_each(|_| assert!(serves(&engine, &user, START)));
    engine.follow(&policy(&api(&["10/hour", "900/min"])), START);
    let rules = engine.rules();
    assert!(!engine.peek(&rules, &user, START).unwrap().outcome.is_served());
    assert_eq!(engine.refund(&rules, &user, START), Ok(true));
    assert!(serves(&engine, &user, START) && !serves(&engine, &user, START));
    engine.reset(&rules, &user).unwrap();
    assert_eq!(
        (0..15).filter(|_| serves(&engine, &user, START)).count(),
        10,
        "lists before have forgotten it too"
    );
}

#[test]
fn a_host_without_its_store_keeps_what_it_counted_alone() {
    let of = |hosts: u32, limits: &[&str]| {
        let cluster = format!("[cluster]\nredis = \"redis://127.0.0.1:1\"\nhosts = {hosts}\n");
        policy(&format!("{cluster}{}", api(limits)))
    };
    let engine = Engine::new(&of(2, &["20/hour"]), START);
    let user = Request::new("u", "api");
    let served = || {
        let rules = engine.rules();
        let counters = engine.counter_keys(&rules, &user, START).unwrap();
        let alone = rules.alone(&counters).unwrap();
        let judged = |_: &i32| engine.judge(&alone, &user, START, JudgeMode::Take).outcome.is_served();
        (0..15).filter(judged).count()
    };
    assert_eq!(served(), 10);
    engine.follow(&of(2, &["900/min", "20/hour"]), START);
    assert_eq!(served(), 0);
    engine.follow(&of(2, &["20/hour"]), START);
    assert_eq!(served(), 0);
}

#[test]
fn lists_before_are_forgotten_when_nothing_of_them_counts_any_more() {
    let engine = Engine::new(&policy(&api(&["10/hour"])), START);
    let user = Request::new("u", "api");
    (0..10).for_each(|_| assert!(serves(&engine, &user, START)));
    let inherited = || {
        let rules = engine.rules();
        let counters = engine.counter_keys(&rules, &user, START).unwrap();
        counters.iter().next().unwrap().allowance.inherits.len()
    };
    for n in 1..100_usize {
        engine.follow(&policy(&api(&["10/hour", if n % 2 == 0 { "900/min" } else { "900/day" }])), START);
        assert_eq!(inherited(), n.min(super::MOST_PAST));
        assert!(!serves(&engine, &user, START), "{n}");
    }
    engine.follow(&policy(&api(&["10/hour"])), START + 60 * 24 * HOUR);
    assert_eq!(inherited(), 1, "only the one that was in force until now");
}
