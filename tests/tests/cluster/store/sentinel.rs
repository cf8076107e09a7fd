//! A master that Sentinels name, through failovers.

use ratelimit_tests::redis::{MASTER_NAME, Options, Redis, Sentinels, mistaken, wait_for};
use ratelimit_user::store::{
    backend::Backend as _,
    deadline::Deadline,
    redis::{StoreError, Value},
};

use super::{SOON, block_on, counted, counted_at_last, open, refusal_to_open};

#[test]
fn the_new_master_is_found_after_a_handover_and_after_a_crash() {
    let mut all = Sentinels::new();
    assert_eq!(all.master(), 0);
    block_on(async {
        let mut link = open(&all.url()).await.unwrap();
        assert_eq!(counted(&mut link, "a", 1).await, Ok(1));
        until_both_have(&all, "1");
        assert_eq!(all.hand_over(), 1);
        // The old master closes its clients' connections or says that it is a replica; either leads to the new one.
        let attempts = counted_at_last(&mut link, "a", 2, 2).await;
        assert!(attempts > 1, "the old master took a write");
        assert_eq!(all.servers[1].ask(&["HGET", "a", "total"]), redis_text("2"));
        until_both_have(&all, "2");
        assert_eq!(all.fail_over(), 0);
        counted_at_last(&mut link, "a", 3, 3).await;
        // Two Sentinels of three are enough to find it.
        all.sentinels[0].kill();
        let mut another = open(&all.url()).await.unwrap();
        assert_eq!(counted(&mut another, "a", 4).await, Ok(4));
    });
}

/// Writes that the replica does not have yet are lost with the master: Redis answers before it replicates.
fn until_both_have(all: &Sentinels, total: &str) {
    // A server that has just changed its role hangs up on its clients.
    let has = |server: &Redis| server.try_ask(&["HGET", "a", "total"]) == Ok(redis_text(total));
    wait_for("a replica that has it", || all.servers.iter().all(has).then_some(()));
}

fn redis_text(text: &str) -> Value {
    Value::BulkString(text.into())
}

#[test]
fn a_sentinel_that_names_a_server_of_its_own_leads_nobody_there() {
    let mut all = Sentinels::new();
    let other = Redis::single(Options::default());
    let liar = mistaken(other.port());
    // Two that agree, and the one that is asked first.
    let url = format!(
        "redis+sentinel://{},{},{}/{MASTER_NAME}",
        liar.at(),
        all.sentinels[0].at(),
        all.sentinels[1].at()
    );
    block_on(async {
        for nth in 1..=20 {
            let mut link = open(&url).await.unwrap();
            assert_eq!(counted(&mut link, "a", nth).await, Ok(nth as i64));
            assert!(!link.has_moved(Deadline::after(SOON)).await, "{nth}");
        }
        // The master of the majority is dead and the next one is not yet named: that of the minority is not the store for all that.
        let mut link = open(&url).await.unwrap();
        until_both_have(&all, "20");
        all.servers[0].kill();
        for _ in 0..5 {
            let error = counted(&mut link, "a", 21).await.unwrap_err();
            assert!(error.is_transient(), "{error}");
            let error = link.mend(SOON).await.unwrap_err();
            assert!(
                matches!(&error, StoreError::Unreachable { at, .. } if *at == all.servers[0].at()),
                "{error}"
            );
        }
        // Nor is it while one Sentinel after the other names the next one.
        all.watch();
        counted_at_last(&mut link, "a", 21, 21).await;
    });
    assert_eq!(all.servers[1].ask(&["HGET", "a", "total"]), redis_text("21"));
    assert_eq!(other.ask(&["EXISTS", "a"]), Value::Int(0));
    // Where no two agree, any that answers is better than no store.
    all.sentinels[0].kill();
    all.sentinels[1].kill();
    block_on(async { assert_eq!(counted(&mut open(&url).await.unwrap(), "a", 1).await, Ok(1)) });
    assert_eq!(other.ask(&["EXISTS", "a"]), Value::Int(1));
}

#[test]
fn a_name_that_no_sentinel_knows_and_sentinels_that_are_not_there_are_told_apart() {
    let master = Redis::single(Options::default());
    let sentinel = Redis::single(Options {
        settings: vec![format!("sentinel monitor {MASTER_NAME} 127.0.0.1 {} 1", master.port())],
        is_sentinel: true,
        ..Options::default()
    });
    let at = sentinel.at();
    let said = refusal_to_open(&format!("redis+sentinel://{at}/nobody"));
    assert_eq!(
        said,
        format!(
            "the Sentinel at {at} knows no master \"nobody\"; the name is what follows `sentinel monitor` in its configuration"
        )
    );
    // A password is for the master; a Sentinel that wants none is not bothered with it.
    master.ask(&["CONFIG", "SET", "requirepass", "s3cret"]);
    block_on(async {
        let mut link = open(&format!("redis+sentinel://:s3cret@{at}/{MASTER_NAME}/2")).await.unwrap();
        assert_eq!(counted(&mut link, "a", 1).await, Ok(1));
        let error = open(&format!("redis+sentinel://{at}/{MASTER_NAME}")).await.unwrap_err();
        assert_eq!(error, StoreError::NoPassword { at: master.at() });
        // The Sentinel still names this server, which is no longer a master.
        master.ask(&["CONFIG", "SET", "requirepass", ""]);
        master.ask(&["REPLICAOF", "127.0.0.1", "1"]);
        let error = open(&format!("redis+sentinel://{at}/{MASTER_NAME}")).await.unwrap_err();
        assert_eq!(error, StoreError::ReadOnly { at: master.at() });
    });
    drop(sentinel);
    let said = refusal_to_open(&format!("redis+sentinel://{at}/{MASTER_NAME}"));
    assert_eq!(said, format!("Redis at {at} cannot be reached: Connection refused (os error 111)"));
}
