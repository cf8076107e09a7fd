//! The script that counts requests in Redis and the model that it mirrors are the same, number for number, for every algorithm.
//!
//! Random conversations from seeds go to both, with a clock of our own. `SEED=n` repeats one, `CONVERSATIONS=n` holds more.

use fastrand::Rng;
use ratelimit_tests::{
    record::StoreRecord,
    redis::{Options, Redis},
    seeds::seeds,
    simulation::Script,
};
use ratelimit_user::{
    meter::{
        Counting as _, Fixed, Log, Meter, RequestBucket, Sliding, Soft, Weighted,
        calendar::{Calendar, CalendarUnit},
    },
    policy::largest_burst,
    store::{
        ask::{Ask, CountedLimit},
        exchange::Entry,
        inquiry::Inquiry,
        redis::Value,
    },
};

const SECOND: u64 = 1_000_000;
const START: u64 = 1_790_000_000 * SECOND;
const STEPS: usize = 300;
const RECENT_US: u64 = 2 * SECOND;

fn inquiry(key: &str, limits: &[CountedLimit], ask: Ask) -> Inquiry {
    Inquiry { key: key.to_owned(), limits: limits.to_vec(), ask }
}

fn counted(meter: Meter) -> CountedLimit {
    CountedLimit::plain(meter)
}

fn bucket(amount: u64, burst: u64) -> CountedLimit {
    counted(Meter::Bucket(RequestBucket::new(amount, SECOND, burst)))
}

fn some_limit(rng: &mut Rng) -> CountedLimit {
    let period = *rng.choice(&[SECOND, 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND]).unwrap();
    let limit = *rng.choice(&[1, 2, 3, 15, 100, 1_000, 1_000_000, 4_294_967_295]).unwrap();
    // Windows may have a margin that is given, or that is not.
    let percent = if rng.u32(0..4) == 0 { limit / 4 } else { 0 };
    let (margin, held_back) = if rng.bool() { (percent, 0) } else { (0, percent) };
    let queue = rng.u32(0..4) == 0;
    // Half of the buckets may be half as large as they may be at all, and half of those have something kept back for hosts without a store.
    let (is_large, is_kept_back) = (rng.bool(), rng.bool());
    let some_burst = |rng: &mut Rng, period: u64| match is_large {
        true => rng.u64(1..=largest_burst(period.into()) as u64 / 2).div_ceil(1 << rng.u32(0..9)),
        false => rng.u64(1..50),
    };
    let kept_back = |rng: &mut Rng, meter: Meter| match is_large && is_kept_back {
        true => meter.without_parts(rng.u64(0..=500), rng.u64(1..40)),
        false => meter,
    };
    let counted = |meter: Meter| match meter {
        Meter::Bucket(_) | Meter::Soft(_) => CountedLimit::plain(meter),
        Meter::Log(_) => CountedLimit {
            margin: margin.min(10),
            held_back: held_back.min(10),
            ..CountedLimit::plain(meter)
        },
        meter => CountedLimit { margin, held_back, ..CountedLimit::plain(meter) },
    };
    match rng.u32(0..8) {
        7 => {
            let (amount, burst) = (limit.min(10_000), some_burst(rng, period));
            let own = RequestBucket::new(amount, period, burst);
            let soft = Soft::new(own, *rng.choice(&[0, 10, 50]).unwrap(), 50);
            CountedLimit { queue, ..CountedLimit::plain(kept_back(rng, Meter::Soft(soft))) }
        }
        0 => {
            let bucket = RequestBucket::new(limit.min(1_000_000), period, some_burst(rng, period));
            counted(kept_back(rng, Meter::Bucket(bucket)))
        }
        1 => CountedLimit {
            queue: true,
            ..CountedLimit::plain(Meter::Bucket(RequestBucket::new(15, SECOND, rng.u64(1..50))))
        },
        2 => counted(Meter::Fixed(Fixed::new(limit, period))),
        3 => {
            // Days: of months the script knows this one and how long it is, not the one before, where a clock that steps back ends up.
            let days = Calendar::new("UTC", CalendarUnit::Day, START).unwrap();
            counted(Meter::Fixed(Fixed::by(limit, days)))
        }
        4 => counted(Meter::Sliding(Sliding::new(limit, period))),
        5 => counted(Meter::Weighted(Weighted::new(limit, period))),
        _ => counted(Meter::Log(Log::new(limit.min(100), period))),
    }
}

