//! Limits of one source: its buckets, its cell, and the negative cache.

extern crate std;

use std::vec::Vec;

use ratelimit_common::{
    abi::{
        Clock, Event, LimitSet, Reason,
        limit::{HAS_SOFT, HELD, SOFT},
    },
    limit::{fair::PROVEN_Q8, gcra::Start, prefilter},
};

use super::reasons;
use crate::{
    limit::{
        Sender,
        word::{Charging, charge},
    },
    packet::Address,
    tables::Tables as _,
    testbed::{
        IpFrame, SECOND_NS, SECOND_Q8, SYN, TestHost, WordPlace, WordTable, empty, limit, prefiltered, set,
        tcp, udp,
    },
};

fn host(set: LimitSet) -> TestHost {
    let mut policy = empty();
    policy.source.set = set;
    TestHost::new(policy)
}

/// The word of a limit of the only source.
fn word(host: &TestHost, limit: u64) -> u64 {
    assert_eq!(host.rows(WordTable::Source), 1);
    host.load((WordTable::Source, limit))
}

/// An IPv4 fragment.
fn fragment() -> Vec<u8> {
    IpFrame {
        source: [0, 1],
        is_v6: false,
        protocol: 17,
        fragment: 0x2000,
        payload: udp([0, 1], 53, 8)[34..].to_vec(),
    }
    .frame()
}

#[test]
fn each_meter_counts_what_it_says_and_refuses_by_its_own_name() {
    let frames = [udp([0, 1], 53, 58), tcp([0, 1], 80, SYN), tcp([0, 1], 80, 0x10), fragment()];
    assert_eq!(frames[0].len(), 100);
    for (rate, reason, passed) in [
        ("3 packets/day", Reason::LimitPackets, [3, 3, 3, 3]),
        ("100000 bytes/day burst 2000 bytes", Reason::LimitBytes, [20, 37, 37, 40]),
        ("3 syns/day", Reason::LimitSyns, [99, 3, 99, 99]),
        ("3 fragments/day", Reason::LimitFragments, [99, 99, 99, 3]),
    ] {
        for (frame, passed) in frames.iter().zip(passed) {
            let host = host(set(&[rate]));
            assert_eq!(host.passed(frame, 99), passed, "{rate}: {} bytes", frame.len());
            assert_eq!(host.reason(frame), if passed == 99 { Reason::Conforming } else { reason }, "{rate}");
        }
    }
}

#[test]
fn what_one_limit_refuses_costs_the_others_nothing() {
    let host =
        host(set(&["10 packets/day", "2 syns/day", "100000 bytes/day burst 2000 bytes", "1 fragments/day"]));
    assert_eq!(host.passed(&tcp([0, 1], 80, SYN), 50), 2);
    assert_eq!(host.passed(&fragment(), 50), 1);
    assert_eq!(host.passed(&udp([0, 1], 53, 8), 50), 7, "the rest of ten");
    assert_eq!(word(&host, 0), host.now_q8() + 86_400 * SECOND_Q8);
    assert_eq!(word(&host, 1), host.now_q8() + 86_400 * SECOND_Q8);
}

#[test]
fn a_bucket_fills_with_time() {
    let host = host(set(&["10 packets/s burst 5"]));
    let frame = udp([0, 1], 53, 8);
    assert_eq!(host.passed(&frame, 50), 5);
    for (ms, passed) in [(99, 0), (1, 1), (250, 2), (50, 1), (10_000, 5)] {
        host.wait_ms(ms);
        assert_eq!(host.passed(&frame, 50), passed, "after {ms} ms");
    }
}

#[test]
fn sources_are_cut_to_what_the_policy_takes_for_one() {
    let mut host = host(set(&["2 packets/day"]));
    host.policy.source.v4_mask = u64::from_ne_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0]);
    let from = |source, is_v6| {
        IpFrame { source, is_v6, protocol: 17, fragment: 0, payload: udp([0, 0], 53, 8)[34..].to_vec() }
            .frame()
    };
    for (first, second, third) in [
        (from([1, 1], false), from([1, 2], false), from([2, 1], false)),
        (from([1, 1], true), from([1, 2], true), from([2, 1], true)),
    ] {
        assert_eq!([&first, &second, &first].map(|frame| host.passed(frame, 1)), [1, 1, 0], "one source");
        assert_eq!(host.passed(&third, 9), 2, "another");
    }
    assert_eq!(host.rows(WordTable::Source), 4);
    host.policy.source.v6_mask_lo = u64::MAX;
    assert_eq!(host.passed(&from([1, 7], true), 9), 2, "an address by itself");
}

