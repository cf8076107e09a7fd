//! Slow servers, dead servers and lost replies.

use std::time::Duration;

use ratelimit_tests::{
    redis::{Options, Proxy, Redis},
    running_time::RunningTime,
};
use ratelimit_user::store::redis::{RedisLink, StoreError};

use super::{SOON, address, block_on, count, counted, open};

/// What a deadline may be missed by on a busy machine, in running time.
const SLACK: Duration = Duration::from_millis(400);

#[test]
fn a_server_that_stands_still_costs_the_deadline_and_no_more() {
    let server = Redis::single(Options::default());
    let deadline = Duration::from_millis(50);
    block_on(async {
        let mut link = open(&server.url()).await.unwrap();
        assert_eq!(counted(&mut link, "a", 1).await, Ok(1));
        server.pause();
        for _ in 0..3 {
            let begun = RunningTime::now();
            let answers = link.run(&[count("a", 2), count("b", 1)], deadline).await;
            assert!(begun.elapsed() < deadline + SLACK, "{:?}", begun.elapsed());
            let said = format!("Redis at {} did not answer within 50 ms", server.at());
            for answer in answers {
                let error = answer.unwrap_err();
                assert_eq!(error.to_string(), said);
                assert!(error.is_transient() && error.needs_reconnect());
            }
        }
        let begun = RunningTime::now();
        let error = RedisLink::open(&address(&server.url()), deadline).await.unwrap_err();
        assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
        let error = link.mend(deadline).await.unwrap_err();
        assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
        let error = link.facts(deadline).await.unwrap_err();
        assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
        assert!(begun.elapsed() < 3 * deadline + SLACK, "{:?}", begun.elapsed());
        server.resume();
        // It works off what has piled up: the same number again, so it counts once, and the answers that came late belong to nobody.
        assert_eq!(counted(&mut link, "a", 2).await, Ok(2));
        assert_eq!(counted(&mut link, "a", 3).await, Ok(3));
    });
}

#[test]
fn a_server_that_dies_and_comes_back_needs_mending() {
    let mut server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await.unwrap();
        assert_eq!(counted(&mut link, "a", 1).await, Ok(1));
        server.kill();
        let error = counted(&mut link, "a", 2).await.unwrap_err();
        assert!(matches!(&error, StoreError::Lost { at, .. } if *at == server.at()), "{error}");
        assert!(error.is_transient() && error.needs_reconnect());
        let error = link.mend(SOON).await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        server.start();
        // The link does not connect again by itself: whoever uses it decides when.
        assert!(counted(&mut link, "a", 2).await.is_err());
        link.mend(SOON).await.unwrap();
        // The server has saved nothing, so its count begins anew.
        assert_eq!(counted(&mut link, "a", 2).await, Ok(1));
    });
}

#[test]
fn a_reply_that_is_lost_is_not_asked_for_again_by_itself_and_the_same_number_counts_once() {
    let server = Redis::single(Options::default());
    let proxy = Proxy::to(server.port());
    block_on(async {
        let mut link = open(&format!("redis://127.0.0.1:{}", proxy.port())).await.unwrap();
        assert_eq!(counted(&mut link, "a", 1).await, Ok(1));
        proxy.lose_next_reply();
        let error = counted(&mut link, "a", 2).await.unwrap_err();
        assert!(matches!(error, StoreError::Lost { .. }), "{error}");
        assert_eq!(proxy.lost_replies(), 1);
        // The script has run once more and not twice: nothing repeats it behind our back.
        assert!(server.info("cmdstat_evalsha").starts_with("calls=2,"), "{}", server.info("cmdstat_evalsha"));
        link.mend(SOON).await.unwrap();
        assert_eq!(counted(&mut link, "a", 2).await, Ok(2));
        assert_eq!(counted(&mut link, "a", 3).await, Ok(3));
    });
}

#[test]
fn a_slow_reply_is_late_and_a_refusing_proxy_unreachable() {
    let server = Redis::single(Options::default());
    let mut proxy = Proxy::to(server.port());
    let at = format!("127.0.0.1:{}", proxy.port());
    block_on(async {
        let mut link = open(&format!("redis://{at}")).await.unwrap();
        assert_eq!(counted(&mut link, "a", 1).await, Ok(1));
        proxy.delay(Duration::from_millis(200));
        let error = link.run(&[count("a", 2)], Duration::from_millis(20)).await.remove(0).unwrap_err();
        assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
        assert_eq!(counted(&mut link, "a", 2).await, Ok(2));
        proxy.refuse();
        assert!(matches!(counted(&mut link, "a", 3).await, Err(StoreError::Lost { .. })));
        let error = link.mend(SOON).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("Redis at {at} cannot be reached: Connection refused (os error 111)")
        );
        proxy.accept_again();
        proxy.delay(Duration::ZERO);
        link.mend(SOON).await.unwrap();
        assert_eq!(counted(&mut link, "a", 3).await, Ok(3));
    });
}
