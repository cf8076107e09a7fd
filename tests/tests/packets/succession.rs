//! One policy after the other while a source sends as much as it can: a change may refuse more for a moment, and never admits more.

use std::net::Ipv4Addr;

use proptest::prelude::*;
use ratelimit_common::{
    abi::{Bucket, Reason, TotalState, Verdict, counter::Fate, service::MAX_TOTALS},
    limit::gcra::time_q8,
};
use ratelimit_ebpf::rows::{Row, Rows as _};
use ratelimit_tests::{frames::Ipv4, memory::Memory, policies};
use ratelimit_user::compile::{self, Before, Desired, HostFacts};

const SECOND: u64 = 1_000_000_000;
const BURST: u64 = 800;
const PER_SEC: u64 = 100;

/// A host whose policy changes.
struct Host {
    memory: Memory,
    desired: Desired,
    start: u64,
    admitted: u64,
}

impl Host {
    fn new(text: &str) -> Self {
        let desired = policies::policy(text);
        let memory = Memory::new(&desired, Default::default());
        let start = memory.now_ns.get();
        Self { memory, desired, start, admitted: 0 }
    }

    fn change(&mut self, text: &str) {
        self.change_with(text, &policies::FACTS);
    }

    fn change_with(&mut self, text: &str, facts: &HostFacts) {
        let now_q8 = time_q8(self.memory.now_ns.get());
        let before = Before::known(&self.desired.policy, &self.desired, now_q8);
        let generation = self.desired.policy.generation + 1;
        let mut next = compile::desired(&policies::parsed(text), facts, generation, Some(before));
        next.carry_debts(|user| self.desired.user_set(user).copied(), |user| Some(self.bucket(user)), now_q8);
        for total in &next.changed_totals {
            let [words, share] =
                [Row::Total(*total), Row::Share(*total)].map(|row| self.memory.find(row).unwrap());
            let state = TotalState {
                tat_q8: std::array::from_fn(|place| self.memory.read(Memory::along(words, place))),
            };
            let carried = next.carried_total(&self.desired.policy, *total, state, [0; MAX_TOTALS], now_q8);
            for (place, word_q8) in carried.tat_q8.into_iter().enumerate() {
                self.memory.write(Memory::along(words, place), word_q8);
            }
            // What CPUs hold is taken away, as the daemon does.
            (0..8).for_each(|place| self.memory.write(Memory::along(share, place), 0));
        }
        self.desired = next;
        self.memory.enforce(&self.desired);
    }

    /// The words of a user.
    fn bucket(&self, user: u32) -> Bucket {
        let first = self.memory.find(Row::User(user)).unwrap();
        let word = |place| self.memory.read(Memory::along(first, place));
        Bucket { tat_q8: std::array::from_fn(word), ..Bucket::FULL }
    }

    fn wait_ms(&self, ms: u64) {
        self.memory.now_ns.set(self.memory.now_ns.get() + ms * 1_000_000);
    }

    /// Sends so many at once from one address, and says how many passed.
    fn flood(&mut self, packets: u64) -> u64 {
        let frame = Ipv4::from(Ipv4Addr::new(192, 0, 2, 7)).udp_frame(8);
        let passed = (0..packets).filter(|_| self.memory.run(&frame) == Verdict::Pass).count() as u64;
        self.admitted += passed;
        passed
    }

    /// The most that a limit admits since the start.
    fn bound(&self, burst: u64, per_sec: u64) -> u64 {
        burst + per_sec * (self.memory.now_ns.get() - self.start) / SECOND
    }
}

fn source(lines: &str) -> String {
    format!("[source]\nladder = false\n{lines}\n")
}

const HARD: &str = "limits = [\"100 packets/s burst 800\"]";

