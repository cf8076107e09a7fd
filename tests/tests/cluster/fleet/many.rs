//! A hundred thousand active users on one host, as far as the store is concerned. The kernel has 4096 users; requests will have more.

use std::time::{Duration, Instant};

use ratelimit_common::{abi::Spent, limit::text::parse_rate};
use ratelimit_tests::redis::{Options, Redis};
use ratelimit_user::{
    cluster::leases::{LeasedLimit, Leases},
    policy::{Reserve, terms::Terms},
    store::{
        exchange::Timing,
        lease_batch::{self, Keys},
        redis::RedisLink,
    },
};

use super::{alone, season_cluster, through_socket};

const USERS: u32 = 100_000;
const TICK: Duration = Duration::from_millis(50);
/// A second would not do for so many: each has to be heard of before its lease runs out.
const LEASE: Duration = Duration::from_secs(20);
const LASTS: Duration = Duration::from_secs(40);

#[test]
#[ignore = "long"]
fn a_host_with_a_hundred_thousand_active_users_does_not_fall_behind() {
    let _alone = alone();
    let redis = Redis::single(Options::default());
    let (keys, timing) = (Keys::new("many"), Timing::new(LEASE, TICK));
    let rate = parse_rate("100 packets/s burst 3200").expect("a rate");
    let terms = Terms::of(&rate, Reserve::new(0, 1)).expect("terms");
    let limit =
        |place: u32| LeasedLimit { key: keys.record(&format!("user{place}"), "packets"), place, terms };
    let mut leases = Leases::new(timing, TICK.as_nanos() as u64);
    let began = Instant::now();
    let clock = || 1_000_000_000_000 + began.elapsed().as_nanos() as u64;
    leases.follow((0..USERS).map(limit).collect(), clock(), |_| Spent { used: 0, unmet: 0 });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let address = through_socket(&redis).parse().expect("an address");
        let link = RedisLink::open(&address, Duration::from_secs(2)).await.expect("a link");
        // A first lease batch makes the store, which is then made old.
        let first = lease_batch::calls(&keys, "many:1", &timing, &leases.greeting(|_| ()), false);
        link.run(&[first[0].1.clone()], Duration::from_secs(1)).await;
        season_cluster(&redis, "many");
        let (mut lines, mut ticks, mut slowest) = (0_u64, 0_u64, Duration::ZERO);
        let mut spent = vec![Spent { used: 0, unmet: 0 }; USERS as usize];
        let mut told = vec![(0_u64, 0_u64); USERS as usize];
        let (mut passed, mut refused) = (0_u64, 0_u64);
        let mut due = Instant::now();
        while began.elapsed() < LASTS {
            let tick = Instant::now();
            // Each user sends a packet a second: in each tick a twentieth of them.
            for user in (ticks as usize % 20..USERS as usize).step_by(20) {
                let (ceiling, expires) = told[user];
                if spent[user].used < ceiling && clock() < expires {
                    spent[user].used += 1;
                    passed += u64::from(began.elapsed() > LASTS / 2);
                } else {
                    spent[user].unmet += 1;
                    refused += u64::from(began.elapsed() > LASTS / 2);
                }
            }
            leases.observe(clock(), |place| spent[place as usize]);
            let sent = clock();
            let batch = leases.batch(sent);
            lines += batch.len() as u64;
            let (places, calls): (Vec<_>, Vec<_>) =
                lease_batch::calls(&keys, "many:1", &timing, &batch, false).into_iter().unzip();
            for (places, value) in places.iter().zip(link.run(&calls, Duration::from_secs(1)).await) {
                let grants = lease_batch::grants(&value.expect("an answer"), places.len()).expect("grants");
                for (at, grant) in places.iter().zip(grants) {
                    leases.answer(&batch[*at].key, &grant, sent, clock());
                }
            }
            for (place, news) in leases.news() {
                told[place as usize] = (news.ceiling, news.expires_ns);
            }
            slowest = slowest.max(tick.elapsed());
            ticks += 1;
            due += TICK;
            tokio::time::sleep_until(due.max(Instant::now()).into()).await;
        }
        let seconds = began.elapsed().as_secs_f64();
        let bytes: f64 = redis.info("total_net_input_bytes").parse().unwrap_or(0.0);
        println!(
            "{:.1} ticks/s (20 wanted), slowest {slowest:?}; {:.0} limits/s, {:.0} kB/s to the store; in the second half {passed} passed, {refused} refused",
            ticks as f64 / seconds,
            lines as f64 / seconds,
            bytes / seconds / 1e3
        );
        assert!(ticks as f64 / seconds > 18.0, "it falls behind");
        assert!(refused * 50 < passed, "{refused} of {passed} were refused although there was plenty");
    });
}
