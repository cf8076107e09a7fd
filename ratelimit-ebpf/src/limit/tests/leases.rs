//! Leased limits of users, which hold on all hosts together.

use ratelimit_common::abi::{Lease, LimitSet, Reason, lease::lease_place, limit::leased};

use super::with_user;
use crate::testbed::{SECOND_Q8, SYN, TestHost, empty, limit, set, tcp, udp};

/// A host with a user of 10.0.0.1 with these limits, all of them leased, and with empty buckets.
fn host(rates: &[&str]) -> TestHost {
    let mut policy = empty();
    policy.source.set = set(&["1000000 packets/s"]);
    // Source limits are charged by addition, so that an exchange that a test loses is one of a lease.
    policy.source.set.adds |= 1;
    let mut host = TestHost::new(policy);
    with_user(&mut host, [0, 1]);
    let mut user: LimitSet = set(rates);
    for place in 0..rates.len() {
        user.adds |= leased(place);
        user.limits[place].tolerance_q8 = 0;
    }
    host.users.push(user);
    host
}

fn lease(host: &TestHost, place: u32, ceiling: u64) {
    let expires_q8 = host.now_q8() + SECOND_Q8;
    let lease = Lease { ceiling, expires_q8, enough: 1_000_000 };
    host.leases.borrow_mut().insert(lease_place(0, place), lease);
}

#[test]
fn a_lease_in_bytes_is_spent_by_the_bytes_of_each_frame() {
    let host = host(&["100000 bytes/s"]);
    lease(&host, 0, 350);
    let frame = udp([0, 1], 53, 58);
    assert_eq!((frame.len(), host.passed(&frame, 10)), (100, 3));
    assert_eq!(host.reason(&frame), Reason::LimitUser);
    assert_eq!(host.spent(0)[0], 300);
    assert_eq!(host.spent(0)[1], 800, "what was asked for beyond it, in bytes");
}

#[test]
fn a_packet_needs_a_lease_under_every_limit_that_applies_to_it() {
    let host = host(&["100 packets/s", "100 syns/s"]);
    lease(&host, 0, 5);
    lease(&host, 1, 0);
    let (plain, syn) = (udp([0, 1], 53, 8), tcp([0, 1], 80, SYN));
    assert_eq!(host.passed(&plain, 2), 2, "no SYN, no lease for SYNs");
    assert_eq!(host.reason(&syn), Reason::LimitUser);
    assert_eq!([host.spent(0)[0], host.spent(1)[1]], [2, 1], "nothing was spent");
    lease(&host, 1, 1);
    assert_eq!(host.passed(&syn, 9), 1);
    assert_eq!(host.passed(&plain, 9), 2);
    assert_eq!([0, 1].map(|place| host.spent(place)[0]), [5, 1]);
}

#[test]
fn a_lease_ends_with_its_time_and_what_is_missing_is_counted_as_far_as_it_matters() {
    let host = host(&["100 packets/s"]);
    lease(&host, 0, 5);
    host.leases.borrow_mut().get_mut(&0).unwrap().enough = 3;
    let frame = udp([0, 1], 53, 8);
    assert_eq!(host.passed(&frame, 1), 1);
    host.wait_ms(1_000);
    assert_eq!(host.passed(&frame, 9), 0);
    assert_eq!(host.spent(0)[1], 3);
    host.leases.borrow_mut().clear();
    assert_eq!(host.reason(&frame), Reason::LimitUser, "and none is none");
}

#[test]
fn what_no_lease_covers_the_bucket_of_this_host_may_have() {
    let mut host = host(&["100 packets/s"]);
    host.users[0].limits[0] = limit("2 packets/day");
    lease(&host, 0, 3);
    let frame = udp([0, 1], 53, 8);
    assert_eq!(host.passed(&frame, 9), 5, "three by the lease and two by the bucket");
    // A lease that another CPU is spending at the same moment is not waited for.
    lease(&host, 0, 4);
    host.lost_races.set(4);
    assert_eq!(host.reason(&frame), Reason::LimitUser);
    host.lost_races.set(3);
    assert_eq!(host.reason(&frame), Reason::Conforming);
}
