//! Segments whose source has to show a connection, and SYNs that are answered with cookies.

extern crate std;

use std::vec;

use ratelimit_common::{
    abi::{
        Reason, Service, Verdict,
        limit::{HAS_SOFT, SOFT},
    },
    limit::prefilter::NegativeCause,
};

use super::{PORT, reasons, with_service, with_user};
use crate::{
    cookie::Proof,
    frame::{Frame, Link},
    limit::{self, Sender},
    parse::parse,
    tables::Successor,
    testbed::{self, SYN, TestHost, aggregated, empty, prefiltered, set, tcp, total, udp},
};

const ACK: u8 = 0x10;

/// A host whose service answers every SYN but the first with a cookie.
fn host(rates: &[&str]) -> TestHost {
    let mut policy = empty();
    policy.source.set = set(rates);
    policy.cookie_services = 1;
    with_service(&mut policy, Service { syn_cookies: testbed::limit("1 syns/day"), ..Service::UNUSED });
    let mut host = TestHost::new(policy);
    host.programs = vec![Successor::Answer, Successor::Prove];
    host
}

/// Makes the service answer with cookies, by SYNs of sources that the tests do not use.
fn attack(host: &TestHost) {
    for last in [250, 251] {
        host.end(&tcp([9, last], PORT, SYN));
    }
    host.handed_over.borrow_mut().clear();
}

#[test]
fn a_segment_that_showed_a_connection_is_still_its_users() {
    let mut host = host(&["1000 packets/s"]);
    with_user(&mut host, [0, 1]);
    host.users.push(set(&["3 packets/day"]));
    attack(&host);
    host.proof.set(Proof::Connection);
    use Reason::{Conforming, LimitUser};
    let segment = tcp([0, 1], PORT, ACK);
    assert_eq!(reasons(&host, &segment), [Conforming, Conforming, Conforming, LimitUser]);
    assert_eq!(*host.handed_over.borrow(), [Successor::Prove; 4]);
}

#[test]
fn the_daemon_is_told_of_a_segment_that_showed_a_connection_only_if_it_is_refused() {
    let mut host = host(&["2 packets/day", "4 packets/day"]);
    host.policy.source.set.limits[0].frac_bits |= SOFT;
    host.policy.source.set.adds |= HAS_SOFT;
    attack(&host);
    host.told.borrow_mut().clear();
    host.proof.set(Proof::Connection);
    let segment = tcp([0, 1], PORT, ACK);
    use Reason::{Conforming, LimitPackets, SoftMargin};
    assert_eq!(reasons(&host, &segment), [Conforming, Conforming, SoftMargin, SoftMargin]);
    assert!(host.told.borrow().is_empty(), "what a margin admits is no refusal");
    assert_eq!(host.reason(&segment), LimitPackets);
    assert_eq!(*host.handed_over.borrow(), [Successor::Prove; 5]);
    let [event] = host.told.borrow()[..] else { panic!("{:?}", host.told) };
    assert_eq!(event.reason, LimitPackets as u32);
}

#[test]
fn a_syn_that_cannot_be_answered_costs_what_every_syn_does() {
    let host = host(&["1000 packets/day", "3 syns/day"]);
    attack(&host);
    let syn = tcp([0, 1], PORT, SYN);
    use Reason::{Conforming, LimitSyns};
    assert_eq!(reasons(&host, &syn), [Conforming, Conforming, Conforming, LimitSyns]);
    assert_eq!(host.handed_over.borrow()[..2], [Successor::Answer, Successor::Prove]);
}

