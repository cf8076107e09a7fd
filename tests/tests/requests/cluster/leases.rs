//! What hosts hold beforehand: it saves questions to the store, nobody waits for its renewal, and what must not be held is not.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use ratelimit_tests::redis::{Options, Redis, wait_for};
use ratelimit_user::requests::{Request, asking::Asking};

use super::{ask_all, block_on, hosts, is_served, policy};

/// An API of which a host holds 1000 after the first question.
const BUSY: &str = "[[api]]\nname = \"busy\"\nlimits = [\"64000/hour\"]\nalgorithm = \"fixed-window\"\n";

#[test]
fn leases_save_most_questions_to_the_store_and_keep_the_bound() {
    let server = Redis::single(Options::default());
    let further = "[[api]]\nname = \"busy\"\nlimits = [\"1000/s\"]\nsharing = \"lease\"\n";
    let hosts = hosts(3, &policy(&server.url(), further));
    let lasting = Duration::from_secs(4);
    // A third of what each could have: leases last, and near the limit nobody is.
    let (all, offered) = ask_all(&hosts, &["busy".to_owned()], 100, lasting);
    let (asked, failed): (u64, u64) = hosts
        .iter()
        .map(|host| host.store().unwrap().counts())
        .fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
    println!("{} served, the store was asked {asked} times", all[0].len());
    assert_eq!(failed, 0);
    assert!(asked * 5 < all[0].len() as u64, "{asked} questions for {}", all[0].len());
    assert!(all[0].len() as u64 * 6 >= offered * 5, "{} of {offered}", all[0].len());
}

#[test]
fn a_lease_that_is_nearly_spent_is_renewed_and_nobody_waits_for_it() {
    let server = Redis::single(Options::default());
    let hosts = hosts(1, &policy(&server.url(), BUSY));
    let (decisions, store) = (&hosts[0], hosts[0].store().unwrap());
    let question = Request::new("user", "busy");
    let served = || decisions.check(&question, Asking::Counted, |decision| decision.outcome.is_served());
    let at_once = || {
        let polled = pin!(served()).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Ok(true)), "a decision that waits for the store");
    };
    assert_eq!(block_on(served()), Ok(true), "the store was asked");
    assert_eq!(store.counts(), (1, 0));
    // A 64th is held from then on, and three quarters of that are too little to have left.
    (0..800).for_each(|_| at_once());
    wait_for("a lease that is renewed", || (store.counts().0 > 1).then_some(()));
    // The host had 200 left of its first lease.
    block_on(async {
        let mut pace = tokio::time::interval(Duration::from_millis(2));
        for _ in 0..300 {
            pace.tick().await;
            at_once();
        }
    });
}

#[test]
fn who_hangs_up_while_the_store_is_asked_does_not_keep_a_lease_from_others() {
    let server = Redis::single(Options::default());
    let hosts = hosts(1, &policy(&server.url(), BUSY));
    let question = Request::new("user", "busy");
    let served = || hosts[0].check(&question, Asking::Counted, |decision| decision.outcome.is_served());
    block_on(async {
        // However late this thread is, there is no answer before it has looked.
        server.pause();
        assert_eq!(pin!(served()).poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
        server.resume();
        for _ in 0..100 {
            assert_eq!(served().await, Ok(true));
        }
    });
    let (asked, failed) = hosts[0].store().unwrap().counts();
    assert!(asked < 10 && failed == 0, "{asked} questions, {failed} without an answer");
}

#[test]
fn what_elastic_limits_hold_back_is_not_leased() {
    let server = Redis::single(Options::default());
    let further =
        "[[api]]\nname = \"busy\"\nlimits = [\"1000/hour elastic 100%\"]\nalgorithm = \"fixed-window\"\n";
    let hosts = hosts(2, &policy(&server.url(), further));
    hosts.iter().for_each(|host| host.engine().set_headroom(false));
    let question = Request::new("user", "busy");
    let served = block_on(async {
        let mut served = 0;
        for n in 0..1_600 {
            served += u64::from(is_served(&hosts[n % 2], &question).await);
        }
        served
    });
    assert!((900..=1_000).contains(&served), "{served}");
}
