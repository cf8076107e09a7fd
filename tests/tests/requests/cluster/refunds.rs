//! What comes back: by a refund, by a reset, and because a host refused what the store had charged.

use std::time::Duration;

use ratelimit_tests::{
    policies::REQUEST_ALGORITHMS,
    redis::{Options, Proxy, Redis, wait_for},
};
use ratelimit_user::{
    config,
    requests::{
        Outcome, Request,
        asking::{Asking, NotRefunded, NotReset},
        decision_service::DecisionService,
    },
    store::worker::MOST_KEPT,
};

use super::{MODES, answer, block_on, hosts, hosts_within, is_served, policy};

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

/// How many requests a host serves until it refuses one.
fn served_until_refused(host: &DecisionService, request: &Request<'_>) -> u64 {
    block_on(async {
        let mut served = 0;
        while is_served(host, request).await {
            served += 1;
            assert!(served < 1_000, "{request:?} is never refused");
        }
        served
    })
}

/// APIs of every algorithm, whose limits hosts ask the store for each time, or hold leases of: `reset/ALGORITHM/MODE`.
fn of_every_kind() -> (Vec<String>, String) {
    let kinds = || REQUEST_ALGORITHMS.iter().flat_map(|algorithm| MODES.map(|mode| (*algorithm, mode)));
    let api = |(algorithm, mode): (&str, &str)| {
        // Fewer than 64 are never held.
        let limit = if mode == "lease" { 66 } else { 6 };
        let burst = if algorithm.ends_with("bucket") { format!(" burst {limit}") } else { String::new() };
        format!(
            "[[api]]\nname = \"reset/{algorithm}/{mode}\"\nlimits = [\"{limit}/day{burst}\"]\n\
             algorithm = \"{algorithm}\"\nsharing = \"{mode}\"\n"
        )
    };
    let names = kinds().map(|(algorithm, mode)| format!("reset/{algorithm}/{mode}")).collect();
    (names, kinds().map(api).collect())
}

#[test]
fn a_reset_without_the_store_counts_here_at_once_and_there_when_it_is_back() {
    let server = Redis::single(Options::default());
    let mut proxy = Proxy::to(server.port());
    let (apis, further) = of_every_kind();
    let hosts = hosts(2, &policy(&format!("redis://127.0.0.1:{}", proxy.port()), &further));
    let is_up = |wanted: bool| {
        wait_for("hosts that know", || {
            // Somebody has to ask before a host finds out.
            hosts.iter().for_each(|host| _ = block_on(is_served(host, &Request::new("nobody", &apis[0]))));
            hosts.iter().all(|host| host.store().unwrap().is_up() == wanted).then_some(())
        });
    };
    let limits: Vec<u64> =
        apis.iter().map(|api| served_until_refused(&hosts[0], &Request::new("user", api))).collect();
    proxy.refuse();
    is_up(false);
    for (api, limit) in apis.iter().zip(&limits) {
        let user = Request::new("user", api);
        // What the store has refused a moment ago is forgotten.
        block_on(hosts[0].reset(&user)).unwrap();
        let share = served_until_refused(&hosts[0], &user);
        assert!((1..=limit / 2).contains(&share), "{api}: {share} is the share of one of three hosts");
        block_on(hosts[0].reset(&user)).unwrap();
        assert_eq!(served_until_refused(&hosts[0], &user), share, "{api}: once more, and no lease with it");
        block_on(hosts[0].reset(&user)).unwrap();
    }
    proxy.accept_again();
    is_up(true);
    for (api, limit) in apis.iter().zip(&limits) {
        let user = Request::new("user", api);
        // Nobody asks the host that was told: the store hears of it all the same.
        wait_for("a record that was forgotten", || {
            (answer(&hosts[1], &user, Asking::Peeking).left == *limit).then_some(())
        });
        let all: u64 = [1, 0].iter().map(|host| served_until_refused(&hosts[*host], &user)).sum();
        println!("{api}: {all} of {limit} after three resets");
        assert!(all <= *limit, "{api}: {all}, three resets are one for the store, and give {limit}");
        assert!(all > limit / 2, "{api}: {all} of {limit}");
    }
}

