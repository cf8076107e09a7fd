//! Limits that change while hosts count by them.

use std::time::{Duration, Instant};

use ratelimit_tests::redis::{Options, Redis};
use ratelimit_user::{config, requests::Request};

use super::{MODES, block_on, hosts, is_served, policy};

#[test]
fn a_refusal_is_believed_under_the_limits_that_it_was_made_under_and_for_a_second_at_most() {
    let server = Redis::single(Options::default());
    let api = |mode: &str, limit: u64| {
        format!("[[api]]\nname = \"{mode}\"\nlimits = [\"{limit}/hour\"]\nsharing = \"{mode}\"\n")
    };
    let of = |limit: u64| policy(&server.url(), &MODES.map(|mode| api(mode, limit)).concat());
    let hosts = hosts(2, &of(10));
    let questions = || hosts[0].store().unwrap().counts().0;
    block_on(async {
        for mode in MODES {
            let user = Request::new("user", mode);
            let first_serves = async || is_served(&hosts[0], &user).await;
            let spend = async || {
                let mut served = 0;
                while first_serves().await {
                    served += 1;
                }
                served
            };
            assert_eq!(spend().await, 10, "{mode}");
            // Whoever asks again is no load on the store.
            let asked = questions();
            assert!(!first_serves().await && questions() == asked, "{mode}: from memory");
            hosts[0].follow(&config::parse(&of(15), "test").unwrap().policy, None);
            assert_eq!(spend().await, 5, "{mode}: a limit that is raised counts at once");
            let refused = Instant::now();
            hosts[1].reset(&user).await.unwrap();
            while !first_serves().await {
                assert!(
                    refused.elapsed() < Duration::from_secs(2),
                    "{mode}: a second, and what the machine takes"
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            println!("{mode}: refused for {:?} after a reset at another host", refused.elapsed());
            spend().await;
            hosts[0].reset(&user).await.unwrap();
            assert!(first_serves().await, "{mode}: at once where it was reset");
            hosts[0].follow(&config::parse(&of(10), "test").unwrap().policy, None);
        }
    });
}

#[test]
fn another_amount_of_a_log_that_hosts_count_together_gives_nothing_again() {
    let server = Redis::single(Options::default());
    let api = |mode: &str, limit: &str| {
        format!("[[api]]\nname = \"{mode}\"\nlimits = [\"{limit} sliding-log\"]\nsharing = \"{mode}\"\n")
    };
    let of = |amount: u64| {
        let apis = MODES.map(|mode| api(mode, &format!("{amount}/hour"))).concat();
        policy(&server.url(), &apis)
    };
    let hosts = hosts(2, &of(100));
    let follow = |amount: u64| {
        let changed = config::parse(&of(amount), "test").unwrap().policy;
        hosts.iter().for_each(|host| host.follow(&changed, None));
    };
    block_on(async {
        for mode in MODES {
            let served = async |user: &str, most: usize| {
                let mut served = 0;
                for turn in 0..most {
                    served += usize::from(is_served(&hosts[turn % 2], &Request::new(user, mode)).await);
                }
                served
            };
            assert_eq!(served("spent", 300).await, 100, "{mode}");
            for amount in [10, 100, 10, 9, 100] {
                follow(amount);
                assert_eq!(served("spent", 30).await, 0, "{mode}: {amount} an hour");
            }
            // What hosts hold beforehand when the amount becomes smaller is counted when they tell of it.
            let mut all = served("leased", 20).await;
            for amount in [10, 100, 10, 100] {
                follow(amount);
                all += served("leased", 150).await;
            }
            assert!((20..=100).contains(&all), "{mode}: {all} of 100");
        }
    });
}
