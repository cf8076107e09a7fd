//! The bounds of limits that hold on all hosts together, of packets and of requests, under everything that can go wrong, from seeds.
//!
//! `SEED=n` repeats one world, `WORLDS=n` runs more of them.

use std::{ops::Range, time::Duration};

use ratelimit_common::limit::text::parse_rate;
use ratelimit_tests::{
    redis::{Options, Redis},
    seeds::seeds,
    simulation::{Alone, Faults, Load, Outcomes, PacketPlan, Plan, RequestPlan, Script, Store, World, steps},
};
use ratelimit_user::{policy::Reserve, store::redis::Value};

/// Steps of each world of packets: about ten seconds of its time.
const STEPS: u64 = 5_000;
/// Steps of each world of requests: several lives of any lease.
const LONG: u64 = steps(600);

fn run(plan: Plan, steps: u64) -> Outcomes {
    World::new(plan).run(steps).unwrap_or_else(|it| panic!("{it}"))
}

fn worlds(plan: impl Fn(u64) -> Plan, steps: u64, otherwise: u64) -> Outcomes {
    let mut all = Outcomes::default();
    seeds("WORLDS", otherwise).for_each(|seed| all += run(plan(seed), steps));
    println!("{all:?}");
    all
}

fn packets(faults: Faults, otherwise: u64) -> Outcomes {
    worlds(|seed| Plan::packets(seed, faults), STEPS, otherwise)
}

#[test]
fn no_interval_admits_more_packets_than_the_burst_and_the_rate_whatever_fails() {
    let all = packets(Faults::ALL, 1_500);
    assert!(all.admitted > 0 && all.batches > 0 && all.disasters > 0, "something happened: {all:?}");
}

/// Worlds that once broke the bound: parts of units in the reserve, a late lease batch that minted units, a lease that was written off too early in
/// the store record, a packet that still had the old ceiling in mind, a store that was emptied and took what it had never heard of for full.
const ONCE_BROKEN: [u64; 6] = [968, 1496, 1822, 2041, 3425, 5502];

#[test]
fn worlds_that_once_broke_the_bound_do_not_any_more() {
    for seed in ONCE_BROKEN {
        run(Plan::packets(seed, Faults::ALL), STEPS);
    }
}

#[test]
fn no_interval_admits_more_packets_than_the_burst_and_the_rate_on_good_days() {
    packets(Faults::NONE, 300);
}

#[test]
fn no_interval_admits_more_packets_while_the_clock_of_the_store_goes_back_and_hosts_are_suspended() {
    let good_days = Faults { clocks: 1, ..Faults::NONE };
    let bad_days = Faults { clocks: 2, ..Faults::ALL };
    // Here a host spent what it had held before it was suspended: 62 units above the rate, with a burst of 60.
    run(Plan::packets(1761, bad_days), STEPS);
    let mut all = packets(bad_days, 200);
    all += packets(good_days, 200);
    assert!(all.admitted > 0);
    // Ten seconds with five steps back of up to eight seconds each, and as many pauses: no step costs more than a lease.
    for hosts in [2, 3, 8] {
        let outcome = run(Plan { seed: 11, ..flooded(hosts, Reserve::new(0, 16), good_days, |_| ()) }, STEPS);
        println!("{hosts} hosts: {:.3} of the rate", part(&outcome));
        assert!(part(&outcome) >= 0.6, "{hosts} hosts: {}", part(&outcome));
    }
}

/// Lease batches and answers that take 90 to 110 ms each way.
const FAR_AWAY: Faults = Faults { quickest_ms: 90, slowest_ms: 20, ..Faults::NONE };
/// Lease batches and answers that take 80 ms each way at least, and every fault.
const FAR_AND_FAILING: Faults = Faults { quickest_ms: 80, ..Faults::ALL };

