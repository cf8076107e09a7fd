//! What a policy keeps of the policy before, and what it counts as spent.

use std::sync::atomic::AtomicU64;

use ratelimit_common::{
    abi::{
        WindowLimit, WindowState,
        window::{MAX_WINDOWS, SET_WINDOWS},
    },
    limit::{
        gcra,
        window::{
            WindowOutcome, fixed,
            sliding::{self, SUB_WINDOWS},
            weighted,
        },
    },
};

use super::*;

const NOW_Q8: u64 = 1 << 50;

fn with(rest: &str) -> Policy {
    policy(&format!("[source]\nlimits = [\"1000 packets/s\"]\n{rest}"))
}

fn service(name: &str, port: u16, rest: &str) -> String {
    format!("[[service]]\nname = \"{name}\"\nmatch = {{ protocol = \"udp\", ports = [{port}]{rest} }}\n")
}

fn user(name: &str, source: &str, network: &str) -> String {
    format!("[[user]]\nname = \"{name}\"\nsources = [\"{source}\"]\nnetwork = [\"{network}\"]\n")
}

fn first(rest: &str) -> Desired {
    desired(&with(rest), &FACTS, 1, None)
}

fn follow(before: &Desired, next: &Policy) -> Desired {
    desired(next, &FACTS, 2, Some(Before::known(&before.policy, before, NOW_Q8)))
}

#[test]
fn services_without_a_mark_are_known_again_by_a_port_that_is_theirs_alone() {
    let all = [service("a", 53, ""), service("b", 80, ""), service("c", 443, "")].concat();
    let mut old = first(&all);
    // The policy of an earlier build, which wrote no marks.
    old.policy.service_names.fill(0);
    let next = with(&[service("0", 1, ""), all].concat());
    let names = Names::recovered(&next, &old.policy, &lists::Lists::new());
    for name in ["a", "b", "c"] {
        assert_eq!(names.services.of(name), old.names.services.of(name), "{name}");
    }
    // The entry of a port that destinations divide names no service.
    let divided = [
        service("a", 53, ", destinations = [\"192.0.2.1\"]"),
        service("b", 53, ", destinations = [\"192.0.2.2\"]"),
    ]
    .concat();
    let mut old = first(&divided);
    old.policy.service_names.fill(0);
    let names = Names::recovered(&with(&divided), &old.policy, &lists::Lists::new());
    assert_eq!((names.services.of("a"), names.services.of("b")), (None, None));
}

#[test]
fn sources_that_begin_spent_owe_their_longest_burst_under_every_service() {
    let per_source = format!("{}per_source = [\"5 packets/s burst 50\"]\n", service("a", 53, ""));
    let mut spent = follow(&first(&per_source), &with(&per_source));
    assert!(spent.keeps_policy && spent.policy.source.set.owed_q8 == 0);
    spent.sources_begin_spent(NOW_Q8);
    assert!(!spent.keeps_policy, "the kernel must hear of it");
    let at = spent.names.services.of("a").unwrap();
    for set in [spent.policy.source.set, spent.policy.services[at].per_source] {
        assert!(set.longest_tolerance_q8 > 0);
        assert_eq!((set.owed_since_q8, set.owed_q8), (NOW_Q8, set.longest_tolerance_q8));
    }
    assert_eq!(spent.policy.source.set.limits, first(&per_source).policy.source.set.limits);
}

#[test]
fn what_a_change_loses_sight_of_is_spent_since_the_policy_is_in_force_and_not_since_what_it_was_compiled_for()
{
    let of = |rate: &str| {
        policy(&format!("[source]\nlimits = [{rate:?}]\n{}per_source = [{rate:?}]\n", service("a", 53, "")))
    };
    let before = desired(&of("1000 packets/s burst 10000"), &FACTS, 1, None);
    let next = follow(&before, &of("5000 packets/s burst 5000"));
    let in_force_q8 = NOW_Q8 - gcra::time_q8(990_000_000);
    let owed = |desired: &Desired, after_ms: u64| {
        let sets = [desired.policy.source.set, desired.policy.services[0].per_source];
        let at_q8 = in_force_q8 + gcra::time_q8(after_ms * 1_000_000);
        sets.map(|set| {
            (gcra::owed_q8(&set, set.longest_tolerance_q8, at_q8) * 100).div_ceil(set.longest_tolerance_q8)
        })
    };
    assert_eq!(owed(&next, 500), [100; 2], "as it was compiled, nothing passes for a second");
    let begun = next.in_force_since(NOW_Q8, in_force_q8).unwrap();
    assert_eq!([0, 500, 1_000].map(|ms| owed(&begun, ms)), [[100; 2], [50; 2], [0; 2]]);
    assert!(
        !begun.keeps_policy && begun.policy.generation == next.policy.generation + 1,
        "the kernel hears of it"
    );
    assert_eq!(begun.in_force_since(NOW_Q8, in_force_q8), None, "once");
    assert_eq!(follow(&before, &of("500 packets/s burst 10000")).in_force_since(NOW_Q8, in_force_q8), None);
}