#[test]
fn so_many_sockets_are_looked_up_and_half_of_them_for_sources_that_were_asked() {
    let mut policy = empty();
    policy.source.set = set(&["10 packets/s"]);
    policy.prefilter.new_sources = testbed::limit("1 packets/day");
    policy.prefilter.proofs = testbed::limit("10 packets/day");
    let mut host = TestHost::new(policy);
    host.programs = vec![Successor::Prove];
    assert_eq!(host.end(&udp([8, 9], 53, 8)).verdict, Verdict::Pass, "nothing is left for newcomers");
    let asks = |host: &TestHost, last: u8, times: u32| {
        host.handed_over.borrow_mut().clear();
        for _ in 0..times {
            assert_eq!(host.reason(&tcp([0, last], PORT, ACK)), Reason::NewSourceBudget, "{last}");
        }
        host.handed_over.borrow().len()
    };
    assert_eq!(asks(&host, 1, 20), 5, "the first half is for whoever was asked a moment ago");
    assert_eq!((2..30).map(|last| asks(&host, last, 1)).sum::<usize>(), 5, "the other half is not");
    assert_eq!(asks(&host, 40, 1), 0);
}

#[test]
fn who_has_an_account_is_asked_for_a_connection_when_its_prefix_refuses_and_not_when_a_total_does() {
    let mut policy = empty();
    policy.source.set = set(&["1000 packets/day"]);
    with_service(&mut policy, Service { total_count: 1, ..Service::UNUSED });
    policy.services[0].totals[0] = total("2 packets/day");
    let mut host = TestHost::new(policy);
    host.programs = vec![Successor::Prove];
    let segment = tcp([0, 1], PORT, ACK);
    // The first packet is of an untracked source, and untracked sources are asked for a connection.
    assert_eq!(reasons(&host, &segment), [Reason::Conforming, Reason::Conforming, Reason::ServiceTotal]);
    assert!(host.handed_over.borrow().is_empty(), "it would help nobody");
    let mut policy = empty();
    policy.source.set = set(&["16 packets/day"]);
    policy.aggregation = aggregated(&policy.source.set, 24, 1);
    let mut host = TestHost::new(policy);
    host.programs = vec![Successor::Prove];
    while host.reason(&segment) == Reason::Conforming {}
    assert_eq!(host.handed_over.borrow()[..], [Successor::Prove]);
    host.proof.set(Proof::Connection);
    assert_eq!(
        host.reason(&segment),
        Reason::Conforming,
        "the last quarter of a prefix is for those who are real"
    );
}

#[test]
fn who_has_shown_a_connection_is_no_longer_known_as_refused_for_its_prefix() {
    // If a total may refuse first, a prefix's refusal is remembered for each source; otherwise the prefix is checked before the source.
    for (host_totals, refused) in [(1, Some(NegativeCause::Shared)), (0, None)] {
        let mut policy = empty();
        policy.source.set = prefiltered(&["16 packets/day"]);
        policy.aggregation = aggregated(&policy.source.set, 24, 1);
        policy.host_total_count = host_totals;
        policy.host_totals[0] = total("1000 packets/s");
        let mut host = TestHost::new(policy);
        host.programs = vec![Successor::Prove];
        let (datagram, segment) = (udp([0, 1], PORT, 8), tcp([0, 1], PORT, ACK));
        let known = |host: &TestHost| {
            let packet = parse(&Frame::new(Link::Ethernet, &datagram)).unwrap();
            let hash = Sender::of(host, &host.policy, &packet).hash;
            limit::known(host, &host.policy, hash, host.now_q8())
        };
        while host.reason(&datagram) == Reason::Conforming {}
        assert_eq!(host.reason(&datagram), Reason::LimitPrefix);
        assert_eq!(known(&host), refused);
        assert_eq!(host.reason(&segment), Reason::LimitPrefix, "no connection");
        assert_eq!(known(&host), refused);
        host.proof.set(Proof::Connection);
        // A source that was asked a moment ago is asked again when the budget has room.
        host.wait_ms(10_000);
        while host.reason(&datagram) == Reason::Conforming {}
        assert_eq!((host.reason(&segment), known(&host)), (Reason::Conforming, None));
        assert_eq!(
            host.reason(&datagram),
            Reason::Conforming,
            "the last quarter of a prefix is for those who are real"
        );
    }
}