#[test]
fn hosts_that_are_200_ms_from_the_store_carry_nine_tenths_of_the_limit_and_no_more_than_it() {
    for hosts in [1, 2, 3, 8] {
        // What is sent in a round trip must fit into the burst twice: what comes in meanwhile, and what is not yet reported as spent.
        for (offered, steady) in [(5_000, true), (1_200 / hosts as u64, true), (3_000, false)] {
            let plan = flooded(hosts, Reserve::new(50, hosts as u32), FAR_AWAY, |packets| {
                packets.rate = parse_rate("1000/s burst 1000").unwrap();
                (packets.offered, packets.steady) = (offered, steady);
            });
            let part = part(&run(plan, STEPS));
            println!("{hosts} hosts, {offered} offered to each: {part:.3} of the rate");
            assert!(part >= 0.9 || !steady, "{hosts} hosts, {offered} offered to each: {part}");
        }
    }
}

#[test]
fn no_interval_admits_more_packets_than_the_burst_and_the_rate_far_from_the_store_whatever_fails() {
    packets(FAR_AND_FAILING, 200);
}

/// A limit of 1000 a second that every host is offered five times.
fn flooded(hosts: usize, reserve: Reserve, faults: Faults, change: impl FnOnce(&mut PacketPlan)) -> Plan {
    let mut packets = PacketPlan {
        rate: parse_rate("1000/s burst 500").unwrap(),
        reserve,
        tick: Duration::from_millis(50),
        lease: Duration::from_secs(1),
        offered: 5_000,
        steady: true,
    };
    change(&mut packets);
    Plan { seed: 7, hosts, faults, packets: Some(packets), requests: None }
}

fn part(outcome: &Outcomes) -> f64 {
    outcome.admitted as f64 / outcome.refilled as f64
}

#[test]
fn hosts_that_are_flooded_carry_the_whole_limit_together() {
    for hosts in [1, 2, 3, 8] {
        for reserve in [Reserve::new(0, 16), Reserve::new(50, 16)] {
            let part = part(&run(flooded(hosts, reserve, Faults::NONE, |_| ()), STEPS));
            println!("{hosts} hosts, {} per mille kept back: {part:.3} of the rate", reserve.permille());
            assert!(part >= 0.95, "{hosts} hosts, {reserve:?}: {part}");
        }
    }
}

/// Each host likes to hold a part of the burst at least. If that part did not shrink with the number of hosts, the first 32 would hold all of it, and
/// nothing comes in while everything is held.
#[test]
fn many_hosts_that_are_sent_little_each_carry_the_whole_limit_together() {
    let hosts = 600;
    let plan = flooded(hosts, Reserve::new(50, hosts as u32), Faults::NONE, |packets| {
        packets.rate = parse_rate(&format!("{}/s burst {}", 10 * hosts, 40 * hosts)).unwrap();
        (packets.tick, packets.lease) = (Duration::from_secs(1), Duration::from_secs(8));
        packets.offered = 20;
    });
    let part = part(&run(plan, steps(16)));
    println!("{hosts} hosts: {part:.3} of the rate");
    assert!(part >= 0.9, "{part}");
}

#[test]
fn no_interval_admits_more_requests_than_the_algorithm_does_on_one_host_whatever_fails() {
    let all = worlds(|seed| Plan::requests(seed, Faults::ALL), LONG, 15);
    assert!(
        all.by_lease > 1_000 && all.by_store > 1_000 && all.alone > 1_000,
        "every way was taken: {all:?}"
    );
    assert!(all.renewed > 200, "leases were renewed while they lasted: {all:?}");
    assert!(all.undone > 100 && all.refunded > 1_000, "units were given back: {all:?}");
    assert!(
        all.lost > 0 && all.crashes > 0 && all.outages > 0 && all.cut_off > 0 && all.forgot > 0,
        "something went wrong: {all:?}"
    );
}