#[test]
fn a_cell_gives_an_eighth_and_the_entry_behind_it_the_rest() {
    let host = host(prefiltered(&["80 packets/day"]));
    let frame = udp([0, 1], 53, 8);
    assert_eq!((host.passed(&frame, 10), host.rows(WordTable::Source)), (10, 0), "an eighth needs no entry");
    assert_eq!((host.passed(&frame, 1), host.rows(WordTable::Source)), (1, 1));
    assert_eq!(*host.noted.borrow(), [Event::Promoted]);
    assert_eq!(host.passed(&frame, 200), 69);
    assert_eq!(host.rows(WordTable::Source), 1);
    // A day later the source begins again with its cell, and gets no more in all than it may.
    host.wait_ms(2 * 86_400_000);
    assert_eq!(host.passed(&frame, 200), 80);
}

#[test]
fn a_cell_is_tracked_for_as_long_as_the_entry_behind_it_is_not_full() {
    let host = host(prefiltered(&["80 packets/day"]));
    let (frame, start) = (udp([0, 1], 53, 8), host.now_q8());
    let cell = prefilter::cell_index(Sender::of(&host, &host.policy, &packet(&frame)).hash);
    assert_eq!(host.passed(&frame, 10), 10);
    assert_eq!(host.tracked_until(cell), 0);
    assert_eq!(host.passed(&frame, 1), 1);
    let until = host.tracked_until(cell) - start;
    let day = 86_400 * SECOND_Q8;
    let most = day + day / 2;
    assert!((most..most + SECOND_Q8 * 20).contains(&until), "{until} of {day}");
}

fn packet(frame: &[u8]) -> crate::packet::Packet {
    crate::parse::parse(&crate::frame::Frame::new(crate::frame::Link::Ethernet, frame)).unwrap()
}

#[test]
fn who_is_proven_stays_known_for_ten_minutes_however_soon_its_buckets_are_full() {
    let host = host(prefiltered(&["80 packets/s"]));
    let frame = udp([0, 1], 53, 8);
    let sender = Sender::of(&host, &host.policy, &packet(&frame));
    let cell = prefilter::cell_index(sender.hash);
    let mut request = crate::limit::PacketCharge::NONE;
    request.put(&host.policy, &packet(&frame), sender, 100, host.now_q8());
    for (proven, least) in [(0, SECOND_Q8), (1, PROVEN_Q8)] {
        request.proven = proven;
        crate::limit::entry::keep_tracked(&host, &host.policy.source.set, &request);
        let until = host.tracked_until(cell).wrapping_sub(host.now_q8());
        assert!((least..least + least / 2 + SECOND_Q8).contains(&until), "{proven}: {until}");
    }
    assert_eq!(request.proven_until_q8(), host.now_q8() + PROVEN_Q8);
}

#[test]
fn a_refusal_is_remembered_under_the_policy_that_made_it_and_names_its_meter() {
    for (rates, reason) in [
        (["80 packets/day", "100 MB/day"], Reason::LimitPackets),
        (["1000 packets/day", "100000 bytes/day burst 2000 bytes"], Reason::LimitBytes),
    ] {
        let mut host = host(prefiltered(&rates));
        host.policy.source.set.prefilter_tolerance_q8 = limit(rates[0]).cost_fp;
        let frame = udp([0, 1], 53, 8);
        while host.reason(&frame) == Reason::Conforming {}
        // The table is not looked into any more.
        host.evict(WordTable::Source);
        assert_eq!(reasons(&host, &frame), [reason; 3], "{rates:?}");
        assert_eq!(host.rows(WordTable::Source), 0, "{rates:?}");
        host.policy.generation += 1;
        assert_eq!((host.reason(&frame), host.rows(WordTable::Source)), (Reason::Conforming, 1), "{rates:?}");
        // For at most 268 ms, whatever the limit.
        while host.reason(&frame) == Reason::Conforming {}
        host.evict(WordTable::Source);
        assert_eq!(host.reason(&frame), reason);
        host.wait_ms(270);
        assert_eq!(host.reason(&frame), Reason::Conforming, "{rates:?}");
    }
}