#[test]
fn a_limit_that_becomes_soft_hands_out_no_fresh_burst() {
    let mut host = Host::new(&source(HARD));
    host.flood(2_000);
    host.change(&source("limits = [\"100 packets/s burst 800 soft 10%\"]"));
    for _ in 0..110 {
        host.wait_ms(10);
        host.flood(200);
    }
    let (wide, admitted) = (host.bound(BURST, PER_SEC) * 11 / 10, host.admitted);
    assert!(admitted <= wide, "{admitted} admitted, {wide} are the most with a margin of 10 %");
    // The margin begins when its bucket would have filled: eight seconds.
    host.wait_ms(9_000);
    host.flood(2_000);
    assert!(host.memory.sum(Reason::SoftMargin, Fate::Decided).packets > 0, "and then it is there");
    assert!(host.admitted <= host.bound(BURST, PER_SEC) * 11 / 10);
}

#[test]
fn who_was_within_a_hard_limit_is_not_refused_when_it_becomes_soft() {
    let mut host = Host::new(&source(HARD));
    host.flood(100);
    host.change(&source("limits = [\"100 packets/s burst 800 soft 10%\"]"));
    assert_eq!(host.flood(500), 500);
}

#[test]
fn headroom_that_comes_and_goes_hands_out_no_fresh_burst_and_refuses_nobody_within_the_limit() {
    let elastic = source("limits = [\"100 packets/s burst 800 elastic 50%\"]");
    let facts = |headroom| HostFacts { headroom, ..policies::FACTS };
    let mut host = Host::new(&elastic);
    host.change_with(&elastic, &facts(false));
    for round in 0..40 {
        host.flood(2_000);
        host.wait_ms(50);
        host.change_with(&elastic, &facts(round % 2 == 0));
    }
    let (wide, admitted) = (host.bound(BURST, PER_SEC) * 3 / 2, host.admitted);
    assert!(admitted <= wide, "{admitted} admitted, {wide} are the most with a margin of 50 %");
    let mut idle = Host::new(&elastic);
    idle.change_with(&elastic, &facts(false));
    idle.wait_ms(100_000);
    idle.change_with(&elastic, &facts(true));
    assert!(idle.flood(600) == 600, "its burst is there after the change too");
    // 1200 less the eighth of the smaller burst that a cell may have given.
    assert!(idle.flood(1_000) >= 490, "and so is the margin, which was charged all the time");
}

/// Sends more than all limits together again and again, while lists get windows and lose them: the limit of a day is in all of them.
fn windows_of_lists(policy: impl Fn(&str) -> String) {
    for kind in ["sliding-window", "fixed-window", "sliding-window-weighted"] {
        let day = format!("\"1000 packets/day {kind}\"");
        let lists = [
            format!("\"500 packets/hour {kind}\", {day}"),
            day.clone(),
            format!("{day}, \"990 packets/min {kind}\", \"995 packets/hour {kind}\""),
            format!("\"800 packets/s {kind}\", {day}"),
            format!("\"1000 packets/s burst 1000\", \"1000 packets/day {kind} soft 10%\""),
        ];
        for (first, second) in (0..lists.len()).flat_map(|one| (0..lists.len()).map(move |two| (one, two))) {
            let mut host = Host::new(&policy(&lists[first]));
            for round in 0..6 {
                host.flood(1_500);
                host.wait_ms(10);
                host.change(&policy(&lists[if round % 2 == 0 { second } else { first }]));
            }
            host.flood(1_500);
            let most = if first.max(second) == 4 { 1_100 } else { 1_000 };
            let admitted = host.admitted;
            assert!(admitted <= most, "{admitted} admitted with {} and {}", lists[first], lists[second]);
        }
    }
}

#[test]
fn windows_of_sources_keep_what_they_counted_when_others_come_and_go() {
    windows_of_lists(|list| source(&format!("limits = [{list}]")));
}