#[test]
fn no_interval_admits_more_requests_than_the_algorithm_does_on_one_host_on_good_days() {
    let all = worlds(|seed| Plan::requests(seed, Faults::NONE), LONG, 10);
    assert_eq!((all.lost, all.crashes, all.outages, all.cut_off, all.alone), (0, 0, 0, 0, 0));
    assert!(all.by_lease > 1_000 && all.by_store > 1_000, "both ways were taken: {all:?}");
    assert!(all.renewed > 200, "leases were renewed while they lasted: {all:?}");
}

#[test]
fn hosts_that_are_asked_for_more_than_there_is_give_most_of_it() {
    give_most(0..5);
}

fn give_most(seeds: Range<u64>) {
    for seed in seeds {
        let plan = Plan::requests(seed, Faults::NONE).asked(|requests| {
            (requests.load, requests.users, requests.refunds) = (Load::Greedy, 1, 0);
        });
        let RequestPlan { limit, .. } = plan.requests.clone().unwrap();
        let refilled = limit as f64 * 600e9 / plan.requests.as_ref().unwrap().period_ns() as f64;
        let part = run(plan.clone(), LONG).requests() as f64 / refilled;
        assert!(part > 0.6, "seed {seed}: {part:.2} of what the limit allows\n{plan:?}");
    }
}

#[test]
fn hosts_that_count_packets_and_requests_on_one_store_keep_both_bounds_whatever_fails() {
    let bad_days = Faults { clocks: 1, ..Faults::ALL };
    let all = worlds(|seed| Plan::both(seed, bad_days), steps(60), 30);
    assert!(all.admitted > 1_000 && all.batches > 1_000, "packets: {all:?}");
    assert!(all.by_lease > 100 && all.by_store > 1_000 && all.alone > 100, "requests: {all:?}");
}

/// The worlds of the tests above, and two to three times as many more.
#[test]
#[ignore = "long"]
fn many_more_worlds_keep_every_bound() {
    packets(Faults::ALL, 4_000);
    packets(FAR_AND_FAILING, 500);
    worlds(|seed| Plan::requests(seed, Faults::ALL), LONG, 30);
    worlds(|seed| Plan::requests(seed, Faults::NONE), LONG, 20);
    worlds(|seed| Plan::both(seed, Faults { clocks: 1, ..Faults::ALL }), steps(60), 60);
    give_most(0..15);
}

#[test]
fn the_script_in_a_real_redis_keeps_both_bounds_and_says_what_the_record_in_memory_says() {
    let server = Redis::single(Options::default());
    for seed in seeds("WORLDS", 12) {
        let world = World::on(Store::in_both(Script::new(&server)), Plan::both(seed, Faults::ALL));
        world.run(STEPS).unwrap_or_else(|it| panic!("{it}"));
    }
}

/// A host that says that its lease lasts shorter goes by that at once: the store may have heard it, and writes the lease off by it.
///
/// The host has a lease of a part of the limit, which lasts for `life_s`. Somebody asks for more than is left of it, so the host asks the store for
/// twice as much, which lasts half as long; the answer is lost, and the host cut off. The store writes the lease off after 9/16 of the first
/// life. The host would have believed in it until 7/8. In between others take everything, and the host is asked too.
#[test]
fn a_lease_that_got_shorter_while_its_host_was_cut_off_is_not_spent_beside_what_others_get() {
    let (limit, least) = (6_400, 100);
    for algorithm in ["token-bucket", "leaky-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        for doubled in 0..3 {
            let plan = Plan::requests(1, Faults { quickest_ms: 1, slowest_ms: 1, ..Faults::NONE });
            let plan = plan.asked(|requests| {
                *requests = RequestPlan {
                    algorithm,
                    limit,
                    period: "s",
                    sharing: "lease",
                    alone: Alone::Refuse,
                    users: 1,
                    of_user: 0,
                    busy: 0,
                    refunds: 0,
                    load: Load::Scripted,
                }
            });
            let mut world = World::new(Plan { hosts: 2, ..plan });
            // Each request is for one unit more than is held, and twice as much as before is granted beside that, for half as long.
            let held = |doubled: u64| (least << (doubled + 1)) - least;
            world.ask(1_000, 0, 1);
            (0..doubled).for_each(|nth| world.ask(2_000 + nth * 1_000, 0, held(nth) + 1));
            let (silent_ms, life_ms) = (2_000 + doubled * 1_000, 240_000 >> doubled);
            world.ask(silent_ms, 0, held(doubled) + 1);
            // The question is under way by then, and the answer is not.
            world.cut_off(silent_ms + 1, 600_000, 0);
            let rush_ms = silent_ms + life_ms * 11 / 16;
            (0..2 * limit).for_each(|nth| world.ask(rush_ms + nth / 200, 1, 1));
            (0..held(doubled)).for_each(|nth| world.ask(rush_ms + 20 + nth % 40, 0, 1));
            let outcome = world.run(steps(rush_ms / 1_000 + 2)).unwrap_or_else(|it| panic!("{it}"));
            assert!(outcome.requests() >= limit, "everything was taken: {outcome:?}");
        }
    }
}

