//! What hosts admit together while the store, the way to it, or one of them fails.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    fleet::{Bound, Fleet, Sample, excess},
    redis::{Options, Proxy, Redis, wait_for},
    traffic::done,
};

use super::{alone, season, through_socket};

const LIMIT: &str = "2000 packets/s burst 1000";
const BOUND: Bound = Bound { rate: 2_000.0, burst: 1_000.0 };
const WARM: Duration = Duration::from_millis(1_300);
/// A fifth for hosts that are cut off.
const RESERVE: &str = "hosts = 3\nreserve = \"20%\"";

/// Floods all hosts while something happens.
fn flooded<'a>(
    fleet: &mut Fleet,
    seconds: f64,
    events: Vec<(Duration, Box<dyn FnMut() + 'a>)>,
) -> Vec<Sample> {
    fleet.watch(WARM, Vec::new());
    let all: Vec<usize> = (0..fleet.hosts.len()).collect();
    let floods = fleet.flood(&all, 10_000, seconds);
    let samples = fleet.watch(Duration::from_secs_f64(seconds), events);
    floods.into_iter().for_each(done);
    let above = excess(&samples, BOUND);
    let took = samples[samples.len() - 1].since(&samples[0]).as_secs_f64();
    let part = (samples[samples.len() - 1].total() - samples[0].total()) as f64 / (BOUND.rate * took);
    println!("{above:.0} above the rate at most, burst 1000; {part:.3} of the rate");
    assert!(above <= BOUND.burst, "{above} above the rate in some interval");
    samples
}

/// The longest time in which nothing arrived anywhere.
fn longest_gap(samples: &[Sample]) -> Duration {
    let mut longest = Duration::ZERO;
    let mut last = 0;
    for at in 1..samples.len() {
        if samples[at].total() != samples[last].total() {
            last = at;
        }
        longest = longest.max(samples[at].since(&samples[last]));
    }
    longest
}

#[test]
fn without_redis_for_five_seconds_the_bound_holds_and_the_reserve_goes_on() {
    let _alone = alone();
    let mut redis = Redis::single(Options::default());
    let mut fleet = Fleet::start(3, LIMIT, &through_socket(&redis), RESERVE);
    let redis = std::cell::RefCell::new(&mut redis);
    let events: Vec<(Duration, Box<dyn FnMut()>)> = vec![
        (Duration::from_secs(2), Box::new(|| redis.borrow_mut().kill())),
        (Duration::from_secs(7), Box::new(|| redis.borrow_mut().start())),
    ];
    let samples = flooded(&mut fleet, 10.0, events);
    let gap = longest_gap(&samples);
    println!("longest gap {gap:?}");
    assert!(gap < Duration::from_millis(500), "nothing was admitted for {gap:?}");
    for host in &fleet.hosts {
        wait_for("a store that answers again", || host.status()["store_up"].as_bool().filter(|up| *up));
        for line in ["the store does not answer", "the store answers again"] {
            host.daemon.as_ref().expect("a daemon").wait_for_log(line);
        }
    }
}

#[test]
fn a_redis_that_is_emptied_or_stopped_for_a_while_does_not_widen_the_limit() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet = Fleet::start(3, LIMIT, &through_socket(&redis), RESERVE);
    let events: Vec<(Duration, Box<dyn FnMut()>)> = vec![
        (Duration::from_secs(2), Box::new(|| drop(redis.ask(&["FLUSHALL"])))),
        (Duration::from_secs(4), Box::new(|| redis.pause())),
        (Duration::from_secs(7), Box::new(|| redis.resume())),
    ];
    flooded(&mut fleet, 9.0, events);
}

#[test]
#[ignore = "long"]
fn daemons_that_are_killed_and_come_back_do_not_widen_the_limit() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet = Fleet::start(2, LIMIT, &through_socket(&redis), RESERVE);
    fleet.watch(WARM, Vec::new());
    let floods = fleet.flood(&[0, 1], 10_000, 6.0);
    let mut samples = Vec::new();
    for _ in 0..3 {
        samples.extend(fleet.watch(Duration::from_millis(1_000), Vec::new()));
        fleet.hosts[0].daemon.take().expect("a daemon").kill_9();
        samples.extend(fleet.watch(Duration::from_millis(300), Vec::new()));
        fleet.hosts[0].restart();
    }
    floods.into_iter().for_each(done);
    samples.push(fleet.sample());
    let above = excess(&samples, BOUND);
    println!("{above:.0} above the rate at most");
    assert!(above <= BOUND.burst, "{above}");
}

#[test]
fn a_lost_reply_is_counted_exactly_once() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let proxy = Proxy::to(redis.port());
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let mut fleet = Fleet::start(2, "20000 packets/day burst 4000", &url, "reserve = \"0%\"");
    season(&redis);
    let floods = fleet.flood(&[0, 1], 1_000, 4.0);
    let events = (1..=6)
        .map(|n| (Duration::from_millis(n * 500), Box::new(|| proxy.lose_next_reply()) as Box<dyn FnMut()>));
    fleet.watch(Duration::from_secs(4), events.collect());
    floods.into_iter().for_each(done);
    // What is left, after every lost reply has been asked for again.
    fleet.flood(&[0, 1], 3_000, 1.5).into_iter().for_each(done);
    let got = fleet.sample();
    println!("{:?} with {} lost replies", got.got, proxy.lost_replies());
    assert!(proxy.lost_replies() >= 3, "{} replies were lost", proxy.lost_replies());
    assert!((3_990..=4_002).contains(&got.total()), "{:?} of 4000", got.got);
}