/// The limits of a host that has been changed, with smaller numbers. Softs and logs stay, for which the model has one number.
fn changed(rng: &mut Rng, limits: &[CountedLimit]) -> Vec<CountedLimit> {
    let mut smaller = |limit: &CountedLimit| {
        let [_, amount, ..] = limit.meter.script(START);
        let amount = rng.u64(1..=amount);
        let meter = match &limit.meter {
            Meter::Bucket(bucket) => {
                let burst = rng.u64(1..=bucket.capacity());
                Meter::Bucket(RequestBucket::new(amount, bucket.period_us(), burst))
            }
            Meter::Fixed(fixed) => Meter::Fixed(fixed.scaled(1, 1, amount)),
            Meter::Sliding(sliding) => Meter::Sliding(sliding.scaled(1, 1, amount)),
            Meter::Weighted(weighted) => Meter::Weighted(weighted.scaled(1, 1, amount)),
            same @ (Meter::Soft(_) | Meter::Log(_)) => same.clone(),
        };
        CountedLimit { meter, ..limit.clone() }
    };
    limits.iter().map(&mut smaller).collect()
}

/// What a host believes to have.
#[derive(Clone, Copy, Default)]
struct Believed {
    sequence: u64,
    has: u64,
    last: Entry,
}

fn some_ask(rng: &mut Rng, believed: &mut Believed, capacity: u64) -> Ask {
    let lease = match rng.u32(0..10) {
        0..3 => Entry::default(),
        3 => believed.last,
        _ => {
            let used = rng.u64(0..=believed.has);
            let held = rng.u64(0..=believed.has - used);
            believed.sequence += 1;
            believed.has = held;
            let wanted = if rng.bool() { rng.u64(0..=capacity) } else { 0 };
            Entry { sequence: believed.sequence, used, held, wanted }
        }
    };
    believed.last = lease;
    Ask {
        lease,
        life_us: rng.u64(1..20 * SECOND),
        spend: if rng.bool() { rng.u64(0..=capacity.min(5)) } else { rng.u64(0..=capacity + 1) },
        reserved: if rng.u32(0..4) == 0 { rng.u64(0..=capacity / 2) } else { 0 },
        patience_us: if rng.u32(0..4) == 0 { rng.u64(0..2 * SECOND) } else { 0 },
        refund: if rng.u32(0..8) == 0 { rng.u64(0..=3) } else { 0 },
        age_us: if rng.bool() { 0 } else { rng.u64(0..SECOND) << rng.u32(0..8) },
        peek: rng.u32(0..8) == 0,
    }
}