#[test]
fn who_is_another_source_from_now_on_begins_spent_and_users_do_not() {
    let limits = "limits = [\"1000 packets/s\"]\n";
    let rest = user("u", "192.0.2.0/24", "10 packets/s");
    let of = |prefix: &str| policy(&format!("[source]\n{limits}{prefix}{rest}"));
    let before = desired(&of(""), &FACTS, 1, None);
    assert_eq!(follow(&before, &of("")).policy.source.set.owed_q8, 0, "nothing has changed");
    for prefix in ["ipv4_prefix = 24\n", "ipv6_prefix = 56\n"] {
        let next = follow(&before, &of(prefix));
        let set = next.policy.source.set;
        assert_eq!((set.owed_since_q8, set.owed_q8), (NOW_Q8, set.longest_tolerance_q8), "{prefix}");
        assert_eq!(next.users[0].1.owed_q8, 0, "a user is a user by its name");
    }
}

#[test]
fn tables_stay_while_users_and_destinations_do_and_change_places_otherwise() {
    let place = |at: u8| service("a", 53, &format!(", destinations = [\"192.0.2.{at}\"]"));
    let rest = |at: u8, rate: &str| [place(at), user("u", "198.51.100.0/24", rate)].concat();
    let before = first(&rest(1, "10 packets/s"));
    let same = follow(&before, &with(&rest(1, "10 packets/s")));
    assert!(same.keeps_tables && same.keeps_policy && same.policy.generation == 1);
    let mut last = before;
    for (at, rate) in [(2, "10 packets/s"), (2, "20 packets/s"), (1, "20 packets/s")] {
        let next = follow(&last, &with(&rest(at, rate)));
        assert!(!next.keeps_tables && !next.keeps_policy, "{at} {rate}");
        assert_eq!(next.policy.tables, 1 - last.policy.tables, "{at} {rate}: those that nobody reads");
        last = next;
    }
}

#[test]
fn what_keeps_refused_packets_from_being_dropped_is_counted() {
    let lenient = |rest: &str| first(rest).policy.lenient;
    let [dropping, on_trial] = ["drop", "monitor"]
        .map(|on_limit| format!("{}on_limit = \"{on_limit}\"\n", service(on_limit, 53, "")));
    assert_eq!((lenient(""), lenient(&dropping), lenient(&on_trial)), (0, 0, 1));
    let monitor = policy(&format!("mode = \"monitor\"\n[source]\nlimits = [\"1000/s\"]\n{on_trial}"));
    assert_eq!(desired(&monitor, &FACTS, 1, None).policy.lenient, 2);
}

