//! When SYNs are answered with cookies, and what the answers cost the source.

extern crate std;

use std::{vec, vec::Vec};

use ratelimit_common::{
    abi::{Limit, Reason, Service, Verdict, policy::NO_TCP_OPTIONS, service::COOKIES_HOLD_Q8},
    limit::fair::PROVEN_Q8,
};

use super::{PORT, reasons, with_service};
use crate::{
    cookie::{CookieListener, Issued, Proof},
    tables::{Successor, Tables as _},
    testbed::{
        IpFrame, SECOND_Q8, SYN, TestHost, WordTable, empty, limit, prefiltered, set, tcp, total, udp,
    },
};

const ACK: u8 = 0x10;

/// A host whose service answers SYNs with cookies above two a second.
fn host(rates: &[&str]) -> TestHost {
    let mut policy = empty();
    policy.source.set = set(rates);
    policy.cookie_services = 1;
    with_service(&mut policy, Service { syn_cookies: limit("2 syns/s burst 2"), ..Service::UNUSED });
    let mut host = TestHost::new(policy);
    host.programs = vec![Successor::Answer, Successor::Prove];
    host.issued = Some(Issued { cookie: 0x1234_5678, mss: 1_460, listener: None });
    host
}

fn syn(last: u8) -> Vec<u8> {
    tcp([0, last], PORT, SYN)
}

#[test]
fn cookies_begin_above_the_threshold_and_end_ten_seconds_after_the_last_syn_above_it() {
    let host = host(&["1000 packets/s"]);
    use Reason::{Conforming, CookieInvalid, CookieSent};
    assert_eq!(reasons(&host, &syn(1)), [Conforming, Conforming, CookieSent, CookieSent]);
    assert_eq!(host.load((WordTable::Syn, 1)), host.now_q8() + COOKIES_HOLD_Q8);
    assert_eq!(host.reason(&tcp([0, 2], PORT, ACK)), CookieInvalid, "who has nothing to show");
    assert_eq!(host.reason(&udp([0, 2], PORT, 8)), Conforming);
    host.wait_ms(9_999);
    assert_eq!(host.reason(&syn(1)), CookieSent, "within the threshold, and still defended");
    host.wait_ms(1);
    assert_eq!(host.reason(&syn(1)), Conforming);
    assert_eq!(host.reason(&tcp([0, 2], PORT, ACK)), Conforming);
}

#[test]
fn a_flood_that_goes_on_moves_the_end_of_cookies_about_once_a_second() {
    let host = host(&["1000000 packets/s"]);
    let mut ends = Vec::new();
    for _ in 0..40 {
        host.wait_ms(100);
        host.passed(&syn(1), 3);
        ends.push(host.load((WordTable::Syn, 1)));
    }
    ends.dedup();
    assert!((3..=5).contains(&ends.len()), "{} times in four seconds", ends.len());
    let left = ends.last().unwrap() - host.now_q8();
    assert!((9 * SECOND_Q8..=COOKIES_HOLD_Q8).contains(&left), "{left}");
}

#[test]
fn an_answer_costs_its_source_a_packet_and_no_connection() {
    let host = host(&["6 packets/day", "2 syns/day"]);
    use Reason::{Conforming, CookieSent, LimitPackets};
    // SYNs of other sources: after these, SYNs are answered with cookies.
    assert_eq!([8, 9, 10].map(|last| host.reason(&syn(last))), [Conforming, Conforming, CookieSent]);
    let mine: [Reason; 7] = reasons(&host, &syn(1));
    assert_eq!(mine, [CookieSent, CookieSent, CookieSent, CookieSent, CookieSent, CookieSent, LimitPackets]);
    // The connection is charged when the acknowledgement of the answer comes.
    let host = self::host(&["60 packets/day", "2 syns/day"]);
    assert_eq!([8, 9, 10].map(|last| host.reason(&syn(last))), [Conforming, Conforming, CookieSent]);
    host.proof.set(Proof::Cookie);
    let acknowledged: [Reason; 3] = reasons(&host, &tcp([0, 1], PORT, ACK));
    assert_eq!(acknowledged, [Reason::CookieValid, Reason::CookieValid, Reason::LimitSyns]);
}