/// One conversation about one key; how many answers were yes, and how many gave a lease.
fn converse(seed: u64, store: &mut Script) -> (u64, u64) {
    let mut rng = Rng::with_seed(seed);
    let limits: Vec<CountedLimit> = (0..rng.usize(1..4)).map(|_| some_limit(&mut rng)).collect();
    let capacity = limits.iter().map(|limit| limit.meter.capacity()).min().unwrap();
    let longest = limits.iter().map(|limit| limit.meter.wait(&vec![0; limit.meter.words()], START, 1)).max();
    assert_eq!(longest, Some(0), "something fits at first");
    // Few are in the record itself, many are not.
    let mut hosts = vec![Believed::default(); *rng.choice(&[1, 3, 8, 9, 20]).unwrap()];
    // In half of the conversations some hosts have been changed.
    let some_changed = rng.bool();
    let limits: Vec<Vec<CountedLimit>> = (0..hosts.len())
        .map(|_| if some_changed && rng.bool() { changed(&mut rng, &limits) } else { limits.clone() })
        .collect();
    let mut record = StoreRecord::default();
    let (mut now_us, mut yes, mut leased) = (START + rng.u64(0..SECOND), 0, 0);
    let key = format!("t:{seed}");
    for step in 0..STEPS {
        now_us = match rng.u32(0..20) {
            0 => now_us.saturating_sub(rng.u64(0..SECOND)),
            1 => now_us + rng.u64(0..40 * 86_400 * SECOND) / rng.u64(1..1_000),
            2..6 => now_us + rng.u64(0..15 * SECOND),
            6..12 => now_us + rng.u64(0..SECOND),
            _ => now_us + rng.u64(0..20_000),
        };
        let from = rng.usize(..hosts.len());
        let ask = some_ask(&mut rng, &mut hosts[from], capacity);
        let (name, limits) = (format!("h{from}"), &limits[from]);
        let expected = record.exchange(limits, RECENT_US, now_us, &name, &ask);
        let got = store.requests(&name, RECENT_US, now_us, &[inquiry(&key, limits, ask)]);
        if std::env::var_os("TRACE").is_some() {
            println!("{step} {now_us} {name} {ask:?} {expected:?} {record:?}");
        }
        assert_eq!(got, [expected], "SEED={seed} step {step} at {now_us}: {ask:?} on {limits:?}");
        if ask.lease.sequence > 0 && ask.lease.sequence == hosts[from].sequence {
            hosts[from].has = ask.lease.held + expected.granted;
        }
        yes += u64::from(expected.spent && !ask.peek);
        leased += u64::from(expected.granted > 0);
    }
    (yes, leased)
}

#[test]
fn the_script_and_its_model_answer_alike_for_every_algorithm() {
    let server = Redis::single(Options::default());
    let mut store = Script::new(&server);
    let (mut yes, mut leased, mut all) = (0, 0, 0);
    for seed in seeds("CONVERSATIONS", 120) {
        let (spent, granted) = converse(seed, &mut store);
        (yes, leased, all) = (yes + spent, leased + granted, all + STEPS as u64);
    }
    println!("{all} answers alike, {yes} of them yes, {leased} with a lease");
    assert!(all == STEPS as u64 || (yes * 5 > all && leased * 40 > all), "{yes} and {leased} of {all}");
}

#[test]
fn a_store_clock_set_back_starves_no_request() {
    let server = Redis::single(Options::default());
    let mut store = Script::new(&server);
    let (rate, step_us) = (10, SECOND / 40);
    let of_algorithms = [
        bucket(rate, 5),
        CountedLimit { queue: true, ..bucket(rate, 5) },
        counted(Meter::Soft(Soft::new(RequestBucket::new(rate, SECOND, 5), 0, 10))),
        counted(Meter::Fixed(Fixed::new(rate, SECOND))),
        counted(Meter::Fixed(Fixed::new(60 * rate, 60 * SECOND))),
        counted(Meter::Sliding(Sliding::new(rate, SECOND))),
        counted(Meter::Weighted(Weighted::new(rate, SECOND))),
        counted(Meter::Log(Log::new(rate, SECOND))),
    ];
    for (nth, limit) in of_algorithms.into_iter().enumerate() {
        for back_us in [SECOND / 20, 30 * SECOND, 3_600 * SECOND] {
            let key = format!("k{nth}-{back_us}");
            let mut served = |from_us: u64, steps: u64| {
                let ask = Ask { spend: 1, ..Ask::default() };
                let at = |step| from_us + step * step_us;
                let asked = [inquiry(&key, std::slice::from_ref(&limit), ask)];
                let told = (0..steps).map(|step| store.requests("h", RECENT_US, at(step), &asked)[0].spent);
                told.filter(|spent| *spent).count() as u64
            };
            let before = served(START, 400);
            // Ten seconds more, of which the first is looked at alone: nothing has to be waited for.
            let after = START + 400 * step_us - back_us;
            let (first, rest) = (served(after, 40), served(after + SECOND, 360));
            let all = first + rest;
            if nth == 4 {
                assert_eq!(before + all, 60 * rate, "{key}: one minute is one window");
                continue;
            }
            assert!(first * 10 >= 8 * rate, "{key}: {first} in the first second, {rest} in nine");
            assert!(
                (before * 9 / 10..=before + rate).contains(&all),
                "{key}: {all} in ten seconds, {before} before"
            );
        }
    }
}