#[test]
fn windows_of_services_keep_what_they_counted_when_others_come_and_go() {
    windows_of_lists(|list| {
        let service = "[[service]]\nname = \"all\"\nmatch = { protocol = \"udp\", ports = [\"1-65535\"] }";
        format!("{}{service}\nper_source = [{list}]\n", source("limits = [\"1M packets/s\"]"))
    });
}

#[test]
fn windows_of_users_keep_what_they_counted_when_others_come_and_go() {
    windows_of_lists(|list| {
        let user = "[[user]]\nname = \"acme\"\nsources = [\"192.0.2.0/24\"]";
        format!("{}{user}\nnetwork = [{list}]\n", source("limits = [\"1M packets/s\"]"))
    });
}

/// A user of this network, where sources are not limited.
fn user(network: &str) -> String {
    let user = "[[user]]\nname = \"acme\"\nsources = [\"192.0.2.0/24\"]";
    format!("{}{user}\nnetwork = [{network}]\n", source("limits = [\"1M packets/s\"]"))
}

#[test]
fn a_user_whose_limits_change_there_and_back_has_no_burst_again() {
    let slow = "\"500 packets/hour burst 500\"";
    let fast = "\"5000 packets/hour burst 500\"";
    let both = "\"5000 packets/hour burst 500\", \"1 MB/s burst 10 MB\"";
    let day = "\"50 packets/day\"";
    for other in [fast, both, "\"600 packets/hour burst 500\"", day] {
        let mut host = Host::new(&user(slow));
        for round in 0..6 {
            host.flood(700);
            host.wait_ms(500);
            host.change(&user(if round % 2 == 0 { other } else { slow }));
            // Nobody is refused for more than what was spent: what the limit gives from then on passes. The first packet may find a debt that is longer than it
            // can be under the limit, and makes it an empty bucket.
            host.flood(1);
            host.wait_ms(7_300);
            assert!(other == day || host.flood(1) == 1, "round {round} with {other}");
        }
        let admitted = host.admitted;
        let most = 500 + 5_000 * (host.memory.now_ns.get() - host.start) / SECOND / 3_600 + 1;
        assert!(admitted <= most, "{admitted} admitted, {most} are the most, with {other}");
    }
}

#[test]
fn a_limit_of_a_user_that_becomes_slower_keeps_as_many_packets_as_were_spent() {
    let mut host = Host::new(&user("\"200 packets/day\""));
    assert_eq!(host.flood(30), 30);
    host.change(&user("\"50 packets/day\""));
    assert_eq!(host.flood(100), 20, "thirty of fifty were spent");
    host.wait_ms(3_600_000);
    assert_eq!(host.flood(100), 2, "and it fills at its rate");
    // One that has spent nothing is refused nothing.
    let mut idle = Host::new(&user("\"200 packets/day\""));
    idle.change(&user("\"50 packets/day\""));
    assert_eq!(idle.flood(100), 50);
    // One that becomes quicker refuses nobody for what was not spent.
    let mut quicker = Host::new(&user("\"50 packets/day burst 50\""));
    quicker.flood(10);
    quicker.change(&user("\"5000 packets/s burst 5000\""));
    quicker.flood(1);
    quicker.wait_ms(1_000);
    assert_eq!(quicker.flood(2_000), 2_000);
}

/// Sends more than all limits together again and again while a user has one network and another by turns. Says how many passed, each time before a change.
fn by_turns(network: [&str; 2], rounds: usize) -> Vec<u64> {
    let mut host = Host::new(&user(network[0]));
    let mut passed = vec![];
    for round in 0..rounds {
        passed.push(host.flood(1_500));
        host.wait_ms(10);
        host.change(&user(network[(round + 1) % 2]));
    }
    passed
}

