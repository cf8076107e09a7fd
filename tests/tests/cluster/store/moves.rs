//! A master that its Sentinels have given up, and that goes on taking writes: the store worker leaves it.

use std::time::Duration;

use ratelimit_tests::{
    redis::{PATIENCE, Sentinels, wait_for},
    running_time::RunningTime,
};
use ratelimit_user::{
    config,
    store::{
        redis::{StoreError, Value},
        worker::{Met, Store},
    },
};

use super::{SOON, block_on, count};

/// One second until it is asked, and what asking and connecting take on a busy machine, in running time.
const SECOND_STORE: Duration = Duration::from_secs(3);

fn store(url: &str) -> Store {
    let text = format!("[source]\nlimits = [\"1/s\"]\n[cluster]\nredis = \"{url}\"\n");
    Store::of(&config::parse(&text, "policy").unwrap().policy, None).unwrap().unwrap()
}

fn at(met: &Met) -> Vec<&str> {
    met.servers.iter().map(|server| server.at.as_str()).collect()
}

/// Waits until servers have been met anew, asking the way that leases do.
async fn met_anew(store: &Store, first: &Met) -> Met {
    let begun = RunningTime::now();
    loop {
        match store.meet().await {
            Ok(met) if met.number != first.number => return met,
            _ => assert!(begun.elapsed() < PATIENCE, "nothing new was met"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The old master would have taken it too, and would have kept it for itself.
fn is_left_and_takes_writes(all: &Sentinels, old: usize) {
    assert_eq!(all.servers[old].info("role"), "master");
    assert_eq!(all.servers[old].ask(&["EXISTS", "a"]), Value::Int(0));
    assert_eq!(all.servers[old].ask(&["SET", "b", "1"]), Value::Okay);
}

#[test]
fn a_master_that_the_sentinels_have_given_up_is_left_although_it_still_answers() {
    let all = Sentinels::new();
    let store = store(&all.url());
    block_on(async {
        let first = store.meet().await.unwrap();
        assert_eq!(at(&first), [all.servers[0].at()]);
        assert_eq!(all.abandon(), 1);
        // A Sentinel that says nothing has no vote, and takes no time.
        all.sentinels[2].pause();
        let begun = RunningTime::now();
        let moved = met_anew(&store, &first).await;
        let took = begun.elapsed();
        println!("left {took:?} after all Sentinels named the new master");
        assert!(took < SECOND_STORE, "{took:?}");
        assert_eq!(at(&moved), [all.servers[1].at()]);
        assert_eq!(store.run(vec![count("a", 1)], SOON).await, [Ok(Value::Int(1))]);
        assert_eq!(all.servers[1].ask(&["HGET", "a", "total"]), Value::BulkString("1".into()));
        is_left_and_takes_writes(&all, 0);
    });
}

#[test]
fn a_master_that_was_given_up_is_no_store_while_the_new_one_cannot_be_reached() {
    let mut all = Sentinels::new();
    let store = store(&all.url());
    block_on(async {
        let first = store.meet().await.unwrap();
        assert_eq!(at(&first), [all.servers[0].at()]);
        let new = all.abandon();
        all.servers[new].kill();
        let begun = RunningTime::now();
        let error = loop {
            match store.meet().await {
                // A machine that stands still lets a deadline of the search pass, which then says nothing of the new master.
                Err(StoreError::TimedOut { .. }) => {}
                Err(error) => break error,
                Ok(_) => {}
            }
            assert!(begun.elapsed() < SECOND_STORE, "the old master is still in use");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(
            matches!(&error, StoreError::Unreachable { at, .. } if *at == all.servers[new].at()),
            "{error}"
        );
        let answers = store.run(vec![count("a", 1)], SOON).await;
        assert!(answers[0].is_err(), "{answers:?}");
        is_left_and_takes_writes(&all, 0);
        wait_for("requests that know that there is no store", || (!store.is_up()).then_some(()));
        // The Sentinels may speak to the old one again, and it is the only one there is.
        all.servers[0].ask(&["ACL", "SETUSER", "default", "+@all"]);
        let again = met_anew(&store, &first).await;
        assert_eq!(at(&again), [all.servers[0].at()]);
    });
}
