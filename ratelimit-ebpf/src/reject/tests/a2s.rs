//! Challenges for queries of game servers that a total refuses.

use std::vec::Vec;

use ratelimit_common::abi::{Reason, Verdict, counter::Fate, service::Challenge};

use super::{
    check_v4,
    dns::{datagram, response, spent, tagged},
    folded, std,
};
use crate::testbed::TestHost;

/// A game server whose total is spent.
fn host() -> TestHost {
    let mut host = spent();
    host.policy.services[0].challenge = Challenge::A2s as u16;
    // What a known client may have while nothing is left for others.
    host.policy.services[0].totals[0].limit.tolerance_q8 *= 4;
    host
}

fn info(number: &[u8]) -> Vec<u8> {
    [&b"\xff\xff\xff\xff\x54Source Engine Query\0"[..], number].concat()
}

fn players(number: [u8; 4]) -> Vec<u8> {
    [&b"\xff\xff\xff\xff\x55"[..], &number].concat()
}

/// The number of the challenge for a query.
fn number(host: &TestHost, source: [u8; 2], is_v6: bool, query: &[u8]) -> [u8; 4] {
    let frame = datagram(source, is_v6, query);
    let challenge = response(host, &frame).expect("a challenge");
    assert!(challenge.len() <= frame.len(), "no longer than the query");
    let at = if is_v6 { 54 } else { 34 };
    if !is_v6 {
        check_v4(&challenge, 17);
    }
    assert_eq!(challenge.len(), at + 17);
    assert_eq!(challenge[at..at + 6], [0, 53, 0xc0, 1, 0, 17]);
    let addresses = &challenge[if is_v6 { 22 } else { 26 }..at];
    let pseudo = [addresses, &[0, 17, 0, 17], &challenge[at..]].concat();
    assert_eq!(folded(&pseudo), 0xffff);
    assert_eq!(challenge[at + 8..at + 13], *b"\xff\xff\xff\xff\x41");
    challenge[at + 13..].try_into().unwrap()
}

#[test]
fn a_query_with_the_right_number_makes_its_source_known() {
    for is_v6 in [false, true] {
        let host = host();
        let first = number(&host, [0, 1], is_v6, &info(&[]));
        // The number is right, so there is another challenge, and the next query reaches the server.
        let second = number(&host, [0, 1], is_v6, &info(&first));
        let next = datagram([0, 1], is_v6, &info(&second));
        assert_eq!(host.reason(&next), Reason::Conforming);
        // A number is of its source.
        number(&host, [1, 2], is_v6, &info(&first));
        assert_eq!(host.reason(&datagram([1, 2], is_v6, &info(&[]))), Reason::ServiceTotal);
    }
}

#[test]
fn a_tagged_query_of_a_game_is_answered_with_its_tag() {
    for is_v6 in [false, true] {
        let host = host();
        let query = datagram([0, 1], is_v6, &info(&[]));
        let plain = response(&host, &query).expect("a challenge");
        assert_eq!(response(&host, &tagged(&query)), Some(tagged(&plain)));
    }
}

#[test]
fn a_number_is_right_for_one_to_two_minutes() {
    for (seconds, expected) in
        [(0, Reason::Conforming), (69, Reason::Conforming), (138, Reason::ServiceTotal)]
    {
        let host = host();
        let first = number(&host, [0, 1], false, &players([0xff; 4]));
        host.wait_ms(seconds * 1_000);
        number(&host, [0, 1], false, &players(first));
        assert_eq!(host.reason(&datagram([0, 1], false, &players(first))), expected, "after {seconds} s");
    }
}

#[test]
fn what_is_no_query_of_a_game_is_dropped() {
    let host = host();
    for (what, message) in [
        ("another kind", b"\xff\xff\xff\xff\x57\0\0\0\0".to_vec()),
        ("no mark", b"\xff\xff\xff\xfe\x55\0\0\0\0".to_vec()),
        ("a short one", b"\xff\xff\xff\xff\x55\0\0\0".to_vec()),
        ("a long one", b"\xff\xff\xff\xff\x55\0\0\0\0\0".to_vec()),
        ("another text", b"\xff\xff\xff\xff\x54Source engine Query\0".to_vec()),
        ("half a number", info(&[1, 2])),
        ("nothing", Vec::new()),
    ] {
        let end = host.end(&datagram([0, 1], false, &message));
        assert_eq!((end.verdict, end.fate), (Verdict::Drop, Fate::Decided), "{what}");
    }
}