#[test]
fn a_user_whose_burst_becomes_smaller_and_bigger_again_gets_the_difference_at_its_rate() {
    let rates = [
        ["\"100 packets/hour burst 500\"", "\"100 packets/hour burst 50\""],
        // Smaller on the way, then slower and bigger at once.
        ["\"100 packets/hour burst 500\"", "\"101 packets/hour burst 50\""],
        ["\"5 kB/hour burst 20 kB\"", "\"5 kB/hour burst 2 kB\""],
        [
            "\"1000 packets/s burst 1000\", \"100 packets/hour burst 500\"",
            "\"1000 packets/s burst 1000\", \"100 packets/hour burst 50\"",
        ],
    ];
    for network in rates {
        let passed = by_turns(network, 12);
        assert!(passed[0] > 250, "{network:?}: {passed:?}");
        assert!(passed[1..].iter().all(|again| *again == 0), "{network:?}: {passed:?}");
    }
    let [big, small] = rates[0].map(user);
    let mut host = Host::new(&big);
    host.flood(1_000);
    host.change(&small);
    host.flood(10);
    host.change(&big);
    host.wait_ms(36_000 * 20);
    assert_eq!(host.flood(100), 20, "it fills at its rate from then on");
    host.wait_ms(36_000 * 1_000);
    assert_eq!(
        host.flood(1_000),
        495,
        "up to all of it, less one packet of each CPU, twice, and one for the clock"
    );
}

#[test]
fn a_bigger_burst_of_a_user_leaves_what_was_left_and_counts_the_time_that_it_was_idle() {
    let of = |burst: u64| user(&format!("\"100 packets/hour burst {burst}\""));
    let [fifty, hundred, two_hundred] = [50, 100, 200].map(of);
    let mut host = Host::new(&fifty);
    assert_eq!(host.flood(30), 30);
    host.change(&hundred);
    assert_eq!(host.flood(100), 20, "what is left stays what it was");
    // Thirty packets fill, and then ten more would have.
    let mut idle = Host::new(&fifty);
    idle.flood(30);
    idle.wait_ms(36_000 * 40);
    idle.change(&hundred);
    assert_eq!(idle.flood(200), 60);
    // Who has been idle for as long as all of the bigger burst takes has it at once, and so has who never sent anything.
    let mut long = Host::new(&fifty);
    long.flood(30);
    long.wait_ms(36_000 * 90);
    long.change(&hundred);
    assert_eq!(long.flood(200), 99, "less one packet for the clock");
    let mut never = Host::new(&fifty);
    never.change(&hundred);
    assert_eq!(never.flood(200), 99);
    // The time that somebody was idle counts once, in however many steps the burst grows, and whatever else is changed between them.
    let mut steps = Host::new(&fifty);
    steps.flood(50);
    steps.wait_ms(36_000 * 80);
    for (policy, more) in [
        (of(60), ""),
        (of(70), ""),
        (of(80), "mode = \"monitor\"\n"),
        (of(80), ""),
        (of(100), ""),
        (two_hundred, ""),
    ] {
        steps.change(&format!("{more}{policy}"));
    }
    let passed = steps.flood(300);
    assert!((79..=80).contains(&passed), "{passed} passed");
}

#[test]
fn a_user_that_is_counted_in_bytes_instead_of_packets_keeps_the_part_that_it_spent() {
    let [packets, bytes] = ["\"100 packets/hour burst 500\"", "\"30000 bytes/hour\""];
    for network in [[packets, bytes], [bytes, packets]] {
        let passed = by_turns(network, 12);
        assert!(passed[0] > 250, "{network:?}: {passed:?}");
        assert!(passed[1..].iter().all(|again| *again <= 1), "{network:?}: {passed:?}");
    }
    let fifty = user("\"100 packets/hour burst 50\"");
    let bytes = user("\"5000 bytes/hour burst 5000\"");
    let frame = Ipv4::from(Ipv4Addr::new(192, 0, 2, 7)).udp_frame(8).len() as u64;
    let mut host = Host::new(&fifty);
    assert_eq!(host.flood(10), 10);
    host.change(&bytes);
    let passed = host.flood(500);
    assert!((4_000 / frame - 1..=4_000 / frame).contains(&passed), "{passed} of four fifths of 5000 bytes");
    host.change(&fifty);
    assert_eq!(host.flood(100), 0);
    let mut idle = Host::new(&fifty);
    idle.change(&bytes);
    let passed = idle.flood(500);
    assert!(passed + 1 >= 5_000 / frame, "who has spent nothing has all of it: {passed}");
}