#[test]
fn whoever_asks_for_all_of_a_limit_is_told_when_it_is_there() {
    let server = Redis::single(Options::default());
    let mut store = Script::new(&server);
    let minute = 60 * SECOND;
    let lent = Ask {
        lease: Entry { sequence: 1, used: 0, held: 0, wanted: 10 },
        life_us: 8 * SECOND,
        ..Ask::default()
    };
    for (key, limit, first) in [("one", 1, Ask { spend: 1, ..Ask::default() }), ("lent", 100, lent)] {
        let limits = [counted(Meter::Weighted(Weighted::new(limit, minute)))];
        store.requests("a", RECENT_US, START, &[inquiry(key, &limits, first)]);
        let all = [inquiry(key, &limits, Ask { spend: limit, ..Ask::default() })];
        let told = store.requests("b", RECENT_US, START, &all)[0];
        assert!(!told.spent && told.wait_us <= 2 * minute, "{key}: {told:?}");
        assert!(!store.requests("b", RECENT_US, START + told.wait_us - 1, &all)[0].spent, "{key}: {told:?}");
        assert!(store.requests("b", RECENT_US, START + told.wait_us, &all)[0].spent, "{key}: {told:?}");
    }
}

/// Two hosts that ask for as much as they can by limits of their own, about one key.
struct Fleet<'s> {
    store: &'s mut Script,
    key: &'s str,
    now_us: u64,
    rng: Rng,
}

impl Fleet<'_> {
    /// How many requests each host has served after so many seconds.
    fn served(&mut self, limits: [&CountedLimit; 2], seconds: u64) -> [u64; 2] {
        let mut served = [0; 2];
        let until_us = self.now_us + seconds * SECOND;
        while self.now_us < until_us {
            self.now_us += 2_000;
            let first = self.rng.usize(..2);
            for host in [first, 1 - first] {
                let ask = Ask { spend: 1, ..Ask::default() };
                let asked = [inquiry(self.key, std::slice::from_ref(limits[host]), ask)];
                let told = self.store.requests(["a", "b"][host], RECENT_US, self.now_us, &asked);
                served[host] += u64::from(told[0].spent);
            }
        }
        served
    }
}

/// A meter of an amount per second, of one algorithm.
type MeterOf = fn(u64) -> Meter;

#[test]
fn the_smaller_limit_holds_from_the_first_changed_host_on() {
    let server = Redis::single(Options::default());
    let mut store = Script::new(&server);
    let makers: [(&str, MeterOf); 5] = [
        ("bucket", |amount| Meter::Bucket(RequestBucket::new(amount, SECOND, amount))),
        ("fixed", |amount| Meter::Fixed(Fixed::new(amount, SECOND))),
        ("sliding", |amount| Meter::Sliding(Sliding::new(amount, SECOND))),
        ("weighted", |amount| Meter::Weighted(Weighted::new(amount, SECOND))),
        ("log", |amount| Meter::Log(Log::new(amount, SECOND))),
    ];
    for (key, make) in makers {
        let [small, large] = [100, 300].map(|amount| counted(make(amount)));
        let mut fleet = Fleet { store: &mut store, key, now_us: START, rng: Rng::with_seed(7) };
        let all: u64 = fleet.served([&large, &large], 3).iter().sum();
        assert!(all > 700, "{key}: {all}");
        // A window may have counted more than the smaller limit until it ends.
        fleet.served([&small, &large], 2);
        let [changed, other] = fleet.served([&small, &large], 3);
        assert!(changed > 100 && other > 0, "{key}: {changed} and {other}");
        assert!((270..=400).contains(&(changed + other)), "{key}: {changed} and {other} of 300");
        fleet.served([&small, &small], 1);
        let all: u64 = fleet.served([&large, &small], 3).iter().sum();
        assert!((270..=400).contains(&all), "{key}: {all} while one host has the smaller limit");
        fleet.served([&large, &large], 3);
        let all: u64 = fleet.served([&large, &large], 3).iter().sum();
        assert!((780..=1_200).contains(&all), "{key}: {all} after both were changed");
    }
}