#[test]
fn prefixes_of_users_that_are_gone_are_nobodys_and_those_that_changed_hands_are_the_next_ones() {
    let before = first(&[user("a", "192.0.2.0/24", "10/s"), user("b", "198.51.100.0/24", "10/s")].concat());
    let index = |desired: &Desired, name: &str| desired.names.users.of(name).unwrap() as u16 + 1;
    let in_lists = lists::with_users(lists::Lists::new(), before.user_prefixes());
    let edited = |next: &Desired| -> Vec<(String, u16)> {
        let known = lists::user_edits(&in_lists, Some(&before.user_sources), &next.user_sources);
        assert_eq!(
            known,
            lists::user_edits(&in_lists, None, &next.user_sources),
            "what is known saves a search and nothing else"
        );
        known.iter().map(|(prefix, entry)| (prefix.to_string(), entry.own_user)).collect()
    };
    let same = follow(
        &before,
        &with(&[user("a", "192.0.2.0/24", "10/s"), user("b", "198.51.100.0/24", "10/s")].concat()),
    );
    assert_eq!(edited(&same), []);
    let gone = follow(&before, &with(&user("b", "198.51.100.0/24", "10/s")));
    assert_eq!(edited(&gone), [("192.0.2.0/24".to_owned(), 0)]);
    let swapped = follow(
        &before,
        &with(&[user("a", "198.51.100.0/24", "10/s"), user("b", "192.0.2.0/24", "10/s")].concat()),
    );
    let (a, b) = (index(&swapped, "a"), index(&swapped, "b"));
    assert_eq!(edited(&swapped), [("192.0.2.0/24".to_owned(), b), ("198.51.100.0/24".to_owned(), a)]);
}

#[test]
fn the_windows_of_a_user_begin_anew_when_they_are_others_and_go_on_when_they_are_not() {
    let users = |rates: [&str; 2]| {
        let [a, b] = rates.map(|rates| {
            rates.split(", ").map(|rate| format!("{rate} sliding-window")).collect::<Vec<_>>().join("\", \"")
        });
        [user("a", "192.0.2.0/24", &a), user("b", "198.51.100.0/24", &b)].concat()
    };
    let before = first(&users(["10 packets/min", "10 packets/min"]));
    let next = |before: &Desired, rates| follow(before, &with(&users(rates)));
    assert_eq!(next(&before, ["10 packets/min", "10 packets/min"]).new_user_windows, [0_u32; 0]);
    let of_b = before.names.users.of("b").unwrap() as u32 * SET_WINDOWS as u32;
    let other = next(&before, ["10 packets/min", "10 packets/hour"]);
    assert_eq!(other.new_user_windows, [of_b + 1], "at a place where nothing is counted any more");
    let both = next(&before, ["10 packets/min", "9 packets/s, 10 packets/min"]);
    assert_eq!(both.new_user_windows, [of_b + 1], "the one that was there goes on where it was");
    let one = next(&both, ["10 packets/min", "9 packets/s"]);
    assert_eq!(one.new_user_windows, [0_u32; 0]);
    let back = next(&one, ["10 packets/min", "9 packets/s, 10 packets/min"]);
    assert_eq!(back.new_user_windows, [of_b], "it was not counted for a while");
}

/// The length in seconds of the window at each place of `[source]`, 0 for a place that refuses nothing.
fn lengths(desired: &Desired) -> Vec<u64> {
    let numbers = desired.policy.source.set.windows.iter().take_while(|number| **number != 0);
    let windows = numbers.map(|number| &desired.policy.windows[usize::from(*number) - 1]);
    windows.map(|one| if one.soft == 0 { one.window.length_ns / 1_000_000_000 } else { 0 }).collect()
}

#[test]
fn windows_keep_their_places_unless_a_policy_has_as_many_as_there_can_be() {
    let windows = |windows: &[&str], others: usize| {
        let limits = windows.iter().map(|one| format!("\"{one} fixed-window\""));
        let limits = limits.collect::<Vec<_>>().join(", ");
        let users = (0..others).map(|number| {
            let rate = format!("{} packets/s fixed-window", 100 + number);
            user(&format!("u{number}"), &format!("192.0.2.{number}"), &rate)
        });
        policy(&format!("[source]\nlimits = [{limits}]\n{}", users.collect::<String>()))
    };
    for others in [0, MAX_WINDOWS - 2] {
        let both = desired(&windows(&["9 packets/s", "90 packets/min"], others), &FACTS, 1, None);
        assert_eq!(lengths(&both), [1, 60]);
        let one = follow(&both, &windows(&["90 packets/min"], others));
        assert_eq!((lengths(&one), one.policy.window_count), (vec![0, 60], others as u64 + 2));
        let all = follow(
            &one,
            &windows(&["9 packets/s", "90 packets/min", "900 packets/hour"], others.min(MAX_WINDOWS - 3)),
        );
        assert_eq!(lengths(&all), [1, 60, 3600]);
        let same = follow(
            &all,
            &windows(&["900 packets/hour", "9 packets/s", "90 packets/min"], others.min(MAX_WINDOWS - 3)),
        );
        assert!(same.keeps_policy, "the order in the file does not matter");
    }
    // All numbers of windows are taken, so a place without a window cannot have one.
    let full = desired(&windows(&["9 packets/s", "90 packets/min"], MAX_WINDOWS - 2), &FACTS, 1, None);
    assert_eq!(lengths(&follow(&full, &windows(&["90 packets/min"], MAX_WINDOWS - 1))), [60]);
}

