//! Truncated responses to queries that a total refuses.

use std::{vec, vec::Vec};

use ratelimit_common::abi::{
    OnLimit, Reason, Service, Verdict,
    counter::Fate,
    service::{Challenge, Protocol, port_slot},
};

use super::{check_v4, folded, std};
use crate::{
    tables::Successor,
    testbed::{IpFrame, TestHost, empty, set, tcp, total},
};

/// A query: identifier, flags, and the counts of the four sections.
const QUERY: [u8; 12] = [0xab, 0xcd, 0x01, 0x10, 0, 1, 0, 0, 0, 0, 0, 1];
/// An OPT record, as most resolvers send one.
const OPT: [u8; 11] = [0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0];

/// A host whose name service has a total that passes one packet.
fn host() -> TestHost {
    let mut policy = empty();
    policy.service_count = 1;
    let mut service = Service { challenge: Challenge::Dns as u16, total_count: 1, ..Service::UNUSED };
    service.totals[0] = total("4 packets/day");
    service.totals[0].untracked_tolerance_q8 = 0;
    policy.services[0] = service;
    policy.source.set = set(&["1000000 packets/s"]);
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        policy.ports[port_slot(protocol, 53) as usize] = 1;
    }
    policy.lenient = 1;
    let mut host = TestHost::new(policy);
    host.programs = vec![Successor::Reject];
    host
}

/// A question for a name of one label, of `len` bytes in all.
fn question(len: usize) -> Vec<u8> {
    let mut left = len - 5;
    let mut name = Vec::new();
    while left > 0 {
        // A label takes two bytes at least.
        let label = if left == 65 { 62 } else { left.min(64) - 1 };
        name.push(label as u8);
        name.extend((0..label).map(|at| b'a' + (at % 26) as u8));
        left -= label + 1;
    }
    [&name[..], &[0, 0, 1, 0, 1]].concat()
}

pub(super) fn datagram(source: [u8; 2], is_v6: bool, message: &[u8]) -> Vec<u8> {
    let len = (8 + message.len()) as u16;
    let head = [[0xc0, 1], [0, 53], len.to_be_bytes(), [0, 0]].concat();
    IpFrame { source, is_v6, protocol: 17, fragment: 0, payload: [&head, message].concat() }.frame()
}

/// The response to a frame that the spent total refuses; `None` if the frame was dropped.
pub(super) fn response(host: &TestHost, frame: &[u8]) -> Option<Vec<u8>> {
    host.sent.borrow_mut().clear();
    let end = host.end(frame);
    assert_eq!(end.reason, Reason::ServiceTotal);
    let sent = host.sent.borrow_mut().pop();
    let expected =
        if sent.is_some() { (Verdict::Reply, Fate::Rejected) } else { (Verdict::Drop, Fate::Decided) };
    assert_eq!((end.verdict, end.fate), expected);
    sent
}

/// A host whose total is spent.
pub(super) fn spent() -> TestHost {
    let host = host();
    while host.end(&datagram([9, 9], false, &[0; 12])).verdict == Verdict::Pass {}
    host
}

#[test]
fn a_query_is_answered_by_its_question_truncated() {
    let host = spent();
    for len in [5, 7, 8, 17, 64, 69, 70, 71, 127, 200, 258, 259] {
        let question = question(len);
        assert_eq!(question.len(), len);
        for (is_v6, opt) in [(false, &OPT[..]), (false, &[]), (true, &OPT[..])] {
            let mut header = QUERY;
            header[11] = u8::from(!opt.is_empty());
            let query = datagram([len as u8, 1], is_v6, &[&header[..], &question, opt].concat());
            let response = response(&host, &query).expect("a response");
            assert_eq!(response.len(), query.len() - opt.len(), "no longer than the query");
            let at = if is_v6 { 54 } else { 34 };
            if is_v6 {
                assert_eq!((&response[22..38], &response[38..54]), (&query[38..54], &query[22..38]));
            } else {
                check_v4(&response, 17);
            }
            let len = (response.len() - at) as u16;
            assert_eq!(response[at..at + 4], [0, 53, 0xc0, 1], "ports change places");
            assert_eq!(response[at + 4..at + 6], len.to_be_bytes());
            let addresses = &response[if is_v6 { 22 } else { 26 }..at];
            let pseudo = [addresses, &[0, 17], &len.to_be_bytes(), &response[at..]].concat();
            assert_eq!(folded(&pseudo), 0xffff, "{len} bytes, {is_v6}");
            assert_eq!(response[at + 8..at + 20], [0xab, 0xcd, 0x83, 0x90, 0, 1, 0, 0, 0, 0, 0, 0]);
            assert_eq!(response[at + 20..], question);
        }
    }
}

