//! Changes of the limits of a user: what was spent stays spent, in another unit, with another burst and at another rate.

use std::net::Ipv4Addr;

use ratelimit_tests::frames::Ipv4;

use super::{Host, SECOND, source};

/// A user of this network, where sources are not limited.
pub(super) fn user(network: &str) -> String {
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
