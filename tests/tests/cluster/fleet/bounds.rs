//! What hosts admit together while all is well.

use std::{process::Stdio, time::Duration};

use ratelimit_tests::{
    fleet::{Bound, Fleet, Sample, excess, policy},
    redis::{Options, Redis, wait_for},
    traffic::{done, sent},
};

use serde_json::Value;

use super::{alone, season, through_socket};

/// What the hosts got a second, from when the burst is gone.
fn pace_of(samples: &[Sample], from: Duration) -> f64 {
    let last = &samples[samples.len() - 1];
    let first = samples.iter().find(|sample| sample.since(&samples[0]) >= from).expect("a sample");
    (last.total() - first.total()) as f64 / last.since(first).as_secs_f64()
}

const LIMIT: &str = "2000 packets/s burst 1000";
const BOUND: Bound = Bound { rate: 2_000.0, burst: 1_000.0 };
/// A store that has just been made gives out nothing for as long as there could be leases that it does not know.
const WARM: Duration = Duration::from_millis(1_300);

#[test]
fn three_hosts_that_are_flooded_admit_one_limit_together() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet = Fleet::start(3, LIMIT, &through_socket(&redis), "hosts = 3");
    fleet.watch(WARM, Vec::new());
    let seconds = 10.0;
    let floods = fleet.flood(&[0, 1, 2], 10_000, seconds);
    let mut top = fleet.hosts[0].edge.cli_command(&["top", "--output", "json"]);
    let mut top = top.stdout(Stdio::piped()).spawn().expect("start top");
    let samples = fleet.watch(Duration::from_secs_f64(seconds), Vec::new());
    top.kill().expect("stop top");
    let views = top.wait_with_output().expect("what it said");
    let offered: u64 = floods.into_iter().map(sent).sum();
    let (first, last) = (&samples[0], &samples[samples.len() - 1]);
    let took = last.since(first).as_secs_f64();
    let admitted = (last.total() - first.total()) as f64;
    let (of_rate, above) = (admitted / (BOUND.rate * took), excess(&samples, BOUND));
    println!(
        "offered {offered}, admitted {admitted} in {took:.3} s: {of_rate:.4} of the rate; {above:.0} above it at most, burst 1000"
    );
    println!("by host {:?}", last.got);
    assert!(above <= BOUND.burst, "{above} above the rate in some interval");
    assert!(of_rate >= 0.95, "{of_rate} of the rate");
    assert!(last.got.iter().all(|got| *got > 0), "every host has a part of it");
    // While the flood went on, the first host said how much of the limit it had.
    let views = String::from_utf8(views.stdout).expect("UTF-8");
    let views = || views.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let shares: Vec<u64> =
        views().filter_map(|view| view["users"][0]["limits"][0]["share_percent"].as_u64()).collect();
    let got = 100 * last.got[0] / last.total();
    assert!(shares.iter().any(|share| *share > 0 && share.abs_diff(got) <= 15), "{shares:?}, got {got} %");
    assert!(views().any(|view| view["hosts"].as_array().is_some_and(|hosts| hosts.len() == 3)));
}

#[test]
fn a_burst_is_given_out_once_whoever_asks_for_it() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    // Nothing comes in during the test: one packet in four seconds.
    let mut fleet =
        Fleet::start(3, "20000 packets/day burst 3000", &through_socket(&redis), "reserve = \"0%\"");
    season(&redis);
    fleet.flood(&[0, 1, 2], 3_000, 4.0).into_iter().for_each(done);
    let got = fleet.sample();
    println!("{:?}", got.got);
    assert!((2_995..=3_002).contains(&got.total()), "{:?} of 3000", got.got);
}

#[test]
fn the_limit_follows_the_traffic_within_three_ticks() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet = Fleet::start(2, LIMIT, &through_socket(&redis), "hosts = 2");
    fleet.watch(WARM, Vec::new());
    // Both have had their traffic and the burst is gone; then it moves to the other host.
    let first = fleet.flood(&[0], 10_000, 2.0);
    fleet.watch(Duration::from_secs(2), Vec::new());
    first.into_iter().for_each(done);
    let second = fleet.flood(&[1], 10_000, 1.5);
    let samples = fleet.watch(Duration::from_millis(1_500), Vec::new());
    second.into_iter().for_each(done);
    let on_second = |at: usize| samples[at].got[1];
    let begins = (0..samples.len()).find(|at| on_second(*at) > 0).expect("traffic");
    // From three ticks after the first packet on.
    let after = |ms: u64| {
        let begin = &samples[begins];
        (begins..samples.len())
            .find(|at| samples[*at].since(begin) >= Duration::from_millis(ms))
            .expect("a sample")
    };
    let (from, to) = (after(150), after(900));
    let pace = (on_second(to) - on_second(from)) as f64 / samples[to].since(&samples[from]).as_secs_f64();
    println!("from 150 ms on: {pace:.0} packets/s, {:.3} of the limit", pace / BOUND.rate);
    assert!(pace >= 0.9 * BOUND.rate, "{pace} packets/s");
}

