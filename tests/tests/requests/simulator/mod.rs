//! The bound of every algorithm when hosts count requests together, under everything that can go wrong, from seeds.
//!
//! `SEED=n` repeats one world, `WORLDS=n` runs more of them.

mod watch;
mod world;

use ratelimit_tests::seeds::seeds;

use world::{Faults, Outcomes, Plan, World};

/// Of each world, in its own time: several lives of any lease.
const SECONDS: u64 = 600;

fn worlds(faults: Faults, otherwise: u64) -> Outcomes {
    let mut all = Outcomes::default();
    for seed in seeds("WORLDS", otherwise) {
        let plan = Plan::random(seed, faults);
        all += World::new(&plan).run(SECONDS).unwrap_or_else(|it| panic!("seed {seed}: {it}\n{plan:?}"));
    }
    println!("{all:?}");
    all
}

#[test]
fn no_interval_admits_more_than_the_algorithm_does_on_one_host_whatever_fails() {
    let all = worlds(Faults::ALL, 30);
    assert!(
        all.by_lease > 1_000 && all.by_store > 1_000 && all.alone > 1_000,
        "every way was taken: {all:?}"
    );
    assert!(all.renewed > 200, "leases were renewed while they lasted: {all:?}");
    assert!(
        all.lost > 0 && all.crashes > 0 && all.outages > 0 && all.cut_off > 0,
        "something went wrong: {all:?}"
    );
}

#[test]
fn no_interval_admits_more_than_the_algorithm_does_on_one_host_on_good_days() {
    let all = worlds(Faults::NONE, 20);
    assert_eq!((all.lost, all.crashes, all.outages, all.cut_off, all.alone), (0, 0, 0, 0, 0));
    assert!(all.by_lease > 1_000 && all.by_store > 1_000, "both ways were taken: {all:?}");
    assert!(all.renewed > 200, "leases were renewed while they lasted: {all:?}");
}

#[test]
fn hosts_that_ask_for_more_than_there_is_get_most_of_it() {
    for seed in 0..15 {
        let plan = Plan::random(seed, Faults::NONE).greedy();
        let got = World::new(&plan).run(SECONDS).unwrap_or_else(|it| panic!("{it}")).admitted() as f64;
        let part = got / plan.refilled(SECONDS);
        assert!(part > 0.6, "seed {seed}: {part:.2} of what the limit allows\n{plan:?}");
    }
}
