//! Known clients of a service or host with a total.

extern crate std;

use std::vec;

use ratelimit_common::{
    abi::{
        Event, Reason, Service, SourceKey,
        service::{Challenge, Protocol, port_slot},
    },
    limit::{
        clients::{self, Client, WAYS},
        prefilter,
    },
};

use super::{PORT, with_service};
use crate::{
    limit::Proof,
    tables::{Successor, Tables as _},
    testbed::{ROW, TestHost, WordTable, empty, prefiltered, tcp, total, udp},
};

/// A little longer than a step of the memory.
const STEP_MS: u64 = 70_000;

/// A host whose totals are these, of a service and of all packets; its sources have no entries until they have sent much.
fn host(of_service: Option<&str>, of_host: Option<&str>) -> TestHost {
    let mut policy = empty();
    policy.source.set = prefiltered(&["1000000 packets/s"]);
    let mut service = Service::UNUSED;
    if let Some(rate) = of_service {
        (service.total_count, service.totals[0]) = (1, total(rate));
    }
    with_service(&mut policy, service);
    if let Some(rate) = of_host {
        (policy.host_total_count, policy.host_totals[0]) = (1, total(rate));
    }
    TestHost::new(policy)
}

/// The hash of 10.0.x.y as a client of the service.
fn hash_of(host: &TestHost, [net, last]: [u8; 2]) -> u64 {
    let secret = host.policy.prefilter.secret;
    let key = SourceKey::from_v4(u32::from_ne_bytes([10, 0, net, last]));
    prefilter::group_hash(prefilter::hash(key, secret), host.policy.services[0].clients_group, secret)
}

fn is_remembered(host: &TestHost, source: [u8; 2]) -> bool {
    let hash = hash_of(host, source);
    let first = u64::from(clients::set_index(hash)) * ROW;
    (first..first + WAYS as u64)
        .any(|word| Client(host.load((WordTable::Clients, word))).is_named(clients::tag(hash)))
}

/// One packet in each of three steps.
fn serve(host: &TestHost, frame: &[u8]) {
    for _ in 0..3 {
        assert_eq!(host.reason(frame), Reason::Conforming);
        host.wait_ms(STEP_MS);
    }
}

/// Spends what sources without an entry may have of the total.
fn spend(host: &TestHost) {
    let frames = (0..=u8::MAX).flat_map(|net| (0..4).map(move |last| udp([net, last], PORT, 8)));
    let refused = frames.map(|frame| host.reason(&frame)).find(|reason| *reason != Reason::Conforming);
    assert!(matches!(refused, Some(Reason::ServiceTotal | Reason::HostTotal)), "{refused:?}");
}

#[test]
fn a_known_client_passes_when_a_total_is_spent() {
    for (of_service, of_host) in
        [(Some("1 packets/s burst 400"), None), (None, Some("1 packets/s burst 400"))]
    {
        let host = host(of_service, of_host);
        let [known, new] = [9, 10].map(|last| udp([7, last], PORT, 8));
        serve(&host, &known);
        spend(&host);
        assert_ne!(host.reason(&new), Reason::Conforming);
        assert_eq!(host.reason(&known), Reason::Conforming);
        // Of the quarter that others cannot have, one packet in eight stays for newcomers.
        let passed = host.passed(&known, 200);
        assert!((1..=87).contains(&passed), "{passed}");
    }
}

#[test]
fn a_client_that_the_filter_lost_is_found_in_its_turn() {
    let host = host(Some("1 packets/s burst 400"), None);
    let (client, hash) = (udp([7, 9], PORT, 8), hash_of(&host, [7, 9]));
    serve(&host, &client);
    spend(&host);
    let mut turns = 0;
    for _ in 0..128 {
        host.store((WordTable::ClientFilter, u64::from(clients::filter_index(hash)) * ROW), 0);
        let is_its_turn = clients::is_unfiltered(hash, host.now_ns.get());
        assert_eq!(host.reason(&client) == Reason::Conforming, is_its_turn, "{} ns", host.now_ns.get());
        turns += u32::from(is_its_turn);
        host.now_ns.set(host.now_ns.get() + (1 << 22));
    }
    assert_eq!(turns, 2);
}