#[test]
fn a_user_whose_limit_becomes_quicker_has_the_difference_of_the_bursts_at_once() {
    let mut host = Host::new(&user("\"100 packets/hour burst 50\""));
    assert_eq!(host.flood(100), 50);
    host.change(&user("\"200 packets/hour burst 500\""));
    // Fifty packets were half an hour, which is a hundred packets now: of 495.
    assert_eq!(host.flood(1_000), 395);
}

/// A host and a service with these totals, where sources are not limited.
fn totals(host: &str, service: &str) -> String {
    let list =
        |key: &str, rate: &str| if rate.is_empty() { String::new() } else { format!("{key} = [{rate}]\n") };
    format!(
        "[host]\n{}{}[[service]]\nname = \"s\"\nmatch = {{ protocol = \"udp\", ports = [\"1-65535\"] }}\nper_source = [\"1M packets/s\"]\n{}",
        list("total", host),
        source("gate = false\nlimits = [\"1M packets/s\"]"),
        list("total", service)
    )
}

#[test]
fn totals_that_become_slower_or_get_a_bigger_burst_give_nothing_again() {
    let slow = "\"100 packets/hour burst 2000\"";
    let others = [
        "\"10000 packets/hour burst 2000\"",
        "\"100 packets/hour burst 200\"",
        "\"101 packets/hour burst 200\"",
        "\"200 kB/hour burst 200 kB\"",
        "\"10000 packets/hour burst 2000\", \"1 MB/s burst 10 MB\"",
    ];
    for other in others {
        for place in ["service", "host"] {
            let of = |rate: &str| if place == "host" { totals(rate, "") } else { totals("", rate) };
            let mut host = Host::new(&of(slow));
            let first = host.flood(3_000);
            assert!(first > 1_700, "{first}");
            let start = host.memory.now_ns.get();
            for round in 0..8 {
                host.wait_ms(500);
                host.change(&of(if round % 2 == 0 { other } else { slow }));
                host.flood(3_000);
            }
            let most = 2_000 + 10_000 * (host.memory.now_ns.get() - start) / SECOND / 3_600;
            let admitted = host.admitted;
            assert!(admitted <= most, "{place}: {admitted} admitted, {most} are the most with {other}");
        }
    }
    // Who has not used a total loses nothing by it.
    let mut idle = Host::new(&totals("", "\"10000 packets/hour burst 200\""));
    idle.change(&totals("", slow));
    assert!(idle.flood(3_000) > 1_700);
    let mut half = Host::new(&totals("", "\"10000 packets/hour burst 2000\""));
    assert_eq!(half.flood(1_000), 1_000);
    half.change(&totals("", slow));
    let left = half.flood(3_000);
    assert!((700..=1_000).contains(&left), "a thousand were spent, and what a CPU held: {left} are left");
}

/// Ways to limit one source to the same packets, with a prefilter and without.
const PREFILTERS: [&str; 5] = [
    HARD,
    "gate = false\nlimits = [\"100 packets/s burst 800\"]",
    // So small a burst that there is no room for a prefilter.
    "limits = [\"100 packets/s burst 800\", \"100 syns/s burst 2\"]",
    // A prefilter that gives out less.
    "limits = [\"100 packets/s burst 800\", \"100 syns/s burst 64\"]",
    "limits = [\"100 packets/s burst 800\", \"1 MB/s burst 1 MB\"]",
];