#[test]
fn limits_that_ask_for_some_packets_only_are_not_remembered_for_all() {
    for (rate, frame) in [("16 syns/day", tcp([0, 1], 80, SYN)), ("16 fragments/day", fragment())] {
        let host = host(prefiltered(&["1000 packets/day", rate]));
        assert!(host.passed(&frame, 200) < 30, "{rate}");
        assert_eq!(host.reason(&udp([0, 1], 53, 8)), Reason::Conforming, "{rate}");
    }
}

#[test]
fn there_is_no_entry_for_whoever_comes_when_the_table_is_full_or_the_budget_is_spent() {
    let mut host = host(set(&["100 packets/day"]));
    host.policy.prefilter.new_sources = limit("2 packets/day");
    host.full.set(true);
    assert_eq!(host.reason(&udp([0, 1], 53, 8)), Reason::TableFull);
    host.full.set(false);
    let from = |last| host.reason(&udp([0, last], 53, 8));
    assert_eq!([from(2), from(3)], [Reason::Conforming, Reason::NewSourceBudget], "the first has cost one");
    host.wait_ms(86_400_000 / 2);
    assert_eq!([from(4), from(5)], [Reason::Conforming, Reason::NewSourceBudget]);
}

#[test]
fn a_packet_that_loses_every_race_is_refused_and_one_that_wins_the_last_is_not() {
    for (rates, first) in [(set(&["100 packets/day"]), 1), (prefiltered(&["100 packets/day"]), 0)] {
        let host = host(rates);
        let frame = udp([0, 1], 53, 8);
        assert_eq!(host.passed(&frame, first), first);
        host.lost_races.set(3);
        assert_eq!(host.reason(&frame), Reason::Conforming);
        host.lost_races.set(4);
        assert_eq!(host.reason(&frame), Reason::Contended);
        assert_eq!(host.lost_races.get(), 0);
    }
}

#[test]
fn where_there_is_room_to_add_a_bucket_in_use_is_charged_by_addition() {
    let mut host = host(set(&["10 packets/s burst 10"]));
    host.policy.source.set.adds |= 1;
    let frame = udp([0, 1], 53, 8);
    assert_eq!(host.passed(&frame, 1), 1);
    // No exchange is needed any more, so none is lost.
    host.lost_races.set(100);
    assert_eq!(host.passed(&frame, 50), 9);
    assert_eq!((host.lost_races.get(), word(&host, 0)), (100, host.now_q8() + SECOND_Q8));
    host.wait_ms(100);
    assert_eq!(host.passed(&frame, 50), 1);
    // Each limit of a set has its own way of charging.
    let mut two = self::host(set(&["10 packets/s burst 10", "5 packets/s burst 5"]));
    two.policy.source.set.adds |= 0b10;
    assert_eq!(two.passed(&frame, 1), 1);
    two.lost_races.set(4);
    assert_eq!((two.reason(&frame), two.lost_races.get()), (Reason::Contended, 0), "the first by exchange");
    two.policy.source.set.adds |= 0b11;
    two.lost_races.set(100);
    assert_eq!((two.passed(&frame, 50), two.lost_races.get()), (4, 100));
    // A bucket that is full again starts by exchange.
    host.wait_ms(5_000);
    assert_eq!(host.reason(&frame), Reason::Contended);
    host.lost_races.set(0);
    assert_eq!(host.passed(&frame, 50), 10);
}

#[test]
fn a_bucket_from_a_slower_limit_is_settled_to_be_empty_under_the_new_one() {
    let mut host = host(set(&["3 packets/day"]));
    let frame = udp([0, 1], 53, 8);
    assert_eq!(host.passed(&frame, 9), 3);
    host.policy.source.set = set(&["10 packets/s burst 10"]);
    assert_eq!(reasons(&host, &frame), [Reason::LimitPackets; 2]);
    assert_eq!(word(&host, 0), host.now_q8() + SECOND_Q8, "empty, and no more");
    host.wait_ms(100);
    assert_eq!(host.passed(&frame, 9), 1);
}

/// A soft limit of four packets with a margin of two more.
fn soft(held: u32) -> LimitSet {
    let mut set = set(&["4 packets/day", "6 packets/day"]);
    set.limits[0].frac_bits |= SOFT | held;
    set.adds |= HAS_SOFT;
    set
}