#[test]
fn what_a_former_build_counted_is_found_at_the_place_that_its_window_has_now() {
    let now_ns = 1_000_000_000_000_000;
    let kinds = ["fixed-window", "sliding-window", "sliding-window-weighted"];
    let policy = |limits: &[&str], kind: &str| {
        let limits = limits.iter().map(|one| format!("\"{one} {kind}\"")).collect::<Vec<_>>().join(", ");
        first(&format!(
            "{}per_source = [{limits}]\n{}",
            service("dns", 53, ""),
            user("acme", "192.0.2.0/24", "9 packets/s")
        ))
    };
    for kind in kinds {
        // The window of a minute was at the second place there, and is at the first here.
        let (hour, minute) = ("900 packets/hour", "90 packets/min");
        let place = policy(&["9 packets/s", minute], kind);
        let (_, there) = window::of_set(&place.policy, &place.policy.services[0].per_source).last().unwrap();
        let ours = policy(&[minute, hour], kind);
        let set = &ours.policy.services[0].per_source;
        let [(0, minute), (1, hour)] = window::of_set(&ours.policy, set).collect::<Vec<_>>()[..] else {
            panic!("{set:?}");
        };
        assert_eq!(minute, there);
        let group = |limit: &WindowLimit, place: u64, service: u64| limit.name | place << 16 | service;
        let moved = |limit, place, service| window::group_under(&ours.policy, group(limit, place, service));
        assert_eq!(moved(&minute, 1, 1), group(&minute, 0, 1));
        assert_eq!(moved(&minute, 0, 1), group(&minute, 0, 1));
        assert_eq!(moved(&hour, 3, 1), group(&hour, 1, 1));
        assert_eq!(moved(&minute, 1, 0), group(&minute, 1, 0), "sources have no windows here");
        let words = |limit: &WindowLimit, now_ns: u64| {
            let mut state = WindowState::FRESH;
            let cells = state.words.map(AtomicU64::new);
            let take = |outcome| match outcome {
                WindowOutcome::Conforms { word } => word,
                refused => panic!("{refused:?}"),
            };
            match kind {
                "fixed-window" => state.words[0] = take(fixed::take(0, &limit.window, now_ns, 7)),
                "sliding-window" => {
                    sliding::take::<SUB_WINDOWS>(&cells, &limit.window, now_ns, 7).unwrap();
                    state.words = cells.map(AtomicU64::into_inner);
                }
                _ => state.words[0] = take(weighted::take(0, &limit.window, now_ns, 7)),
            }
            state
        };
        let of_minute = words(&minute, now_ns);
        let all = [WindowState::FRESH, of_minute, words(&hour, now_ns), WindowState::FRESH];
        assert_eq!(window::words_of(&minute, 0, &all, now_ns), Some(of_minute), "{kind}");
        assert_eq!(window::words_of(&hour, 1, &all, now_ns), Some(all[2]), "{kind}: not those of the minute");
        let later_ns = now_ns + 600_000_000_000;
        assert_eq!(window::words_of(&minute, 0, &all, later_ns), None, "{kind}: nothing of them counts");
    }
}

#[test]
fn an_entry_is_of_the_service_whose_number_its_key_ends_with_and_of_no_other() {
    // The name of a window, its place, and one more than the index of its service.
    let group = |service: u64| 0x1234_5678 << 32 | 5 << 16 | service;
    for (service, services, is_of) in [
        (3, &[2_u32][..], true),
        (3, &[0, 2, 7], true),
        (3, &[3], false),
        (0, &[0], false),
        (1, &[0], true),
        (5, &[2], false),
    ] {
        assert_eq!(window::is_of_service(group(service), services), is_of, "{service} in {services:?}");
    }
}