/// So many hosts that share limits of packets and of requests, on the script in a real Redis. Every user asks once; then every host is asked ten times,
/// by anybody or by one of twenty busy users, who come to all hosts.
fn crowd(hosts: usize, users: u64, seconds: u64) {
    let server = Redis::single(Options::default());
    let rate = format!("{0}/s burst {1}", 10 * hosts, 40 * hosts);
    let packets = PacketPlan {
        rate: parse_rate(&rate).unwrap(),
        reserve: Reserve::new(50, hosts as u32),
        tick: Duration::from_secs(1),
        lease: Duration::from_secs(8),
        offered: 20,
        steady: true,
    };
    let requests = RequestPlan {
        algorithm: "token-bucket",
        // What a few hosts hold is most of a limit, so this one is far from its end.
        limit: users * 8,
        period: "min",
        sharing: "lease",
        alone: Alone::Refuse,
        users,
        of_user: 100,
        busy: 20,
        refunds: 10,
        load: Load::Steady(seconds * 1_000_000 / 10),
    };
    let faults = Faults { lost: 5, disasters: 200, ..Faults::NONE };
    let plan = Plan { seed: 16, hosts, faults, packets: Some(packets), requests: Some(requests) };
    let mut world = World::on(Store::in_redis(Script::lasting(&server)), plan);
    world.everybody_asks();
    let outcome = world.run(steps(seconds)).unwrap_or_else(|it| panic!("{it}"));
    let number = |field: &str| server.info(field).parse::<f64>().unwrap();
    let Value::Int(keys) = server.ask(&["DBSIZE"]) else { panic!("no number of keys") };
    let calls = server.info("cmdstat_evalsha");
    let calls = calls.split([',', '=']).nth(1).and_then(|calls| calls.parse::<f64>().ok()).unwrap();
    let cpu = number("used_cpu_user_main_thread") + number("used_cpu_sys_main_thread");
    println!("{hosts} hosts, {users} users: {outcome:?}");
    println!(
        "{keys} keys, {:.0} bytes for each user; {calls} calls, {:.1} us of CPU for each",
        number("used_memory") / users as f64,
        cpu * 1e6 / calls
    );
    assert!(keys as u64 > users, "each user has a record: {keys}");
    // While the store is away hosts have what is kept back for them, which is next to nothing for each of so many.
    let refilled = outcome.refilled - outcome.refilled_away;
    assert!(
        outcome.batches > hosts as u64 && outcome.admitted > refilled / 2,
        "every host has packets: {outcome:?}"
    );
    assert!(outcome.by_store + outcome.by_lease > users, "every user came: {outcome:?}");
}

#[test]
fn three_hundred_hosts_and_five_thousand_users_keep_every_bound() {
    crowd(300, 5_000, 10);
}

#[test]
#[ignore = "long"]
fn ten_thousand_hosts_and_a_million_users_keep_every_bound() {
    crowd(10_000, 1_000_000, 20);
}