#[test]
fn a_daemon_that_stops_gives_back_what_it_held() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet =
        Fleet::start(2, "20000 packets/day burst 3000", &through_socket(&redis), "reserve = \"0%\"");
    season(&redis);
    fleet.flood(&[0], 2_000, 0.5).into_iter().for_each(done);
    let daemon = fleet.hosts[0].daemon.take().expect("a daemon");
    assert!(daemon.terminate().0.success());
    // Everything that the first has not spent is the other's.
    fleet.flood(&[1], 5_000, 1.5).into_iter().for_each(done);
    let got = fleet.sample();
    println!("{:?}", got.got);
    assert!((2_990..=3_002).contains(&got.total()), "{:?} of 3000", got.got);
}

#[test]
fn a_user_that_is_reset_has_its_whole_burst_again_on_every_host() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet =
        Fleet::start(2, "20000 packets/day burst 1000", &through_socket(&redis), "reserve = \"0%\"");
    season(&redis);
    fleet.flood(&[0], 3_000, 1.0).into_iter().for_each(done);
    let spent = fleet.sample().total();
    assert!((995..=1_002).contains(&spent), "{spent} of 1000");
    let reset = fleet.hosts[0].edge.cli(&["user", "reset", "acme"]);
    assert!(reset.status.success(), "{reset:?}");
    // Heard by the store with the next lease batch; until then there is nothing to give.
    let both = wait_for("a second burst", || {
        fleet.flood(&[1], 3_000, 0.3).into_iter().for_each(done);
        Some(fleet.sample().total()).filter(|both| *both > 1_900)
    });
    assert!(both <= 2_004, "{both} of 2000");
}

#[test]
fn a_reset_that_the_store_refuses_is_not_forgotten() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet =
        Fleet::start(1, "20000 packets/day burst 1000", &through_socket(&redis), "reserve = \"0%\"");
    season(&redis);
    fleet.flood(&[0], 5_000, 0.6).into_iter().for_each(done);
    let spent = fleet.sample().total();
    assert!((995..=1_002).contains(&spent), "{spent} of 1000");
    redis.ask(&["ACL", "SETUSER", "default", "-del"]);
    assert!(fleet.hosts[0].edge.cli(&["user", "reset", "acme"]).status.success());
    fleet.hosts[0].daemon.as_ref().expect("a daemon").wait_for_log("a user was not reset in the store");
    redis.ask(&["ACL", "SETUSER", "default", "+del"]);
    wait_for("a second burst", || {
        fleet.flood(&[0], 5_000, 0.3).into_iter().for_each(done);
        Some(fleet.sample().total()).filter(|both| *both > 1_900)
    });
}

#[test]
fn of_hosts_with_different_limits_all_have_the_smaller_and_two_of_one_name_are_told_apart() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let url = through_socket(&redis);
    let mut fleet = Fleet::start(2, LIMIT, &url, "hosts = 2");
    season(&redis);
    let second = &mut fleet.hosts[1];
    second.daemon.take().expect("a daemon").terminate();
    let other = policy("3000 packets/s burst 1000", &url, "hosts = 2\nhost = \"edge-0\"");
    second.daemon = Some(second.edge.start(&other));
    wait_for("a store that answers", || fleet.hosts[1].status()["store_up"].as_bool().filter(|up| *up));
    let floods = fleet.flood(&[0, 1], 6_000, 2.5);
    let samples = fleet.watch(Duration::from_millis(2_400), Vec::new());
    let told = [0, 1].map(|host| fleet.hosts[host].status());
    floods.into_iter().for_each(done);
    let (pace, above) = (pace_of(&samples, Duration::from_millis(800)), excess(&samples, BOUND));
    println!("{pace:.0} packets/s with 2000 and 3000; {above:.0} above the rate at most, burst 1000");
    // The second has its part of the reserve from its own policy: 75 instead of 50.
    assert!(pace <= 1.03 * BOUND.rate + 25.0, "{pace} packets/s");
    assert!(pace >= 0.9 * BOUND.rate, "{pace} packets/s");
    for (host, whose) in
        [(0, "(this host's, is in force)"), (1, "(another host's, which is less, is in force)")]
    {
        let warnings = told[host]["warnings"].to_string();
        assert_eq!(told[host]["limits_disputed"], 1, "{warnings}");
        assert!(warnings.contains(&format!("packets of user acme {whose}")), "{warnings}");
    }
    assert_eq!((&told[0]["is_heard"], &told[1]["is_heard"]), (&true.into(), &false.into()));
    assert!(
        told[1]["warnings"].to_string().contains("another host calls the store as"),
        "{}",
        told[1]["warnings"]
    );
    let refused = fleet.hosts[1].edge.cli(&["block", "add", "192.0.2.0/24", "--cluster"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("no other host would hear of it"), "{said}");
    for host in &fleet.hosts {
        assert_eq!(host.edge.json(&["block", "list"])["blocks"].as_array().map(Vec::len), Some(0));
    }
}