#[test]
fn what_is_above_a_soft_limit_passes_in_its_margin_and_is_named_so() {
    let host = host(soft(0));
    use Reason::{Conforming as In, LimitPackets as Out, SoftMargin as Above};
    assert_eq!(reasons(&host, &udp([0, 1], 53, 8)), [In, In, In, In, Above, Above, Out, Out]);
}

#[test]
fn a_soft_limit_that_is_spent_says_nothing_of_packets_that_it_does_not_count() {
    let mut limits = set(&["2 syns/day", "4 syns/day", "1000 packets/day"]);
    limits.limits[0].frac_bits |= SOFT;
    limits.adds |= HAS_SOFT;
    let host = host(limits);
    use Reason::{Conforming as In, LimitSyns as Out, SoftMargin as Above};
    assert_eq!(reasons(&host, &tcp([0, 1], 80, SYN)), [In, In, Above, Above, Out]);
    assert_eq!(reasons(&host, &tcp([0, 1], 80, 0x10)), [In; 3]);
}

#[test]
fn each_soft_limit_is_charged_in_its_own_meter_wherever_it_stands() {
    use Reason::{Conforming as In, LimitPackets as Out, SoftMargin as Above};
    for others in ["8 syns/day", "1000 packets/day"] {
        for place in 0..4 {
            let mut rates = [others; 4];
            (rates[place], rates[(place + 1) % 4]) = ("2 packets/day", "4 packets/day");
            let mut limits = set(&rates);
            limits.limits[place].frac_bits |= SOFT;
            limits.adds |= HAS_SOFT;
            let reasons = reasons(&host(limits), &udp([0, 1], 53, 8));
            assert_eq!(reasons, [In, In, Above, Above, Out], "place {place} among {others}");
        }
    }
}

#[test]
fn of_two_soft_limits_both_are_charged_and_either_says_that_a_packet_is_above_it() {
    let mut limits = set(&["4 packets/day", "2 packets/day", "6 packets/day"]);
    limits.limits[0].frac_bits |= SOFT;
    limits.limits[1].frac_bits |= SOFT;
    limits.adds |= HAS_SOFT;
    use Reason::{Conforming as In, LimitPackets as Out, SoftMargin as Above};
    assert_eq!(reasons(&host(limits), &udp([0, 1], 53, 8)), [In, In, Above, Above, Above, Above, Out]);
}

#[test]
fn what_a_soft_limit_of_before_has_taken_too_much_is_above_it_now_and_not_refused() {
    let mut host = host(set(&["3 packets/day", "1000 packets/day"]));
    let frame = udp([0, 1], 53, 8);
    assert_eq!(host.passed(&frame, 2), 2);
    host.policy.source.set = set(&["10 packets/s burst 10", "1000 packets/day"]);
    host.policy.source.set.limits[0].frac_bits |= SOFT;
    host.policy.source.set.adds |= HAS_SOFT;
    assert_eq!(host.reason(&frame), Reason::SoftMargin);
    assert_eq!(word(&host, 0), host.now_q8() + SECOND_Q8, "settled to be empty, and no more");
}

#[test]
fn a_source_that_has_no_entry_yet_gets_one_however_little_a_soft_limit_has() {
    let mut limits = prefiltered(&["2 packets/s", "800 packets/day"]);
    limits.prefilter_tolerance_q8 = limits.limits[1].tolerance_q8 / 8;
    limits.limits[0].frac_bits |= SOFT;
    limits.adds |= HAS_SOFT;
    let host = host(limits);
    assert_eq!(host.passed(&udp([0, 1], 53, 8), 300), 300);
    assert_eq!(host.rows(WordTable::Source), 1);
}

#[test]
fn a_soft_limit_without_a_margin_refuses_what_loses_every_race_for_it() {
    let mut host = host(soft(HELD));
    host.policy.source.set.adds |= 0b10;
    let frame = udp([0, 1], 53, 8);
    assert_eq!(host.reason(&frame), Reason::Conforming);
    host.lost_races.set(100);
    assert_eq!(host.reason(&frame), Reason::LimitPackets);
    let mut open = self::host(soft(0));
    open.policy.source.set.adds |= 0b10;
    assert_eq!(open.reason(&frame), Reason::Conforming);
    open.lost_races.set(100);
    assert_eq!(open.reason(&frame), Reason::SoftMargin);
}