#[test]
fn a_reset_whose_answer_is_lost_forgets_what_was_counted_before_it_and_nothing_else() {
    let server = Redis::single(Options::default());
    let proxy = Proxy::to(server.port());
    let further = "[[api]]\nname = \"few\"\nlimits = [\"6/day\"]\nalgorithm = \"fixed-window\"\n";
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let hosts = hosts_within(Duration::from_millis(500), 1, &policy(&url, further));
    let (ann, zoe) = (Request::new("ann", "few"), Request::new("zoe", "few"));
    let left = |user: &Request<'_>| answer(&hosts[0], user, Asking::Peeking).left;
    let take = |user: Request<'_>| {
        assert!(answer(&hosts[0], &user, Asking::Counted).outcome.is_served(), "{user:?}");
    };
    // The store has the script from then on: what is lost is the answer, not that the script is missing.
    block_on(hosts[0].reset(&ann)).unwrap();
    take(ann.costing(6));
    take(zoe.costing(6));
    proxy.lose_next_reply();
    block_on(hosts[0].reset(&ann)).unwrap();
    wait_for("an answer that is lost", || (proxy.lost_replies() == 1).then_some(()));
    wait_for("a limit that is whole", || (left(&ann) == 6).then_some(()));
    take(ann.costing(4));
    // The store is told again of what it has not confirmed, before it is told of this one.
    block_on(hosts[0].reset(&zoe)).unwrap();
    wait_for("the next reset", || (left(&zoe) == 6).then_some(()));
    assert_eq!(left(&ann), 2, "what was spent after the reset stays spent");
}

#[test]
fn a_reset_that_the_store_has_not_heard_of_is_lost_with_the_host_and_gives_nothing_then() {
    let server = Redis::single(Options::default());
    let mut proxy = Proxy::to(server.port());
    let further = "[[api]]\nname = \"few\"\nlimits = [\"6/day\"]\nalgorithm = \"fixed-window\"\nsharing = \"strict\"\n\
                   [[api]]\nname = \"none\"\nlimits = [\"6/day\"]\nalgorithm = \"fixed-window\"\nwithout_store = \"refuse\"\n";
    let text = policy(&format!("redis://127.0.0.1:{}", proxy.port()), further);
    let (few, none) = (Request::new("user", "few"), Request::new("user", "none"));
    let before = hosts(1, &text);
    assert_eq!([few, none].map(|user| served_until_refused(&before[0], &user)), [6, 6]);
    proxy.refuse();
    wait_for("a host that knows", || {
        block_on(is_served(&before[0], &Request::new("nobody", "few")));
        (!before[0].store().unwrap().is_up()).then_some(())
    });
    block_on(before[0].reset(&few)).unwrap();
    block_on(before[0].reset(&none)).unwrap();
    assert!(
        !block_on(is_served(&before[0], &none)),
        "a reset gives nothing where nothing is given without the store"
    );
    drop(before);
    proxy.accept_again();
    let after = hosts(1, &text);
    assert_eq!([few, none].map(|user| served_until_refused(&after[0], &user)), [0, 0], "ask for it again");
}

/// Resets the keys of as many users as are kept for a store that is away.
fn reset_until_full(host: &DecisionService, api: &str) -> usize {
    block_on(async {
        let mut kept = 0;
        loop {
            match host.reset(&Request::new(&format!("user{kept}"), api)).await {
                Ok(()) => kept += 1,
                Err(NotReset::TooMany) => return kept,
                Err(other) => panic!("{other}"),
            }
        }
    })
}

#[test]
fn resets_that_wait_are_carried_out_after_a_policy_has_taken_their_limit_away_and_all_places_are_free_then() {
    let server = Redis::single(Options::default());
    let mut proxy = Proxy::to(server.port());
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let api = |name: &str| {
        format!(
            "[[api]]\nname = \"{name}\"\nlimits = [\"6/day\"]\nalgorithm = \"fixed-window\"\nsharing = \"strict\"\n"
        )
    };
    let parsed = |text: &str| config::parse(text, "test").unwrap_or_else(|error| panic!("{error}")).policy;
    let (with, without) = (policy(&url, &(api("few") + &api("some"))), policy(&url, &api("some")));
    let host = &hosts(1, &with)[0];
    let know = |wanted: bool| {
        wait_for("a host that knows", || {
            block_on(is_served(host, &Request::new("nobody", "some")));
            (host.store().unwrap().is_up() == wanted).then_some(())
        });
    };
    let (few, some) = (Request::new("user0", "few"), Request::new("zoe", "some"));
    assert_eq!([few, some].map(|user| served_until_refused(host, &user)), [6, 6]);
    proxy.refuse();
    know(false);
    let kept = reset_until_full(host, "few");
    assert_eq!(kept, MOST_KEPT);
    host.follow(&parsed(&without), None);
    let gone = block_on(host.reset(&few));
    assert!(matches!(gone, Err(NotReset::Bad(_))), "its limit is gone: {gone:?}");
    assert_eq!(block_on(host.reset(&some)), Err(NotReset::TooMany), "what was promised is kept");
    proxy.accept_again();
    know(true);
    wait_for("places for further resets", || block_on(host.reset(&some)).ok());
    wait_for("a record that was forgotten", || {
        (answer(host, &some, Asking::Peeking).left == 6).then_some(())
    });
    host.follow(&parsed(&with), None);
    assert_eq!(answer(host, &few, Asking::Peeking).left, 6, "the store has forgotten it");
    assert_eq!(served_until_refused(host, &few), 6, "and gives it once");
    proxy.refuse();
    know(false);
    assert_eq!(reset_until_full(host, "few"), MOST_KEPT, "no place was lost");
}