#[test]
fn clients_are_remembered_only_where_a_total_applies() {
    for (of_service, of_host, expected) in
        [(Some("100 packets/s"), None, true), (None, Some("100 packets/s"), true), (None, None, false)]
    {
        let host = host(of_service, of_host);
        assert_eq!(host.reason(&udp([7, 9], PORT, 8)), Reason::Conforming);
        assert_eq!(is_remembered(&host, [7, 9]), expected, "{of_service:?} {of_host:?}");
    }
}

#[test]
fn nothing_is_learned_soon_after_a_total_was_spent() {
    let host = host(Some("100 packets/s burst 100"), None);
    spend(&host);
    host.wait_ms(500);
    assert_eq!(host.reason(&udp([7, 9], PORT, 8)), Reason::Conforming);
    assert!(!is_remembered(&host, [7, 9]));
    host.wait_ms(150);
    assert_eq!(host.reason(&udp([7, 9], PORT, 8)), Reason::Conforming);
    assert!(is_remembered(&host, [7, 9]));
}

#[test]
fn a_connection_makes_its_source_known_to_a_challenger() {
    for (challenge, proof, expected) in [
        (Challenge::Dns, Proof::Connection, Reason::Conforming),
        (Challenge::Dns, Proof::Cookie, Reason::Conforming),
        (Challenge::Dns, Proof::Handshake, Reason::ServiceTotal),
        (Challenge::Dns, Proof::Nothing, Reason::ServiceTotal),
        (Challenge::None, Proof::Connection, Reason::ServiceTotal),
    ] {
        let mut host = host(Some("1 packets/s burst 400"), None);
        host.policy.lenient = 1;
        host.policy.services[0].challenge = challenge as u16;
        // Segments are for another service, or for none.
        host.policy.ports[port_slot(Protocol::Tcp, PORT) as usize] = 0;
        host.programs = vec![Successor::Prove];
        host.proof.set(proof);
        spend(&host);
        host.end(&tcp([7, 9], PORT, 0x10));
        assert_eq!(host.reason(&udp([7, 9], PORT, 8)), expected, "{challenge:?} {proof:?}");
        host.wait_ms(3_600_000);
        spend(&host);
        assert_eq!(host.reason(&udp([7, 9], PORT, 8)), expected, "an hour later");
    }
}

#[test]
fn packets_of_known_clients_are_counted_by_their_end() {
    let host = host(Some("1 packets/s burst 400"), None);
    let client = udp([7, 9], PORT, 8);
    serve(&host, &client);
    spend(&host);
    host.noted.borrow_mut().clear();
    let passed = host.passed(&client, 200) as usize;
    let count = |event| host.noted.borrow().iter().filter(|noted| **noted == event).count();
    assert_eq!([count(Event::KnownAdmitted), count(Event::KnownRefused)], [passed, 200 - passed]);
}

#[test]
fn known_clients_leave_the_ordinary_part_to_newcomers() {
    const TOTAL: Option<&str> = Some("1000 packets/s burst 400");
    for (of_service, of_host, is_filter_full) in
        [(TOTAL, None, false), (None, TOTAL, false), (TOTAL, None, true)]
    {
        let host = host(of_service, of_host);
        let known = udp([7, 9], PORT, 8);
        serve(&host, &known);
        spend(&host);
        let mut passed = [0; 2];
        for ms in 0..6_000_u64 {
            if ms == 1_000 {
                // The reserve's burst is spent.
                passed = [0; 2];
            }
            let new = [100 + (ms / 256) as u8, ms as u8];
            if is_filter_full {
                let index = clients::filter_index(hash_of(&host, new));
                host.store((WordTable::ClientFilter, u64::from(index) * ROW), u64::MAX);
            }
            passed[0] += host.passed(&known, 2);
            passed[1] += host.passed(&udp(new, PORT, 8), 1);
            host.wait_ms(1);
        }
        let [known, newcomers] = passed;
        assert!((4_200..=4_400).contains(&known), "{known}, {of_service:?} {is_filter_full}");
        assert!((610..=800).contains(&newcomers), "{newcomers}, {of_service:?} {is_filter_full}");
    }
}
