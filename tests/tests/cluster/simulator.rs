//! The bound of a limit that holds on all hosts together, under everything that can go wrong, from seeds.
//!
//! `SEED=n` repeats one world, `WORLDS=n` runs more of them.

use std::time::Duration;

use ratelimit_common::limit::text::parse_rate;
use ratelimit_tests::{
    seeds::seeds,
    simulation::{Faults, Outcomes, Plan, World},
};
use ratelimit_user::policy::Reserve;

/// Steps of each world: about ten seconds of its time.
const STEPS: u64 = 5_000;

fn worlds(faults: Faults, otherwise: u64) -> Vec<Outcomes> {
    let world =
        |seed: u64| World::new(Plan::random(seed, faults)).run(STEPS).unwrap_or_else(|it| panic!("{it}"));
    seeds("WORLDS", otherwise).map(world).collect()
}

#[test]
fn no_interval_admits_more_than_the_burst_and_the_rate_whatever_fails() {
    let outcomes = worlds(Faults::ALL, 4_000);
    let sum = |of: fn(&Outcomes) -> u64| outcomes.iter().map(of).sum::<u64>();
    let (admitted, batches, disasters) = (sum(|o| o.admitted), sum(|o| o.batches), sum(|o| o.disasters));
    println!("{} worlds: {admitted} units, {batches} batches, {disasters} disasters", outcomes.len());
    assert!(admitted > 0 && batches > 0 && disasters > 0, "something happened");
}

/// Worlds that once broke the bound: parts of units in the reserve, a late lease batch that minted units, a lease that was written off too early in
/// the books, a packet that still had the old ceiling in mind, a store that was emptied and took what it had never heard of for full.
const ONCE_BROKEN: [u64; 6] = [968, 1496, 1822, 2041, 3425, 5502];

#[test]
fn worlds_that_once_broke_the_bound_do_not_any_more() {
    for seed in ONCE_BROKEN {
        World::new(Plan::random(seed, Faults::ALL)).run(STEPS).unwrap_or_else(|it| panic!("{it}"));
    }
}

#[test]
fn no_interval_admits_more_than_the_burst_and_the_rate_on_good_days() {
    worlds(Faults::NONE, 300);
}

#[test]
fn no_interval_admits_more_while_the_clock_of_the_store_goes_back_and_hosts_are_suspended() {
    let good_days = Faults { clocks: 1, ..Faults::NONE };
    let bad_days = Faults { clocks: 2, ..Faults::ALL };
    // Here a host spent what it had held before it was suspended: 62 units above the rate, with a burst of 60.
    World::new(Plan::random(1761, bad_days)).run(STEPS).unwrap_or_else(|it| panic!("{it}"));
    let mut outcomes = worlds(bad_days, 200);
    outcomes.extend(worlds(good_days, 200));
    let plan = |hosts| Plan { seed: 11, ..flooded(hosts, Reserve::new(0, 16), good_days) };
    let part = |outcome: &Outcomes| outcome.admitted as f64 / outcome.refilled as f64;
    // Ten seconds with five steps back of up to eight seconds each, and as many pauses: no step costs more than a lease.
    for hosts in [2, 3, 8] {
        let outcome = World::new(plan(hosts)).run(STEPS).unwrap_or_else(|it| panic!("{it}"));
        println!("{hosts} hosts: {:.3} of the rate", part(&outcome));
        assert!(part(&outcome) >= 0.6, "{hosts} hosts: {}", part(&outcome));
    }
    assert!(outcomes.iter().any(|outcome| outcome.admitted > 0));
}

/// Lease batches and answers that take 90 to 110 ms each way.
const FAR_AWAY: Faults = Faults { quickest_ms: 90, slowest_ms: 20, ..Faults::NONE };

#[test]
fn hosts_that_are_200_ms_from_the_store_carry_nine_tenths_of_the_limit_and_no_more_than_it() {
    for hosts in [1, 2, 3, 8] {
        // What is sent in a round trip must fit into the burst twice: what comes in meanwhile, and what is not yet reported as spent.
        for (offered, steady) in [(5_000, true), (1_200 / hosts as u64, true), (3_000, false)] {
            let rate = parse_rate("1000/s burst 1000").unwrap();
            let plan =
                Plan { rate, offered, steady, ..flooded(hosts, Reserve::new(50, hosts as u32), FAR_AWAY) };
            let outcome = World::new(plan).run(STEPS).unwrap_or_else(|it| panic!("{it}"));
            let part = outcome.admitted as f64 / outcome.refilled as f64;
            println!("{hosts} hosts, {offered} offered to each: {part:.3} of the rate");
            assert!(part >= 0.9 || !steady, "{hosts} hosts, {offered} offered to each: {part}");
        }
    }
}

#[test]
fn no_interval_admits_more_than_the_burst_and_the_rate_far_from_the_store_whatever_fails() {
    worlds(Faults { quickest_ms: 80, ..Faults::ALL }, 500);
}

/// A limit of 1000 a second that every host is offered five times.
fn flooded(hosts: usize, reserve: Reserve, faults: Faults) -> Plan {
    Plan {
        seed: 7,
        rate: parse_rate("1000/s burst 500").unwrap(),
        hosts,
        reserve,
        tick: Duration::from_millis(50),
        lease: Duration::from_secs(1),
        faults,
        offered: 5_000,
        steady: true,
    }
}

#[test]
fn hosts_that_are_flooded_carry_the_whole_limit_together() {
    for hosts in [1, 2, 3, 8] {
        for reserve in [Reserve::new(0, 16), Reserve::new(50, 16)] {
            let outcome = World::new(flooded(hosts, reserve, Faults::NONE)).run(STEPS).unwrap();
            let part = outcome.admitted as f64 / outcome.refilled as f64;
            println!("{hosts} hosts, {} per mille kept back: {part:.3} of the rate", reserve.permille());
            assert!(part >= 0.95, "{hosts} hosts, {reserve:?}: {part}");
        }
    }
}