#[test]
fn where_only_connections_are_limited_an_answer_costs_one() {
    let host = host(&["3 syns/day"]);
    use Reason::{Conforming, CookieSent, LimitSyns};
    assert_eq!([8, 9, 10].map(|last| host.reason(&syn(last))), [Conforming, Conforming, CookieSent]);
    assert_eq!(reasons(&host, &syn(1)), [CookieSent, CookieSent, CookieSent, LimitSyns]);
}

#[test]
fn a_source_that_is_over_a_limit_of_its_own_neither_counts_nor_is_answered() {
    let host = host(&["2 packets/day"]);
    use Reason::{Conforming, LimitPackets};
    assert_eq!(reasons(&host, &udp([0, 1], 53, 8)), [Conforming, Conforming, LimitPackets]);
    assert_eq!(host.reason(&syn(1)), LimitPackets);
    assert_eq!(host.load((WordTable::Syn, 0)), 0);
}

#[test]
fn whoever_there_is_no_room_for_is_answered_all_the_same() {
    let mut host = host(&["100 packets/day"]);
    host.policy.prefilter.new_sources.tolerance_q8 = 0;
    assert_eq!(
        reasons(&host, &syn(1)),
        [Reason::NewSourceBudget, Reason::NewSourceBudget, Reason::CookieSent]
    );
    let mut per_source = self::host(&["100 packets/day"]);
    per_source.policy.services[0].per_source = set(&["100 packets/day"]);
    per_source.policy.prefilter.new_sources = limit("2 packets/day");
    assert_eq!(per_source.reason(&syn(1)), Reason::Conforming, "both accounts");
    assert_eq!(reasons(&per_source, &syn(2)), [Reason::NewSourceBudget, Reason::CookieSent]);
    // The cell of the source has something left, and the service has no room for an entry.
    let mut at_the_service = self::host(&[]);
    at_the_service.policy.source.set = prefiltered(&["800 packets/day"]);
    at_the_service.policy.services[0].per_source = set(&["100 packets/day"]);
    at_the_service.policy.prefilter.new_sources.tolerance_q8 = 0;
    assert_eq!(
        reasons(&at_the_service, &syn(1)),
        [Reason::NewSourceBudget, Reason::NewSourceBudget, Reason::CookieSent]
    );
}

#[test]
fn other_packets_and_other_services_are_left_alone() {
    let host = host(&["1000 packets/s"]);
    assert_eq!(host.passed(&tcp([0, 1], 81, SYN), 50), 50);
    assert_eq!(host.passed(&tcp([0, 1], PORT, ACK), 50), 50);
    assert_eq!(host.load((WordTable::Syn, 0)), 0);
    assert!(host.handed_over.borrow().is_empty());
    let mut without = self::host(&["1000 packets/s"]);
    without.policy.services[0].syn_cookies = Limit::UNUSED;
    assert_eq!(without.passed(&syn(1), 50), 50);
    let mut off = self::host(&["1000 packets/s"]);
    off.policy.cookie_services = 0;
    assert_eq!(off.passed(&syn(1), 50), 50);
    let mut tunnel = self::host(&["1000 packets/s"]);
    tunnel.answers = false;
    assert_eq!(tunnel.passed(&syn(1), 50), 50);
}

#[test]
fn a_kernel_without_the_programs_for_it_gets_the_syns() {
    let mut host = host(&["1000 packets/s", "5 syns/day"]);
    host.programs.clear();
    assert_eq!(host.passed(&syn(1), 50), 5, "and they cost what every SYN does");
    assert_eq!(host.handed_over.borrow().first(), Some(&Successor::Answer));
}

#[test]
fn a_syn_that_races_are_lost_for_counts_as_within_the_threshold() {
    let host = host(&["1000 packets/s"]);
    assert_eq!(host.reason(&syn(1)), Reason::Conforming);
    let seen = host.load((WordTable::Syn, 0));
    host.lost_races.set(2);
    assert_eq!(host.reason(&syn(1)), Reason::Conforming);
    assert_eq!(host.load((WordTable::Syn, 0)), seen, "it was one of very many");
}

