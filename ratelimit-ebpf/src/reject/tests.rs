//! Replies to senders of refused packets.

mod a2s;
mod dns;

extern crate std;

use std::{vec, vec::Vec};

use ratelimit_common::abi::{
    OnLimit, Reason, Service, Verdict,
    counter::Fate,
    service::{Protocol, port_slot, protocol_slot},
};

use crate::{
    tables::Successor,
    testbed::{IpFrame, SYN, TestHost, empty, limit, set, tcp, udp},
};

/// A host that rejects all but the first packet of each source, for every service.
fn host() -> TestHost {
    let mut policy = empty();
    policy.source.set = set(&["1 packets/day"]);
    policy.service_count = 1;
    policy.services[0] = Service { on_limit: OnLimit::Reject as u32, ..Service::UNUSED };
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        policy.ports[port_slot(protocol, 53) as usize] = 1;
    }
    for protocol in [1, 47, 58] {
        policy.protocols[protocol_slot(protocol, false) as usize] = 1;
    }
    policy.protocols[protocol_slot(17, true) as usize] = 1;
    policy.lenient = 1;
    let mut host = TestHost::new(policy);
    host.programs = vec![Successor::Reject];
    host
}

/// The one's complement sum of bytes: all ones if a checksum is right.
fn folded(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The reply to the second frame like this; `None` if it was dropped.
fn answer(host: &TestHost, frame: &[u8]) -> Option<Vec<u8>> {
    host.sent.borrow_mut().clear();
    assert_eq!(host.end(frame).verdict, Verdict::Pass);
    let end = host.end(frame);
    assert_eq!(end.reason, Reason::LimitPackets);
    let sent = host.sent.borrow_mut().pop();
    let expected =
        if sent.is_some() { (Verdict::Reply, Fate::Rejected) } else { (Verdict::Drop, Fate::Decided) };
    assert_eq!((end.verdict, end.fate), expected);
    sent
}

/// Checks the headers before the transport header of a reply: addresses, protocol, and checksum.
fn check_v4(reply: &[u8], protocol: u8) {
    assert_eq!(reply[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    assert_eq!(folded(&reply[14..34]), 0xffff, "IP checksum");
    assert_eq!(reply[14..16], [0x45, 0]);
    assert_eq!(usize::from(u16::from_be_bytes([reply[16], reply[17]])), reply.len() - 14);
    assert_eq!((reply[20], reply[22], reply[23]), (0x40, 64, protocol), "not to be cut, 64 hops");
    assert_eq!(reply[26..30], [192, 0, 2, 1]);
    assert_eq!(reply[30..32], [10, 0]);
}

#[test]
fn a_segment_is_answered_with_a_reset_that_its_sender_believes() {
    let host = host();
    // Each row: flags, and the reset's sequence number, acknowledgement and flags. The segment has number 7 and acknowledges 9.
    for (last, flags, sequence, acknowledged, ours) in [
        (1, SYN, 0, 8, 0x14),
        (2, 0x10, 9, 0, 0x04),
        (3, 0x18, 9, 0, 0x04),
        (4, 0x01, 0, 8, 0x14),
        (5, SYN | 0x01, 0, 9, 0x14),
        (6, 0x00, 0, 7, 0x14),
    ] {
        let reply = answer(&host, &tcp([0, last], 53, flags)).unwrap();
        check_v4(&reply, 6);
        let pseudo = [&reply[26..34], &[0, 6, 0, 20], &reply[34..]].concat();
        assert_eq!((reply.len(), folded(&pseudo)), (54, 0xffff), "{flags:x}");
        assert_eq!(reply[34..38], [0, 53, 0xc0, 1], "ports change places");
        let number = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().unwrap());
        assert_eq!((number(38), number(42)), (sequence, acknowledged), "{flags:x}");
        assert_eq!(reply[46..48], [0x50, ours], "{flags:x}");
    }
    assert_eq!(answer(&host, &tcp([0, 7], 53, 0x04)), None, "never a reset for a reset");
    // Data is acknowledged too: six bytes behind the header.
    let mut payload = tcp([0, 0], 53, 0)[34..].to_vec();
    payload.extend([1; 6]);
    let frame = IpFrame { source: [0, 8], is_v6: false, protocol: 6, fragment: 0, payload }.frame();
    let reply = answer(&host, &frame).unwrap();
    assert_eq!(reply[42..46], [0, 0, 0, 13]);
}

#[test]
fn anything_else_is_answered_with_an_error_that_repeats_its_beginning() {
    let host = host();
    let frame = udp([0, 1], 53, 8);
    let reply = answer(&host, &frame).unwrap();
    check_v4(&reply, 1);
    assert_eq!(
        (reply.len(), &reply[34..36]),
        (14 + 20 + 8 + 28, &[3, 13][..]),
        "administratively prohibited"
    );
    assert_eq!((&reply[38..42], &reply[42..70]), (&[0; 4][..], &frame[14..42]));
    assert_eq!(folded(&reply[34..]), 0xffff, "without a pseudo header");
    let gre =
        IpFrame { source: [0, 2], is_v6: false, protocol: 47, fragment: 0, payload: vec![9; 30] }.frame();
    assert_eq!(answer(&host, &gre).unwrap()[42..70], gre[14..42]);
    let v6 =
        IpFrame { source: [0, 3], is_v6: true, protocol: 17, fragment: 0, payload: frame[34..].to_vec() }
            .frame();
    let reply = answer(&host, &v6).unwrap();
    assert_eq!((reply.len(), &reply[54..56]), (14 + 40 + 8 + 48, &[1, 1][..]));
    assert_eq!((reply[20], reply[21], &reply[18..20]), (58, 64, &[0, 56][..]));
    assert_eq!((&reply[22..38], &reply[38..54]), (&v6[38..54], &v6[22..38]), "addresses change places");
    assert_eq!(reply[62..110], v6[14..62]);
    let pseudo = [&reply[22..54], &[0, 0, 0, 56, 0, 0, 0, 58], &reply[54..]].concat();
    assert_eq!(folded(&pseudo), 0xffff);
}

#[test]
fn nobody_is_answered_who_cannot_have_asked_or_speaks_of_an_error() {
    let host = host();
    let icmp = |source, is_v6, protocol| {
        IpFrame { source, is_v6, protocol, fragment: 0, payload: vec![8; 16] }.frame()
    };
    assert_eq!(answer(&host, &icmp([0, 1], false, 1)), None);
    assert_eq!(answer(&host, &icmp([0, 2], true, 58)), None);
    let mut to_all = udp([0, 3], 53, 8);
    to_all[0] |= 1;
    assert_eq!(answer(&host, &to_all), None, "to a group of neighbours");
    let mut from_all = udp([0, 9], 53, 8);
    from_all[6] |= 1;
    assert_eq!(answer(&host, &from_all), None, "it would go to a group of neighbours");
    let mut to_group = udp([0, 4], 53, 8);
    to_group[30] = 224;
    assert_eq!(answer(&host, &to_group), None);
    for (last, first) in [(5, 0), (6, 240)] {
        let mut forged = udp([0, last], 53, 8);
        forged[26] = first;
        assert_eq!(answer(&host, &forged), None, "{first}");
    }
    let piece = IpFrame {
        source: [0, 7],
        is_v6: false,
        protocol: 17,
        fragment: 0x2000,
        payload: udp([0, 0], 53, 8)[34..].to_vec(),
    };
    assert_eq!(answer(&host, &piece.frame()), None, "a piece of a packet");
    let mut with_options = udp([0, 8], 53, 8);
    with_options[14] = 0x46;
    assert_eq!(answer(&host, &with_options), None, "options would have to be repeated");
    let mut tunnel = self::host();
    tunnel.answers = false;
    assert_eq!(answer(&tunnel, &udp([0, 1], 53, 8)), None);
    let mut full = self::host();
    full.sends = false;
    assert_eq!(answer(&full, &udp([0, 1], 53, 8)), None);
}

#[test]
fn each_cpu_answers_so_many() {
    let mut host = host();
    host.policy.prefilter.rejections = limit("3 packets/day");
    host.lag_ns.set(4_000_000);
    let frame = udp([0, 1], 53, 8);
    let ends: Vec<Verdict> = (0..6).map(|_| host.end(&frame).verdict).collect();
    use Verdict::{Drop, Pass, Reply};
    assert_eq!(ends, [Pass, Reply, Reply, Reply, Drop, Drop]);
}

#[test]
fn tags_stay_in_front_of_an_answer() {
    for tags in [1, 2] {
        let host = host();
        let mut frame = udp([0, 1], 53, 8);
        for _ in 0..tags {
            frame.splice(12..12, [0x81, 0x00, 0, 100]);
        }
        let reply = answer(&host, &frame).unwrap();
        let at = 14 + tags * 4;
        assert_eq!(reply[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        assert_eq!(reply[12..at], frame[12..at], "{tags} tags");
        assert_eq!((reply.len(), folded(&reply[at..at + 20])), (at + 20 + 8 + 28, 0xffff));
        assert_eq!(reply[at + 28..], frame[at..at + 28]);
    }
}