#[test]
fn what_others_have_taken_since_a_bucket_was_judged_is_not_taken_once_more_by_addition() {
    let host = host(set(&["10 packets/s burst 10"]));
    let limit = host.policy.source.set.limits[0];
    let word = host.budget(crate::tables::CpuBudget::Newcomers).unwrap();
    let now_q8 = host.now_q8();
    let room = now_q8 + limit.tolerance_q8 - limit.cost_fp;
    for (seen, fits) in [(room, true), (room + 1, false)] {
        host.store(word, seen);
        let taken = charge(&host, word, &limit, now_q8, limit.cost_fp, Start::FULL, Charging::Add);
        assert_eq!(taken.is_ok(), fits, "{}", seen - now_q8);
        assert_eq!(host.load(word), if fits { seen + limit.cost_fp } else { seen });
    }
}

#[test]
fn the_daemon_is_told_of_what_is_refused_and_not_of_what_is_admitted() {
    let host = host(set(&["2 packets/day"]));
    assert_eq!(host.passed(&udp([0, 1], 53, 8), 2), 2);
    assert_eq!(host.told.borrow().len(), 0);
    assert_eq!(host.reason(&udp([0, 1], 53, 8)), Reason::LimitPackets);
    assert_eq!(host.told.borrow().len(), 1);
}

#[test]
fn a_margin_that_is_held_or_has_not_begun_admits_nothing() {
    let host_held = host(soft(HELD));
    assert_eq!(host_held.passed(&udp([0, 1], 53, 8), 9), 4);
    let mut later = host(soft(0));
    later.policy.source.set.margins_from_q8 = later.now_q8() + SECOND_Q8;
    assert_eq!(later.passed(&udp([0, 1], 53, 8), 9), 4);
    later.wait_ms(1_000);
    assert_eq!(later.reason(&udp([0, 1], 53, 8)), Reason::SoftMargin);
}

#[test]
fn what_every_source_owes_since_a_change_is_taken_from_its_burst() {
    let mut host = host(set(&["10 packets/s burst 10"]));
    host.policy.source.set.owed_since_q8 = host.now_q8();
    host.policy.source.set.owed_q8 = SECOND_Q8 / 10 * 7;
    let frame = udp([0, 1], 53, 8);
    assert_eq!(host.passed(&frame, 9), 3);
    host.wait_ms(100);
    assert_eq!(host.passed(&udp([0, 2], 53, 8), 9), 4, "a tenth of a second later");
}

#[test]
fn the_clock_of_the_policy_decides() {
    for (clock, passed) in [(Clock::Precise, 1), (Clock::Coarse, 0)] {
        let mut host = host(set(&["10 packets/s burst 1"]));
        host.policy.clock = clock as u32;
        host.lag_ns.set(4_000_000);
        let frame = udp([0, 1], 53, 8);
        assert_eq!(host.passed(&frame, 9), 1);
        host.wait_ms(100);
        host.lag_ns.set(8_000_000);
        assert_eq!(host.passed(&frame, 9), passed, "{clock:?}");
    }
}

#[test]
fn a_source_without_a_limit_that_applies_needs_no_entry() {
    let host = host(prefiltered(&["100 syns/day"]));
    assert_eq!((host.passed(&udp([0, 1], 53, 8), 500), host.rows(WordTable::Source)), (500, 0));
    let unlimited = host_without_limits();
    assert_eq!(unlimited.reason(&udp([0, 1], 53, 8)), Reason::Unlimited);
}

fn host_without_limits() -> TestHost {
    TestHost::new(empty())
}

#[test]
fn an_entry_that_another_cpu_has_made_first_is_used() {
    let host = host(prefiltered(&["80 packets/day"]));
    let frame = udp([0, 1], 53, 8);
    assert_eq!(host.passed(&frame, 11), 11);
    // The mark of the cell is cleared; the old entry is still there when a new one is needed.
    let cell = prefilter::cell_index(Sender::of(&host, &host.policy, &packet(&frame)).hash);
    host.track_until(cell, 0);
    let address = Address::v4(u32::from_ne_bytes([10, 0, 0, 1])).key;
    assert_eq!(host.keys(WordTable::Source), [[address.hi, address.lo, 0]]);
    assert_eq!(host.passed(&frame, 500), 69, "what the entry has left");
    let words: [WordPlace; 1] = [(WordTable::Source, 0)];
    assert_eq!(host.load(words[0]), host.now_q8() + 86_400 * SECOND_Q8);
    assert!(host.now_ns.get() > SECOND_NS);
}