#[test]
fn a_connection_makes_its_source_proven_and_known_whatever_the_budget() {
    let mut host = host(&["100 packets/day"]);
    host.policy.source.set = prefiltered(&["800 packets/day"]);
    host.policy.prefilter.new_sources.tolerance_q8 = 0;
    host.passed(&syn(9), 3);
    host.proof.set(Proof::Connection);
    assert_eq!(host.rows(WordTable::Source), 0);
    assert_eq!(host.reason(&tcp([0, 1], PORT, ACK)), Reason::Conforming);
    assert_eq!(host.rows(WordTable::Source), 1);
    assert_eq!(host.load((WordTable::Source, 4)), host.now_q8() + PROVEN_Q8);
    // Shown again later, the proof is remembered for longer.
    host.wait_ms(1_000);
    assert_eq!(host.reason(&tcp([0, 1], PORT, ACK)), Reason::Conforming);
    assert_eq!(host.load((WordTable::Source, 4)), host.now_q8() + PROVEN_Q8);
    // A handshake shows nothing that could not be forged.
    host.proof.set(Proof::Handshake);
    assert_eq!(host.reason(&tcp([0, 2], PORT, ACK)), Reason::Conforming, "its cell vouches");
    assert_eq!(host.rows(WordTable::Source), 1);
}

#[test]
fn who_is_proven_finds_what_untracked_sources_may_not_have() {
    let mut host = host(&["1000 packets/day"]);
    host.policy.services[0].total_count = 1;
    host.policy.services[0].totals[0] = total("8 packets/day");
    host.passed(&syn(9), 3);
    host.proof.set(Proof::Handshake);
    // Two SYNs passed.
    let untracked = (20..40).filter(|last| host.reason(&tcp([0, *last], PORT, ACK)) == Reason::Conforming);
    assert_eq!(untracked.count(), 4);
    host.proof.set(Proof::Connection);
    let end = host.end(&tcp([0, 1], PORT, ACK));
    assert_eq!((end.verdict, end.reason), (Verdict::Pass, Reason::Conforming));
}

#[test]
fn the_answer_says_what_the_listener_would() {
    let mut host = host(&["1000 packets/s"]);
    host.issued = Some(Issued {
        cookie: 0x1234_5678,
        mss: 1_460,
        listener: Some(CookieListener::new(65_536, true, 0, 1_000)),
    });
    host.passed(&syn(1), 3);
    let sent = host.sent.borrow();
    let [frame] = &sent[..] else { panic!("{}", sent.len()) };
    assert_eq!(frame[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], "back to whom it came from");
    assert_eq!((&frame[26..30], &frame[30..34]), (&[192, 0, 2, 1][..], &[10, 0, 0, 1][..]));
    assert_eq!(frame[34..38], [0, PORT as u8, 0xc0, 1]);
    assert_eq!(frame[38..46], [0x12, 0x34, 0x56, 0x78, 0, 0, 0, 8], "the cookie, and what it acknowledges");
    assert_eq!(frame[46..48], [0x60, 0x12], "six words, SYN and ACK");
    assert_eq!(frame[54..58], [2, 4, 0x03, 0xe8], "the largest segment of the listener");
    assert_eq!(u16::from_be_bytes([frame[48], frame[49]]), 10_000, "ten of them");
}

#[test]
fn what_the_interface_takes_bounds_the_segment_and_groups_get_no_answer() {
    let host = host(&["1000 packets/s"]);
    host.passed(&syn(1), 3);
    assert_eq!(host.sent.borrow()[0][54..58], [2, 4, 0x05, 0xb4], "1500 less the headers");
    let mut to_all = syn(1);
    to_all[..6].fill(0xff);
    assert_eq!(host.reason(&to_all), Reason::Conforming, "for the kernel to say");
    let mut forged = syn(1);
    forged[26..30].copy_from_slice(&[224, 0, 0, 1]);
    assert_eq!(host.reason(&forged), Reason::CookieInvalid);
    let mut with_reset = syn(1);
    with_reset[47] |= 0x04;
    assert_eq!(host.reason(&with_reset), Reason::CookieInvalid);
    let mut cut = syn(1);
    cut[46] = 0xf0;
    assert_eq!(host.reason(&cut), Reason::Truncated);
    assert_eq!(host.sent.borrow().len(), 1);
}