#[test]
fn a_store_that_is_200_ms_away_gives_out_the_whole_limit() {
    const BOUND: Bound = Bound { rate: 2_000.0, burst: 2_000.0 };
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let proxy = Proxy::to(redis.port());
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let mut fleet = Fleet::start(2, "2000 packets/s burst 2000", &url, "hosts = 2");
    season(&redis);
    proxy.delay(Duration::from_millis(200));
    wait_for("an answer from far away", || {
        let is_heard = |trip: &u64| (200_000..400_000).contains(trip);
        let mut trips = fleet.hosts.iter().filter_map(|host| host.status()["round_trip_us"].as_u64());
        trips.by_ref().all(|trip| is_heard(&trip)).then_some(())
    });
    let floods = fleet.flood(&[0, 1], 6_000, 3.0);
    let samples = fleet.watch(Duration::from_millis(2_900), Vec::new());
    floods.into_iter().for_each(done);
    let (above, last) = (excess(&samples, BOUND), &samples[samples.len() - 1]);
    // From when the burst is gone, which comes with the first answers.
    let is_after = |sample: &&Sample| sample.since(&samples[0]) >= Duration::from_millis(1_000);
    let first = samples.iter().find(is_after).expect("a sample");
    let pace = (last.total() - first.total()) as f64 / last.since(first).as_secs_f64();
    println!("{pace:.0} packets/s; {above:.0} above the rate at most, burst 2000; by host {:?}", last.got);
    assert!(above <= BOUND.burst, "{above} above the rate in some interval");
    assert!(pace >= 0.8 * BOUND.rate, "{pace} packets/s");
}

#[test]
fn nobody_waits_for_a_store_that_does_not_answer() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let fleet = Fleet::start(1, LIMIT, &through_socket(&redis), RESERVE);
    let edge = &fleet.hosts[0].edge;
    let slowest = |edge: &ratelimit_tests::daemon::Edge| {
        let verbs: [&[&str]; 5] = [
            &["status"],
            &["stats"],
            &["user", "get", "acme"],
            &["block", "add", "192.0.2.9", "--for", "1s"],
            &["user", "reset", "acme"],
        ];
        let time = |words: &[&str]| {
            let began = Instant::now();
            assert!(edge.cli(words).status.success(), "{words:?}");
            began.elapsed()
        };
        verbs.iter().map(|words| time(words)).max().expect("verbs")
    };
    let with = slowest(edge);
    redis.pause();
    wait_for("a store that counts as gone", || fleet.hosts[0].status()["failing_seconds"].as_u64());
    let without = (0..5).map(|_| slowest(edge)).max().expect("rounds");
    redis.resume();
    println!("slowest verb {with:?} with the store, {without:?} without");
    assert!(without < with + Duration::from_secs(1), "{with:?} with the store, {without:?} without");
}

/// Has the server do something else for 80 ms at a time, one time after the other, until it is over.
fn keep_busy(url: &str, is_over: &AtomicBool) {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut spin = |rounds: u64| {
        let began = Instant::now();
        let text = "for _ = 1, ARGV[1] do end";
        let done: redis::Value = redis::cmd("EVAL")
            .arg(text)
            .arg(0)
            .arg(rounds)
            .query(&mut connection)
            .expect("a script that ends");
        assert_eq!(done, redis::Value::Nil);
        began.elapsed()
    };
    let mut rounds = 1_000_000;
    while !is_over.load(Ordering::Relaxed) {
        let took = spin(rounds);
        rounds = (rounds as f64 * 0.08 / took.as_secs_f64().max(0.001)) as u64;
    }
}

#[test]
fn a_store_that_others_keep_busy_is_asked_less_often_and_as_often_as_before_afterwards() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let mut fleet = Fleet::start(1, LIMIT, &through_socket(&redis), "hosts = 1");
    let exchanges = |fleet: &mut Fleet, samples: &mut Vec<Sample>, seconds: u64| {
        let count = |fleet: &Fleet| fleet.hosts[0].status()["exchanges"].as_u64().expect("a number");
        let (before, began) = (count(fleet), Instant::now());
        samples.extend(fleet.watch(Duration::from_secs(seconds), Vec::new()));
        (count(fleet) - before) as f64 / began.elapsed().as_secs_f64()
    };
    let (mut samples, is_over) = (Vec::new(), AtomicBool::new(false));
    fleet.watch(WARM, Vec::new());
    let floods = fleet.flood(&[0], 10_000, 14.0);
    let calm = exchanges(&mut fleet, &mut samples, 3);
    let busy = thread::scope(|scope| {
        scope.spawn(|| keep_busy(&redis.url(), &is_over));
        exchanges(&mut fleet, &mut samples, 1);
        let busy = exchanges(&mut fleet, &mut samples, 4);
        is_over.store(true, Ordering::Relaxed);
        busy
    });
    exchanges(&mut fleet, &mut samples, 2);
    let afterwards = exchanges(&mut fleet, &mut samples, 3);
    floods.into_iter().for_each(done);
    let above = excess(&samples, BOUND);
    println!(
        "{calm:.1} exchanges a second, {busy:.1} while others keep the store busy, {afterwards:.1} afterwards"
    );
    println!("{above:.0} above the rate at most, burst 1000");
    // A tick is 50 ms, and the longest 250 ms; without a longer one there would be one exchange in 80 ms.
    assert!(calm > 12.0 && afterwards > 12.0, "{calm} and {afterwards} in a second");
    assert!(busy < 7.0, "{busy} in a second");
    assert!(above <= BOUND.burst, "{above} above the rate in some interval");
}