#[test]
fn switching_the_prefilter_gives_nothing_twice() {
    for to in PREFILTERS {
        let mut host = Host::new(&source(HARD));
        for round in 0..8 {
            // First as much as a cell gives, then everything.
            host.flood(if round % 2 == 0 { 60 } else { 3_000 });
            host.change(&source(if round % 2 == 0 { to } else { HARD }));
            host.flood(3_000);
            host.wait_ms(20);
        }
        let (bound, admitted) = (host.bound(BURST, PER_SEC), host.admitted);
        assert!(admitted <= bound, "{admitted} admitted, {bound} are the most, with {to}");
    }
}

#[test]
fn other_prefix_lengths_give_no_burst_again() {
    let mut host = Host::new(&source(HARD));
    host.flood(3_000);
    for length in [24, 32, 28, 32, 24, 32] {
        host.change(&source(&format!("ipv4_prefix = {length}\n{HARD}")));
        host.flood(3_000);
        host.wait_ms(100);
        host.flood(3_000);
    }
    let (bound, admitted) = (host.bound(BURST, PER_SEC), host.admitted);
    assert!(admitted <= bound, "{admitted} admitted, {bound} are the most");
    assert!(admitted + 10 >= BURST + PER_SEC * 6 / 10, "and {admitted} are not much less");
}

#[test]
fn what_is_owed_of_a_long_limit_does_not_hide_what_a_short_one_lost() {
    let both = "limits = [\"100 packets/s burst 800\", \"1 syns/s burst 3600\"]";
    let mut host = Host::new(&source(both));
    host.flood(3_000);
    host.change(&source(&format!("ipv4_prefix = 24\n{both}")));
    host.wait_ms(1_000);
    host.change(&source(&format!("ipv4_prefix = 24\n{HARD}")));
    for length in [32, 28, 24, 30] {
        host.wait_ms(9_000);
        host.flood(3_000);
        host.change(&source(&format!("ipv4_prefix = {length}\n{HARD}")));
        host.flood(3_000);
        let (bound, admitted) = (host.bound(BURST, PER_SEC), host.admitted);
        assert!(admitted <= bound, "{admitted} admitted, {bound} are the most, after a change to /{length}");
    }
}

#[test]
fn a_margin_that_goes_from_one_limit_to_another_hands_out_no_fresh_burst() {
    let limits = |fast: &str, slow: &str| {
        source(&format!("limits = [\"1000 packets/s burst 9000{fast}\", \"100 packets/s burst 800{slow}\"]"))
    };
    let mut host = Host::new(&limits(" soft 10%", ""));
    host.wait_ms(20_000);
    host.flood(3_000);
    host.change(&limits("", " soft 10%"));
    host.flood(3_000);
    // 20 s in which nobody sent do not count: the bucket was full.
    let (bound, admitted) = (BURST * 11 / 10, host.admitted);
    assert!(admitted <= bound, "{admitted} admitted, {bound} are the most with a margin of 10 %");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Packets at once, times in ms, and which policy comes next.
    #[test]
    fn no_row_of_changes_admits_more_than_the_limit_that_all_of_them_have(
        steps in prop::collection::vec((0_usize..PREFILTERS.len(), prop_oneof![Just(32_u8), Just(24_u8)], 1_u64..900, prop_oneof![4 => 0_u64..50, 1 => 0_u64..12_000]), 1..40),
    ) {
        let mut host = Host::new(&source(HARD));
        for (prefilter, length, packets, later_ms) in steps {
            host.flood(packets);
            host.wait_ms(later_ms);
            host.flood(packets / 3);
            host.change(&source(&format!("ipv4_prefix = {length}\n{}", PREFILTERS[prefilter])));
            let (bound, admitted) = (host.bound(BURST, PER_SEC), host.admitted);
            prop_assert!(admitted <= bound, "{} admitted, {} are the most", admitted, bound);
        }
        host.flood(3_000);
        prop_assert!(host.admitted <= host.bound(BURST, PER_SEC), "{} admitted", host.admitted);
    }
}
