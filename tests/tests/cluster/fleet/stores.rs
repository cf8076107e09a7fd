//! The same limit on Sentinels and on a Redis Cluster, while masters die and slots move. Long: `cargo xtask test --long`.

use std::{cell::RefCell, time::Duration};

use ratelimit_tests::{
    fleet::{Bound, Fleet, Sample, excess},
    redis::{RedisCluster, Sentinels},
    traffic::done,
};
use ratelimit_user::store::redis::slot;

use super::alone;

const LIMIT: &str = "2000 packets/s burst 1000";
const BOUND: Bound = Bound { rate: 2_000.0, burst: 1_000.0 };
const WARM: Duration = Duration::from_millis(1_300);

/// The bound held all the time, and at the end the new master is in use.
fn judge(samples: &[Sample]) {
    let above = excess(samples, BOUND);
    let last = &samples[samples.len() - 1];
    let before =
        samples.iter().rev().find(|sample| last.since(sample) >= Duration::from_secs(2)).expect("a sample");
    let pace = (last.total() - before.total()) as f64 / last.since(before).as_secs_f64();
    println!("{above:.0} above the rate at most, burst 1000; {pace:.0} packets/s at the end");
    assert!(above <= BOUND.burst, "{above} above the rate in some interval");
    assert!(pace >= 0.9 * BOUND.rate, "{pace} packets/s at the end");
}

#[test]
#[ignore = "long"]
fn a_failover_of_sentinels_does_not_widen_the_limit() {
    let _alone = alone();
    let mut sentinels = Sentinels::new();
    let ports = [0, 1].map(|server: usize| sentinels.servers[server].port());
    let mut fleet = Fleet::reaching(&ports, 2, LIMIT, &sentinels.url(), "hosts = 2");
    fleet.watch(WARM * 2, Vec::new());
    let floods = fleet.flood(&[0, 1], 10_000, 10.0);
    let sentinels = RefCell::new(&mut sentinels);
    let fail_over: Box<dyn FnMut()> = Box::new(|| {
        sentinels.borrow_mut().fail_over();
    });
    let samples = fleet.watch(Duration::from_secs(10), vec![(Duration::from_secs(3), fail_over)]);
    floods.into_iter().for_each(done);
    judge(&samples);
}

/// Packets a second between two moments after the beginning.
fn pace(samples: &[Sample], from: u64, to: u64) -> f64 {
    let at = |second| {
        let is_there = |sample: &&Sample| sample.since(&samples[0]) >= Duration::from_secs(second);
        samples.iter().find(is_there).expect("a sample")
    };
    let (first, last) = (at(from), at(to));
    (last.total() - first.total()) as f64 / last.since(first).as_secs_f64()
}

#[test]
fn an_open_slot_of_a_redis_cluster_costs_no_packets() {
    let _alone = alone();
    let cluster = RedisCluster::new();
    let mut fleet = Fleet::start(2, LIMIT, &cluster.url(), "hosts = 2");
    fleet.watch(WARM * 2, Vec::new());
    let of_user = slot(b"acme");
    let owner = cluster.master_of(of_user).expect("a master");
    let (next, third) = ((owner + 1) % 3, (owner + 2) % 3);
    let record = || vec!["ratelimit:3:{acme}:packets".to_owned()];
    let floods = fleet.flood(&[0, 1], 10_000, 17.0);
    // The slot is open for ten seconds, and the record is at the new place for the second half of them. Then it moves at once.
    let events: Vec<(Duration, Box<dyn FnMut()>)> = vec![
        (Duration::from_secs(3), Box::new(|| cluster.begin_migration(of_user, next))),
        (Duration::from_secs(8), Box::new(|| cluster.move_keys(owner, next, &record()))),
        (Duration::from_secs(13), Box::new(|| cluster.finish_migration(of_user, next))),
        (Duration::from_secs(14), Box::new(|| cluster.migrate_slot(of_user, third))),
    ];
    let samples = fleet.watch(Duration::from_secs(17), events);
    floods.into_iter().for_each(done);
    let paces = [(3, 8), (8, 13), (13, 16)].map(|(from, to)| pace(&samples, from, to));
    println!("{paces:.0?} packets/s: record here, there, and after the slot has moved");
    judge(&samples);
    assert!(paces.iter().all(|pace| *pace >= 0.9 * BOUND.rate), "{paces:.0?}");
}

#[test]
#[ignore = "long"]
fn a_slot_that_moves_and_a_master_that_dies_do_not_widen_the_limit() {
    let _alone = alone();
    let mut cluster = RedisCluster::new();
    let mut fleet = Fleet::start(2, LIMIT, &cluster.url(), "hosts = 2");
    fleet.watch(WARM * 2, Vec::new());
    let of_user = slot(b"acme");
    let floods = fleet.flood(&[0, 1], 10_000, 14.0);
    let owner = cluster.master_of(of_user).expect("a master");
    let cluster = RefCell::new(&mut cluster);
    let events: Vec<(Duration, Box<dyn FnMut()>)> = vec![
        (Duration::from_secs(2), Box::new(|| cluster.borrow().migrate_slot(of_user, (owner + 1) % 3))),
        (
            Duration::from_secs(6),
            Box::new(|| {
                let old = cluster.borrow_mut().kill_master_of(of_user);
                cluster.borrow().wait_for_new_master(of_user, old);
            }),
        ),
    ];
    let samples = fleet.watch(Duration::from_secs(14), events);
    floods.into_iter().for_each(done);
    judge(&samples);
}