#[test]
fn a_store_record_is_kept_for_as_long_as_somebody_waits_for_a_turn_in_it() {
    let server = Redis::single(Options::default());
    let mut store = Script::new(&server);
    let limits = [CountedLimit { queue: true, ..bucket(1, 10) }];
    let patience_us = 60 * SECOND;
    let waits = Ask { spend: 1, patience_us, ..Ask::default() };
    let all: Vec<Inquiry> = (0..10).map(|_| inquiry("k", &limits, waits)).collect();
    assert!(store.requests("h", RECENT_US, START, &all).iter().all(|told| told.spent));
    let refund = Ask { refund: 1, patience_us, ..Ask::default() };
    store.requests("h", RECENT_US, START, &[inquiry("k", &limits, refund)]);
    let left_ms = |key: &str| match server.ask(&["PTTL", key]) {
        Value::Int(left_ms) => left_ms,
        other => panic!("{other:?}"),
    };
    assert!((60_000..=72_000).contains(&left_ms("k")), "{}", left_ms("k"));
    // So are those of the host that holds something for longest, whoever comes after it.
    let lease = |life_us| Ask {
        lease: Entry { sequence: 1, used: 0, held: 0, wanted: 1 },
        life_us,
        ..Ask::default()
    };
    let limits = [bucket(100, 100)];
    store.requests("long", RECENT_US, START, &[inquiry("l", &limits, lease(200 * SECOND))]);
    store.requests("short", RECENT_US, START, &[inquiry("l", &limits, lease(SECOND))]);
    assert!((225_000..=228_000).contains(&left_ms("l")), "{}", left_ms("l"));
}

fn hundred() -> [CountedLimit; 1] {
    [CountedLimit::plain(Meter::Fixed(Fixed::new(100, 3_600 * SECOND)))]
}

fn wants(sequence: u64, wanted: u64, life_us: u64) -> Ask {
    Ask { lease: Entry { sequence, used: 0, held: 0, wanted }, life_us, ..Ask::default() }
}

#[test]
fn what_must_be_left_is_not_lent() {
    let mut record = StoreRecord::default();
    let ask = Ask { reserved: 60, ..wants(1, 50, SECOND) };
    let told = record.exchange(&hundred(), SECOND, 0, "a", &ask);
    assert_eq!((told.granted, told.free), (40, 60));
    let told = record.exchange(&hundred(), SECOND, 0, "b", &ask);
    assert_eq!((told.granted, told.free), (0, 60));
}

#[test]
fn each_lease_is_written_off_an_eighth_after_its_own_life() {
    let mut record = StoreRecord::default();
    let limits = hundred();
    record.exchange(&limits, SECOND, 0, "short", &wants(1, 20, 8 * SECOND));
    record.exchange(&limits, SECOND, 0, "long", &wants(1, 30, 80 * SECOND));
    let mut out_at = |now_us| {
        record.exchange(&limits, SECOND, now_us, "onlooker", &Ask::default());
        record.out()
    };
    assert_eq!([9, 10, 90, 91].map(|second| out_at(second * SECOND)), [50, 30, 30, 0]);
    let told = record.exchange(&limits, SECOND, 91 * SECOND, "onlooker", &Ask::default());
    assert_eq!(told.free, 50, "what nobody reported counts as used");
}

#[test]
fn what_hosts_used_of_a_larger_log_counts_when_they_tell_of_it_under_a_smaller_one() {
    let server = Redis::single(Options::default());
    let mut store = Script::new(&server);
    let log = |limit: u64| [counted(Meter::Log(Log::new(limit, 3_600 * SECOND)))];
    let mut exchange = |limit: u64, ask: Ask| {
        store.requests("a", RECENT_US, START, &[inquiry("k", &log(limit), ask)]).swap_remove(0)
    };
    let granted = exchange(100, wants(1, 60, 20 * SECOND)).granted;
    assert_eq!(granted, 60);
    let used = Entry { sequence: 2, used: granted, held: 0, wanted: 0 };
    exchange(10, Ask { lease: used, life_us: 20 * SECOND, ..Ask::default() });
    let free = [10, 100, 9, 100].map(|limit| exchange(limit, Ask { peek: true, ..Ask::default() }).free);
    assert_eq!(free, [0, 40, 0, 40]);
}
