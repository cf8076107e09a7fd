//! What comes back: by a refund, by a reset, and because a host refused what the store had charged.

use std::time::Duration;

use ratelimit_tests::redis::{Options, Redis, wait_for};
use ratelimit_user::requests::{
    Outcome, Request,
    asking::{Asking, NotRefunded},
};

use super::{answer, block_on, hosts, policy};

#[test]
fn what_is_refunded_comes_back_where_it_was_charged_or_the_refund_is_refused() {
    let mut server = Redis::single(Options::default());
    let further = "[[api]]\nname = \"few\"\nlimits = [\"640/day\"]\nalgorithm = \"fixed-window\"\n\
                   [[api]]\nname = \"slow\"\nlimits = [\"6/day\"]\nalgorithm = \"fixed-window\"\nwithout_store = \"share\"\n\
                   [[api]]\nname = \"log-in\"\npreset = \"login\"\nper_user = [\"30/day\"]\n";
    let hosts = hosts(1, &policy(&server.url(), further));
    let (few, slow) = (Request::new("user", "few"), Request::new("user", "slow"));
    let refund = |request: &Request<'_>, age_us| block_on(hosts[0].refund(request, age_us));
    let left = |request: &Request<'_>| answer(&hosts[0], request, Asking::Peeking).left;
    // What was spent of a lease, and what the store has counted.
    for _ in 0..5 {
        answer(&hosts[0], &few, Asking::Counted);
    }
    assert_eq!((refund(&few, 0), refund(&few, 0), left(&few)), (Ok(()), Ok(()), 637));
    answer(&hosts[0], &slow.costing(4), Asking::Counted);
    assert_eq!((refund(&slow, 0), left(&slow)), (Ok(()), 3));
    assert_eq!((refund(&slow.costing(6), 0), left(&slow)), (Ok(()), 3), "that was never charged");
    assert_eq!((refund(&slow, 86_400_000_000), left(&slow)), (Ok(()), 3), "that was yesterday");
    // A login that nobody has tried makes nobody known.
    let guess = Request::new("alice", "log-in").from("203.0.113.9".parse().unwrap());
    assert_eq!(refund(&guess, 0), Ok(()));
    let keys = || {
        let rules = hosts[0].engine().rules();
        hosts[0].engine().counter_keys(&rules, &guess, 0).unwrap().iter().count()
    };
    assert_eq!(keys(), 3);

    server.kill();
    wait_for("a host that knows", || {
        answer(&hosts[0], &slow, Asking::Peeking);
        (!hosts[0].store().unwrap().is_up()).then_some(())
    });
    assert_eq!(refund(&slow, 0), Err(NotRefunded::StoreAway), "it was charged there");
    assert!(answer(&hosts[0], &slow.costing(2), Asking::Counted).outcome.is_served(), "this host's share");
    assert!(!answer(&hosts[0], &slow, Asking::Counted).outcome.is_served());
    assert_eq!(refund(&slow, 0), Ok(()), "this was charged here");
    assert!(answer(&hosts[0], &slow, Asking::Counted).outcome.is_served());
}

#[test]
fn what_the_store_has_charged_comes_back_when_this_host_refuses() {
    let server = Redis::single(Options::default());
    let further = "[plan.default]\nlimits = [\"10/day fixed-window\"]\n\
                   [[api]]\nname = \"few\"\nlimits = [\"2/day\"]\nalgorithm = \"fixed-window\"\nsharing = \"local\"\n\
                   [[api]]\nname = \"many\"\nlimits = [\"640/day\"]\nalgorithm = \"fixed-window\"\nsharing = \"local\"\n";
    let hosts = hosts(2, &policy(&server.url(), further));
    let few = Request::new("user", "few");
    let served = |host: usize| answer(&hosts[host], &few, Asking::Counted).outcome.is_served();
    assert_eq!((0..12).filter(|_| served(0)).count(), 2, "of the limit of this host");
    // The plan is of both hosts, and ten times it was charged for a request that nobody served.
    let left = || answer(&hosts[1], &Request::new("user", "many"), Asking::Peeking).left;
    wait_for("all that was charged for nothing", || (left() == 8).then_some(()));
}

#[test]
fn a_user_is_reset_on_all_hosts_and_what_is_refunded_can_be_used_again() {
    let server = Redis::single(Options::default());
    let further = "[[api]]\nname = \"slow\"\nlimits = [\"10/hour\"]\nalgorithm = \"fixed-window\"\n";
    let hosts = hosts(2, &policy(&server.url(), further));
    let user = Request::new("user", "slow");
    block_on(async {
        let outcome = async |host: usize| {
            hosts[host].check(&user, Asking::Counted, |decision| decision.outcome).await.unwrap()
        };
        let serves = async |host: usize| outcome(host).await.is_served();
        for n in 0..10 {
            assert_eq!(outcome(n % 2).await, Outcome::Allowed, "{n}");
        }
        assert!(!serves(0).await);
        assert!(!serves(1).await);
        hosts[0].refund(&user.costing(2), 0).await.unwrap();
        // What was refused is believed for a second.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        assert!(serves(1).await && serves(0).await && !serves(0).await);
        hosts[0].reset(&user).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        assert!(serves(1).await);
    });
}
