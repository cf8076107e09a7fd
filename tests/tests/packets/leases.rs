//! Limits that hold on all hosts together, as the packet path has them: it spends what the daemon was given, then its part of the reserve.

use std::{net::Ipv4Addr, thread};

use ratelimit_common::{
    abi::{Lease, Reason, Verdict, lease::lease_place},
    limit::gcra,
};
use ratelimit_tests::{
    frames::{Ipv4, SYN},
    loaded::{self, Loaded},
    memory::Memory,
    policies::{FACTS, parsed},
};
use ratelimit_user::{
    compile::{self, Desired, HostFacts},
    dataplane::probe,
    policy::Reserve,
};

const SECOND: u64 = 1_000_000_000;

/// A user on a host that may have so much of its limits without a lease.
fn user(network: &str, reserve: Reserve) -> Desired {
    let text = format!(
        "[source]\nladder = false\nlimits = [\"1000000 packets/s\"]\n\
         [[user]]\nname = \"acme\"\nsources = [\"192.0.2.0/24\"]\nnetwork = {network}\n"
    );
    compile::desired(&parsed(&text), &HostFacts { reserve: Some(reserve), ..FACTS }, 1, None)
}

const NONE: fn() -> Reserve = || Reserve::new(0, 1);

fn frame(host: u8) -> Vec<u8> {
    Ipv4::from(Ipv4Addr::new(192, 0, 2, host)).udp_frame(8)
}

fn in_a_while() -> u64 {
    gcra::time_q8(probe::now_ns() + 3600 * SECOND)
}

fn lease(loaded: &mut Loaded, place: u32, ceiling: u64) {
    let lease = Lease { ceiling, expires_q8: in_a_while(), enough: 1_000_000 };
    loaded.maps.set_lease(lease_place(0, place), lease).unwrap();
}

fn passed(loaded: &mut Loaded, frame: &[u8], times: u32) -> u32 {
    (0..times).filter(|_| loaded.run(frame) == Verdict::Pass).count() as u32
}

#[test]
fn exactly_what_was_leased_passes_and_what_was_missing_is_counted() {
    let mut loaded = Loaded::new(&user("[\"1000 packets/day\"]", NONE()));
    assert_eq!(passed(&mut loaded, &frame(1), 5), 0, "no lease and no reserve");
    assert_eq!(loaded.count(Reason::LimitUser), 5);
    assert_eq!(loaded.maps.spent(0).unwrap().unmet, 0, "nobody wants to know");
    lease(&mut loaded, 0, 30);
    assert_eq!(passed(&mut loaded, &frame(1), 20) + passed(&mut loaded, &frame(2), 20), 30);
    let spent = loaded.maps.spent(0).unwrap();
    assert_eq!((spent.used, spent.unmet), (30, 10));
    lease(&mut loaded, 0, 35);
    assert_eq!(passed(&mut loaded, &frame(1), 20), 5, "more of the same lease");
}

#[test]
fn a_lease_that_has_run_out_gives_nothing() {
    let mut loaded = Loaded::new(&user("[\"1000 packets/day\"]", NONE()));
    // The coarse clock decides, which lags by a few ticks.
    let past = Lease { ceiling: 100, expires_q8: gcra::time_q8(probe::now_ns() - SECOND / 10), enough: 100 };
    loaded.maps.set_lease(0, past).unwrap();
    assert_eq!(passed(&mut loaded, &frame(1), 5), 0);
    assert_eq!(loaded.maps.spent(0).unwrap().used, 0);
}

#[test]
fn without_a_lease_a_host_has_its_part_of_the_reserve_and_no_more() {
    // The reserve is a fifth of 1000, for four hosts.
    let mut loaded = Loaded::new(&user("[\"1000 packets/day\"]", Reserve::new(200, 4)));
    let without = passed(&mut loaded, &frame(1), 200);
    assert!((49..=50).contains(&without), "{without}: the lag of the coarse clock may cost one of 50");
    lease(&mut loaded, 0, 7);
    let with = passed(&mut loaded, &frame(1), 50);
    let late = 50 - without;
    assert!((7..=7 + late).contains(&with), "{with}: the lease comes on top, and what the lag had cost");
}

#[test]
fn a_packet_needs_a_lease_under_every_limit_that_applies_to_it() {
    let mut loaded = Loaded::new(&user("[\"1000 packets/day\", \"500 syns/day\"]", NONE()));
    lease(&mut loaded, 0, 10);
    lease(&mut loaded, 1, 3);
    let syn = Ipv4::from([192, 0, 2, 9]).tcp_frame(SYN);
    assert_eq!(passed(&mut loaded, &syn, 10), 3);
    let spent = [0, 1].map(|place| loaded.maps.spent(place).unwrap());
    assert_eq!(spent.map(|spent| spent.used), [3, 3], "what one lease refused cost the other nothing");
    assert_eq!(spent.map(|spent| spent.unmet), [0, 7], "only where something was missing");
    assert_eq!(passed(&mut loaded, &frame(9), 10), 7, "other packets need no SYNs");
}

#[test]
fn windows_and_margins_of_a_user_stay_with_the_host() {
    let network = "[\"1000 packets/day\", \"6 packets/hour fixed-window\"]";
    let mut loaded = Loaded::new(&user(network, NONE()));
    lease(&mut loaded, 0, 100);
    assert_eq!(passed(&mut loaded, &frame(1), 10), 6);
    assert_eq!(loaded.maps.spent(0).unwrap().used, 6);
}

#[test]
fn a_lease_is_spent_once_however_many_cpus_spend_it() {
    let mut loaded = Loaded::new(&user("[\"1000 packets/day\"]", NONE()));
    let granted = 300_000;
    lease(&mut loaded, 0, granted);
    let xdp = &*loaded.xdp();
    thread::scope(|scope| {
        for host in 0..8 {
            scope.spawn(move || {
                for _ in 0..200 {
                    loaded::run(xdp, &frame(host), 1_000);
                }
            });
        }
    });
    let passed = loaded.count(Reason::Conforming);
    assert!(passed <= granted, "{passed} of {granted}");
    let used = loaded.maps.spent(0).unwrap().used;
    assert_eq!(used, granted, "all of it was spent");
    // A packet may be refused elsewhere after its lease was spent, never the other way round.
    assert!(used - passed <= loaded.count(Reason::Contended), "{used} spent for {passed}");
}

#[test]
fn the_clock_ends_a_lease_and_the_next_one_counts_on() {
    let memory = Memory::new(&user("[\"1000 packets/day\"]", NONE()), Default::default());
    let until = |at: u64, ceiling| Lease { ceiling, expires_q8: gcra::time_q8(at), enough: 100 };
    let admitted = |n: u32| (0..n).filter(|_| memory.run(&frame(1)) == Verdict::Pass).count();
    memory.now_ns.set(SECOND);
    memory.leases.borrow_mut().insert(0, until(2 * SECOND, 4));
    assert_eq!(admitted(3), 3);
    memory.now_ns.set(2 * SECOND);
    assert_eq!(admitted(3), 0, "the last one died with the lease");
    memory.leases.borrow_mut().insert(0, until(3 * SECOND, 5));
    assert_eq!(admitted(3), 2);
}
