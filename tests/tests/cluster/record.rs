//! The record of limits of packets: which limit is in force, and what a clock does that goes back.

use std::time::Duration;

use ratelimit_common::limit::text::parse_rate;
use ratelimit_tests::record::PacketStore;
use ratelimit_user::{
    policy::{Reserve, terms::Terms},
    store::exchange::{Entry, Line, Others, Timing},
};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

fn terms(text: &str) -> Terms {
    Terms::of(&parse_rate(text).unwrap(), Reserve::new(0, 1)).unwrap()
}

/// A host that spends at once whatever it is given, and says so with the next lease batch.
struct Greedy {
    name: &'static str,
    terms: Terms,
    entry: Entry,
    got: u64,
}

impl Greedy {
    fn new(name: &'static str, limit: &str) -> Self {
        Self { name, terms: terms(limit), entry: Entry { wanted: 10_000, ..Entry::default() }, got: 0 }
    }

    fn ask(&mut self, store: &mut PacketStore, now_us: u64) -> Others {
        let timing = Timing::new(Duration::from_secs(1), Duration::from_millis(50));
        self.entry.sequence += 1;
        let line = Line { key: "k".into(), terms: self.terms, entry: self.entry };
        let grant = store.exchange(self.name, &timing, now_us, &[line])[0];
        self.entry.used = grant.units;
        self.got += grant.units;
        grant.others
    }
}

/// One or two hosts that ask every 50 ms from one moment to another, and what they were last told.
fn flood<const N: usize>(
    store: &mut PacketStore,
    hosts: &mut [Greedy; N],
    from_us: u64,
    for_s: u64,
) -> [Others; N] {
    let mut told = [Others::Agree; N];
    for step in 0..for_s * 20 {
        for (nth, host) in hosts.iter_mut().enumerate() {
            // The hosts ask one after the other, 25 ms apart.
            told[nth] = host.ask(store, from_us + step * SECOND / 20 + nth as u64 * SECOND / 40);
        }
    }
    told
}

fn got(hosts: &[Greedy]) -> u64 {
    hosts.iter().map(|host| host.got).sum()
}

#[test]
fn of_two_limits_the_smaller_is_in_force_and_both_hosts_hear_of_it() {
    for (one, other) in [("2000/s burst 500", "3000/s burst 500"), ("2000/s burst 2000", "2500/s burst 500")]
    {
        let mut store = PacketStore::seasoned();
        let mut hosts = [Greedy::new("a", one), Greedy::new("b", other)];
        // Before the store has heard of both, the first may have the burst of its own policy.
        flood(&mut store, &mut hosts, DAY, 1);
        let before = got(&hosts);
        let told = flood(&mut store, &mut hosts, DAY + SECOND, 10);
        let gained = got(&hosts) - before;
        assert!((19_000..=20_500).contains(&gained), "{gained} with {one} and {other}");
        // The rate of the first is in force, and in the second case the burst of the other.
        let of_first = if one.ends_with("2000") { Others::SayLess } else { Others::SayMore };
        assert_eq!(told, [of_first, Others::SayLess], "{one} {other}");
    }
}

#[test]
fn a_limit_that_everybody_has_raised_is_in_force_after_a_lease_and_alone_at_once() {
    let mut store = PacketStore::seasoned();
    let mut hosts = [Greedy::new("a", "1000/s burst 1000"), Greedy::new("b", "1000/s burst 1000")];
    assert_eq!(flood(&mut store, &mut hosts, DAY, 5), [Others::Agree; 2]);
    hosts.iter_mut().for_each(|host| host.terms = terms("4000/s burst 1000"));
    let told = flood(&mut store, &mut hosts, DAY + 5 * SECOND, 3);
    let before = got(&hosts);
    assert_eq!(told, [Others::Agree; 2]);
    flood(&mut store, &mut hosts, DAY + 8 * SECOND, 5);
    let gained = got(&hosts) - before;
    assert!((19_000..=21_000).contains(&gained), "{gained}");
    let mut alone = [Greedy::new("c", "1000/s burst 1000")];
    let mut store = PacketStore::seasoned();
    flood(&mut store, &mut alone, DAY, 2);
    alone[0].terms = terms("4000/s burst 1000");
    let before = got(&alone);
    flood(&mut store, &mut alone, DAY + 2 * SECOND, 5);
    assert!(got(&alone) - before >= 19_000, "{}", got(&alone) - before);
}

#[test]
fn a_store_clock_set_back_starves_no_packets() {
    // By less than the store has been there for, and by more.
    for back in [SECOND / 2, 60 * SECOND, 3_600 * SECOND, 2 * DAY] {
        let mut store = PacketStore::default();
        let mut hosts = [Greedy::new("a", "1000/s burst 200"), Greedy::new("b", "1000/s burst 200")];
        let begin = 10 * DAY;
        hosts[0].ask(&mut store, begin - DAY);
        flood(&mut store, &mut hosts, begin, 3);
        // One of them is never heard of again: what it holds is written off, not kept for as long as the clock went back.
        let [mut alone, _goes] = hosts;
        let before = alone.got;
        let from = begin + 3 * SECOND - back;
        let mut when = None;
        for step in 0..200 {
            alone.ask(&mut store, from + step * SECOND / 20);
            if alone.got > before && when.is_none() {
                when = Some(step * 50);
            }
        }
        let starved_ms = when.expect("it gets something in ten seconds");
        assert!(starved_ms <= 100, "{starved_ms} ms after {back} us back");
        let gained = alone.got - before;
        assert!((9_500..=10_200).contains(&gained), "{gained} of 10000 after {back} us back");
    }
}
