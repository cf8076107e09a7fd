//! Hosts together admit no more than the bound of each algorithm, on every kind of store.

use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use ratelimit_tests::{
    policies::REQUEST_ALGORITHMS,
    redis::{Options, Redis, RedisCluster, Sentinels},
};
use ratelimit_user::{
    requests::Request,
    serve::grpc::{
        messages::{Descriptor, DescriptorEntry, NumberMessage, RateLimitRequest},
        rls,
    },
};

use super::{LIMIT, MODES, ask_all, block_on, hosts, is_served, most, policy};

/// Three hosts, one user, each asking at more than the limit: no algorithm admits more than its own bound, and most of what it may.
fn no_more_than_the_bound(url: &str, lasting: Duration) {
    let hosts = hosts(3, &policy(url, ""));
    let apis: Vec<String> = REQUEST_ALGORITHMS
        .iter()
        .flat_map(|algorithm| MODES.map(|mode| format!("{algorithm}/{mode}")))
        .collect();
    let per_second = 12;
    let began = Instant::now();
    let (all, asked) = ask_all(&hosts, &apis, per_second, lasting);
    // On a busy machine the last questions take a little longer than they were to.
    let took = began.elapsed().as_secs_f64();
    let seconds = lasting.as_secs_f64();
    // Who has not asked has not been refused: of hosts that were held up, only what they got at most can be told.
    let is_on_time = asked * 10 >= per_second * hosts.len() as u64 * lasting.as_secs() * 8;
    let late: u64 = hosts.iter().map(|host| host.store().unwrap().counts().1).sum();
    assert_eq!(late, 0, "answers that were missing");
    for (api, served) in apis.iter().zip(&all) {
        let in_a_second = most(served, Duration::from_secs(1));
        let bound = match api.split('/').next() {
            Some("sliding-window" | "sliding-log") => LIMIT,
            Some("sliding-window-weighted") => 2 * LIMIT - 1,
            _ => 2 * LIMIT,
        };
        let total = served.len() as f64;
        println!("{api}: {in_a_second} in a second of at most {bound}, {total} in {seconds:.0} s");
        assert!(in_a_second as u64 <= bound, "{api}: {in_a_second} in a second");
        assert!(total <= LIMIT as f64 * (took + 1.0), "{api}: {total} in {took:.3} s");
        assert!(!is_on_time || total >= LIMIT as f64 * seconds * 0.7, "{api}: {total} in {seconds} s");
    }
}

#[test]
fn three_hosts_admit_no_more_than_the_bound_of_every_algorithm() {
    let server = Redis::single(Options::default());
    no_more_than_the_bound(&server.url(), Duration::from_secs(5));
}

#[test]
fn three_hosts_admit_no_more_than_the_bound_on_sentinels() {
    let sentinels = Sentinels::new();
    no_more_than_the_bound(&sentinels.url(), Duration::from_secs(5));
}

#[test]
fn three_hosts_admit_no_more_than_the_bound_on_a_redis_cluster() {
    let cluster = RedisCluster::new();
    no_more_than_the_bound(&cluster.url(), Duration::from_secs(5));
}

/// What a proxy sends when it knows what an answer has cost.
fn late_charge(user: &'static str, domain: &str, hits: u64) -> Bytes {
    let entries = vec![DescriptorEntry { key: "user".into(), value: user.into() }];
    let descriptor = Descriptor { entries, hits_addend: Some(NumberMessage { value: hits }) };
    let domain = domain.to_owned().into();
    RateLimitRequest { domain, descriptors: vec![descriptor], hits_addend: 0 }.encode_to_vec().into()
}

#[test]
fn a_late_charge_empties_the_limit_on_all_hosts() {
    let server = Redis::single(Options::default());
    let names: Vec<_> = REQUEST_ALGORITHMS
        .iter()
        .flat_map(|algorithm| MODES.map(|mode| (*algorithm, mode, format!("late/{algorithm}/{mode}"))))
        .collect();
    let api = |(algorithm, mode, name): &(&str, &str, String)| {
        format!(
            "[[api]]\nname = \"{name}\"\nlimits = [\"20/hour\"]\nalgorithm = \"{algorithm}\"\nsharing = \"{mode}\"\n"
        )
    };
    let hosts = hosts(2, &policy(&server.url(), &names.iter().map(api).collect::<String>()));
    for (_, _, name) in &names {
        block_on(rls::answer(&hosts[0], late_charge("ann", name, 5_000), true)).expect("an answer");
        for host in &hosts {
            assert!(!block_on(is_served(host, &Request::new("ann", name))), "{name}");
        }
        assert!(block_on(is_served(&hosts[1], &Request::new("bob", name))), "{name}: another user");
    }
}