#[test]
fn the_end_of_cookies_is_moved_when_a_second_of_it_is_over_and_not_before() {
    let host = host(&["1000000 packets/s"]);
    host.passed(&syn(1), 3);
    let end = host.load((WordTable::Syn, 1));
    host.wait_ms(1_000);
    // Above the threshold again.
    host.passed(&syn(1), 3);
    assert_eq!(host.load((WordTable::Syn, 1)), end, "nine seconds are left");
    host.wait_ms(1);
    host.passed(&syn(1), 3);
    assert_eq!(host.load((WordTable::Syn, 1)), host.now_q8() + COOKIES_HOLD_Q8);
}

#[test]
fn what_a_client_offers_is_taken_up_unless_the_kernel_of_this_host_would_not_remember_it() {
    let options = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7];
    let header = [0xc0, 1, 0, PORT as u8, 0, 0, 0, 7, 0, 0, 0, 0, 0xa0, SYN, 0xff, 0xff, 0, 0, 0, 0];
    let payload = [&header[..], &options].concat();
    let frame = IpFrame { source: [0, 1], is_v6: false, protocol: 6, fragment: 0, payload }.frame();
    // Words of the answer's TCP header: five, and one for the MSS.
    for (window_scale, words) in [(NO_TCP_OPTIONS, 6..=6), (7, 7..=15)] {
        let mut host = host(&["1000 packets/s"]);
        host.policy.window_scale = window_scale;
        let [.., last]: [Reason; 3] = reasons(&host, &frame);
        assert_eq!(last, Reason::CookieSent);
        let answer = &host.sent.borrow()[0];
        let answered = answer[46] >> 4;
        assert!(words.contains(&answered), "{answered} words, scale {window_scale}");
        if window_scale != NO_TCP_OPTIONS {
            let stamp = u32::from_be_bytes([answer[62], answer[63], answer[64], answer[65]]);
            let behind = host.now_ns.get() / 1_000_000 - u64::from(stamp);
            assert!(behind < 64, "milliseconds of the clock: {stamp}");
        }
    }
}

#[test]
fn a_host_that_forwards_answers_no_syn() {
    let mut host = host(&["1000 packets/s", "5 syns/day"]);
    host.forwards = true;
    assert_eq!(host.passed(&syn(1), 50), 5, "they cost what every SYN does");
    assert!(host.sent.borrow().is_empty());
    assert_eq!(host.handed_over.borrow()[..2], [Successor::Answer, Successor::Prove]);
}

#[test]
fn segments_for_no_listener_need_no_proof() {
    use Reason::{Conforming, CookieInvalid, LimitPackets};
    let segment = |last| tcp([0, last], PORT, ACK);
    for (forwards, reason) in [(false, CookieInvalid), (true, Conforming)] {
        let mut host = host(&["3 packets/day"]);
        host.passed(&syn(9), 3);
        host.forwards = forwards;
        let expected = match reason {
            Conforming => [Conforming, Conforming, Conforming, LimitPackets],
            refused => [refused; 4],
        };
        assert_eq!(reasons(&host, &segment(1)), expected, "forwards: {forwards}");
        let rows = 1 + usize::from(reason == Conforming);
        assert_eq!(host.rows(WordTable::Source), rows, "no proven source");
    }
}

#[test]
fn a_limit_refuses_segments_for_no_socket_too() {
    let mut host = host(&["100 packets/day"]);
    host.policy.source.set = prefiltered(&["800 packets/day"]);
    host.policy.prefilter.new_sources.tolerance_q8 = 0;
    host.policy.services[0].syn_cookies = Limit::UNUSED;
    host.policy.services[0].total_count = 1;
    host.policy.services[0].totals[0] = total("8 packets/day");
    host.forwards = true;
    while host.reason(&tcp([0, 1], PORT, ACK)) == Reason::Conforming {}
    assert_eq!(host.reason(&tcp([0, 2], PORT, ACK)), Reason::ServiceTotal);
    assert_eq!(host.handed_over.borrow().last(), Some(&Successor::Prove));
}