/// A frame with a VLAN tag behind its addresses.
pub(super) fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat()
}

#[test]
fn a_tagged_query_is_answered_with_its_tag() {
    for is_v6 in [false, true] {
        let host = spent();
        let query = datagram([0, 1], is_v6, &[&QUERY[..], &question(17), &OPT].concat());
        let plain = response(&host, &query).expect("a response");
        assert_eq!(response(&host, &tagged(&query)), Some(tagged(&plain)));
    }
}

#[test]
fn a_response_offers_recursion_only_if_asked() {
    let host = spent();
    let mut header = QUERY;
    (header[2], header[11]) = (0, 0);
    let query = datagram([0, 1], false, &[&header[..], &question(9)].concat());
    assert_eq!(response(&host, &query).unwrap()[44..46], [0x82, 0x10]);
}

#[test]
fn what_is_no_whole_query_is_dropped() {
    let host = spent();
    let whole = question(17);
    let message = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut message = [&QUERY[..], &whole, &OPT].concat();
        change(&mut message);
        datagram([0, 1], false, &message)
    };
    assert!(response(&host, &message(&|_| {})).is_some());
    for (what, frame) in [
        ("a response", message(&|m| m[2] |= 0x80)),
        ("a notification", message(&|m| m[2] |= 0x20)),
        ("two questions", message(&|m| m[5] = 2)),
        ("no question", message(&|m| m[5] = 0)),
        ("answers", message(&|m| m[7] = 1)),
        ("authorities", message(&|m| m[9] = 1)),
        ("a pointer", message(&|m| m[12] = 0xc0)),
        ("a label beyond the end", message(&|m| m[12] = 60)),
        ("a cut name", message(&|m| m.truncate(20))),
        ("a cut type", message(&|m| m.truncate(12 + 15))),
        ("a cut header", message(&|m| m.truncate(11))),
        ("a name that is too long", datagram([0, 1], false, &[&QUERY[..], &question(260)].concat())),
    ] {
        assert_eq!(response(&host, &frame), None, "{what}");
    }
    // The question is padding of the frame, and no part of the datagram.
    let mut padded = message(&|_| {});
    padded[39] = 8 + 12 + 10;
    assert_eq!(response(&host, &padded), None);
    let mut with_options = message(&|_| {});
    with_options[14] = 0x46;
    with_options.splice(34..34, [1, 1, 1, 1]);
    let len = (with_options.len() - 14) as u16;
    with_options[16..18].copy_from_slice(&len.to_be_bytes());
    assert_eq!(response(&host, &with_options), None, "a header with options");
    assert_eq!(response(&host, &tcp([0, 1], 53, 0x10)), None, "a segment");
}

#[test]
fn only_what_a_total_refuses_is_challenged() {
    let mut host = host();
    host.policy.source.set = set(&["1 packets/day"]);
    host.policy.services[0].totals[0] = total("1000 packets/day");
    let query = datagram([0, 1], false, &[&QUERY[..], &question(17), &OPT].concat());
    assert_eq!(host.end(&query).verdict, Verdict::Pass);
    let end = host.end(&query);
    assert_eq!((end.verdict, end.reason), (Verdict::Drop, Reason::LimitPackets));
    // With both, other refusals are answered with an error.
    host.policy.services[0].on_limit = OnLimit::Reject as u32;
    assert_eq!(host.end(&query).verdict, Verdict::Reply);
    assert_eq!(host.sent.borrow()[0][23], 1, "ICMP");
}

#[test]
fn a_network_gets_so_many_challenges() {
    let host = spent();
    let query = |net, last| datagram([net, last], false, &[&QUERY[..], &question(17), &OPT].concat());
    let answered = |net| {
        (0..=255).cycle().take(1_000).filter(|last| response(&host, &query(net, *last)).is_some()).count()
    };
    assert_eq!([answered(1), answered(2)], [200, 200]);
    host.wait_ms(500);
    assert_eq!(answered(1), 100);
}

#[test]
fn each_cpu_sends_so_many_challenges() {
    let host = spent();
    let query = |net: usize| {
        let mut frame = datagram([0, 1], false, &[&QUERY[..], &question(17), &OPT].concat());
        frame[27..29].copy_from_slice(&(net as u16).to_be_bytes());
        frame
    };
    let answered = (0..12_000).filter(|net| response(&host, &query(*net)).is_some()).count();
    assert_eq!(answered, 10_000);
}
