//! A Redis Cluster: calls go where their keys are, also while those move and when masters die.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use ratelimit_tests::redis::{Options, Redis, RedisCluster};
use ratelimit_user::store::redis::{Call, StoreError, Value, slot};

use super::{COUNT, SOON, block_on, count, counted, counted_at_last, open, refusal_to_open};

/// Keys in slots of all masters.
fn keys() -> Vec<String> {
    (0..60).map(|user| format!("{{user{user}}}:leases")).collect()
}

#[test]
fn calls_go_to_the_masters_of_their_keys_while_a_slot_moves_and_when_a_master_dies() {
    let mut cluster = RedisCluster::new();
    let keys = keys();
    let moving = slot(b"user0");
    block_on(async {
        let mut link = open(&cluster.url()).await.unwrap();
        assert!(link.is_cluster());
        assert_eq!(link.facts(SOON).await.unwrap().len(), 3);
        let all_count = async |link: &mut _, sequence: u64| {
            let calls: Vec<_> = keys.iter().map(|key| count(key, sequence)).collect();
            let answers = ratelimit_user::store::redis::RedisLink::run(link, &calls, SOON).await;
            let expected = Ok(Value::Int(i64::try_from(sequence).unwrap()));
            let wrong: Vec<_> = keys.iter().zip(answers).filter(|(_, answer)| *answer != expected).collect();
            assert!(wrong.is_empty(), "{sequence}: {wrong:?}");
        };
        all_count(&mut link, 1).await;
        let served = |node: usize| cluster.nodes[node].info("cmdstat_evalsha").starts_with("calls=");
        assert!((0..3).all(served) && !(3..6).any(served), "all masters and no replica were asked");

        // ASK: a key that is still at the old place is served there, one that is not at the new one.
        let from = cluster.master_of(moving).unwrap();
        let to = (from + 1) % 3;
        cluster.begin_migration(moving, to);
        all_count(&mut link, 2).await;
        assert_eq!(counted(&mut link, "{user0}:new", 1).await, Ok(1));
        assert_eq!(
            cluster.nodes[to].info("cmdstat_asking").split(',').next(),
            Some("calls=1"),
            "one key, and that node has the script"
        );
        // TRYAGAIN: one key here and one there; until the deadline, or until the keys are together.
        let both = Call {
            script: &COUNT,
            keys: vec![b"{user0}:leases".to_vec(), b"{user0}:new".to_vec()],
            args: vec![b"9".to_vec()],
        };
        let apart = link.run(std::slice::from_ref(&both), Duration::from_millis(100)).await.remove(0);
        assert!(apart.is_err(), "{apart:?}");
        // MOVED: the slot has a new owner, which the link finds out by the first call.
        cluster.finish_migration(moving, to);
        all_count(&mut link, 3).await;
        assert_eq!(link.run(&[both], SOON).await.remove(0), Ok(Value::Int(4)));
    });
    a_master_dies(&mut cluster, &keys[1]);
}

fn a_master_dies(cluster: &mut RedisCluster, key: &str) {
    let lost = slot(key.as_bytes());
    block_on(async {
        let mut link = open(&cluster.url()).await.unwrap();
        let old = cluster.master_of(lost).unwrap();
        let elsewhere =
            keys().into_iter().find(|key| cluster.master_of(slot(key.as_bytes())) != Some(old)).unwrap();
        assert_eq!(cluster.kill_master_of(lost), old);
        // The others go on as long as the cluster has not noticed, and their answers are not hidden.
        let answers = link.run(&[count(key, 4), count(&elsewhere, 4)], SOON).await;
        assert!(
            matches!(&answers[0], Err(StoreError::Lost { at, .. }) if *at == cluster.nodes[old].at()),
            "{answers:?}"
        );
        assert_eq!(answers[1], Ok(Value::Int(4)), "{answers:?}");
        let new = cluster.wait_for_new_master(lost, old);
        counted_at_last(&mut link, key, 4, 4).await;
        // With the replica dead as well nobody serves the slot.
        cluster.kill(new);
        let down = loop {
            match counted(&mut link, &elsewhere, 5).await {
                Err(StoreError::ClusterDown { at, why }) => break StoreError::ClusterDown { at, why },
                _ => link.mend(SOON).await.unwrap(),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert!(
            down.to_string().starts_with("the Redis Cluster does not serve this key, says 127.0.0.1:"),
            "{down}"
        );
        assert!(down.to_string().ends_with(": The cluster is down"), "{down}");
        assert!(down.is_transient() && down.needs_reconnect());
    });
}

#[test]
#[ignore = "long"]
fn slots_that_move_back_and_forth_under_load_lose_and_repeat_nothing() {
    let cluster = RedisCluster::new();
    let keys: Vec<String> = (0..8).map(|number| format!("{{user0}}:{number}")).collect();
    let moving = slot(b"user0");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=600 {
                cluster.migrate_slot(moving, (cluster.master_of(moving).unwrap() + round % 2 + 1) % 3);
            }
            done.store(true, Ordering::SeqCst);
        });
        block_on(async {
            let link = open(&cluster.url()).await.unwrap();
            let mut sequence = 0;
            while !done.load(Ordering::SeqCst) {
                sequence += 1;
                let calls: Vec<_> = keys.iter().map(|key| count(key, sequence)).collect();
                let expected = Ok(Value::Int(i64::try_from(sequence).unwrap()));
                let answers = link.run(&calls, SOON).await;
                assert!(answers.iter().all(|answer| *answer == expected), "{sequence}: {answers:?}");
            }
            assert!(sequence > 600, "{sequence} batches while slots moved");
        });
    });
}

#[test]
fn a_cluster_and_a_single_server_are_not_taken_for_each_other() {
    let single = Redis::single(Options::default());
    assert_eq!(
        refusal_to_open(&format!("redis+cluster://{}", single.at())),
        format!(
            "Redis at {} is not part of a Redis Cluster; write redis instead of redis+cluster in the address",
            single.at()
        )
    );
    let node = Redis::single(Options::with(["cluster-enabled yes"]));
    let said = refusal_to_open(&format!("redis+cluster://{}", node.at()));
    assert_eq!(
        said,
        format!(
            "the Redis Cluster does not serve this key, says {}: no slot is served by any node",
            node.at()
        )
    );
    node.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    block_on(async {
        let mut link = open(&format!("redis+cluster://{}", node.at())).await.unwrap();
        counted_at_last(&mut link, "a", 1, 1).await;
        let apart =
            Call { script: &COUNT, keys: vec![b"a".to_vec(), b"b".to_vec()], args: vec![b"1".to_vec()] };
        let error = link.run(&[apart], SOON).await.remove(0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the keys of one call of count are in different slots of the Redis Cluster; their hash tags must be the same"
        );
    });
}

#[test]
fn slots_are_computed_as_the_server_does() {
    let node = Redis::single(Options::with(["cluster-enabled yes"]));
    for key in ["", "a", "{user1000}.following", "foo{}{bar}", "foo{{bar}}zap", "a}b{c}", "{}", "ü{ä}"] {
        assert_eq!(node.ask(&["CLUSTER", "KEYSLOT", key]), Value::Int(slot(key.as_bytes()).into()), "{key}");
    }
}
