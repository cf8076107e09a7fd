//! What a server answers instead of running a call, each for real.

use std::{fs, thread};

use ratelimit_tests::redis::{Options, Redis, free_port, wait_for};
use ratelimit_user::store::redis::{Call, Script, StoreError};

use super::{SOON, block_on, count, counted, open};

/// The error that a call gets.
fn refusal(server: &Redis) -> StoreError {
    block_on(async {
        let mut link = open(&server.url()).await.unwrap();
        counted(&mut link, "a", 1).await.unwrap_err()
    })
}

#[test]
fn a_script_that_the_server_has_forgotten_is_given_to_it_again() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await.unwrap();
        assert_eq!(counted(&mut link, "a", 1).await, Ok(1));
        server.ask(&["SCRIPT", "FLUSH"]);
        let calls = [count("a", 2), count("b", 1), count("c", 1)];
        let answers = link.run(&calls, SOON).await;
        let totals: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(totals, [2.into(), 1.into(), 1.into()].map(ratelimit_user::store::redis::Value::Int));
    });
    // Three refusals by hash, one text, two by hash again; and the first call of all by hash and by text.
    assert!(server.info("cmdstat_eval").starts_with("calls=2,"), "{}", server.info("cmdstat_eval"));
}

#[test]
fn a_call_that_fails_does_not_hide_the_others() {
    let server = Redis::single(Options::default());
    server.ask(&["SET", "text", "x"]);
    let broken = Script::new("broken", "return this is not Lua");
    block_on(async {
        let link = open(&server.url()).await.unwrap();
        let bad = Call { script: &broken, keys: vec![b"a".to_vec()], args: vec![] };
        let answers = link.run(&[count("a", 1), count("text", 1), bad, count("b", 1)], SOON).await;
        assert!(answers[0].is_ok() && answers[3].is_ok(), "{answers:?}");
        let said: Vec<_> =
            answers[1..3].iter().map(|answer| answer.as_ref().unwrap_err().to_string()).collect();
        let at = server.at();
        assert!(
            said[0].starts_with(&format!(
                "the script count failed in Redis at {at}: WRONGTYPE Operation against"
            )),
            "{said:?}"
        );
        assert!(
            said[1]
                .starts_with(&format!("the script broken failed in Redis at {at}: Error compiling script")),
            "{said:?}"
        );
        assert!(link.run(&[], SOON).await.is_empty());
    });
}

#[test]
fn a_replica_takes_no_writes() {
    let server = Redis::single(Options::default());
    server.ask(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    let error = refusal(&server);
    assert_eq!(
        error.to_string(),
        format!("Redis at {} is a replica and takes no writes; the master must be found again", server.at())
    );
    assert!(error.is_transient() && error.needs_reconnect());
    server.ask(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    let error = refusal(&server);
    assert_eq!(
        error.to_string(),
        format!("Redis at {} is a replica that has lost its master (MASTERDOWN)", server.at())
    );
}

#[test]
fn a_full_server_without_eviction_says_so() {
    let server = Redis::single(Options::with(["maxmemory 100kb", "maxmemory-policy noeviction"]));
    let error = refusal(&server);
    assert_eq!(
        error.to_string(),
        format!(
            "Redis at {} has no memory left (maxmemory is reached); give it more, or fewer keys",
            server.at()
        )
    );
    assert!(error.is_transient() && !error.needs_reconnect());
}

#[test]
fn a_server_that_cannot_save_or_has_too_few_replicas_says_so() {
    let server = Redis::single(Options::with(["save 3600 1000"]));
    server.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let at = server.at();
    assert_eq!(
        refusal(&server).to_string(),
        format!("Redis at {at} takes no writes because too few replicas follow it (min-replicas-to-write)")
    );
    server.ask(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let gone = server.dir().join("gone");
    fs::create_dir(&gone).unwrap();
    server.ask(&["CONFIG", "SET", "dir", &gone.display().to_string()]);
    fs::remove_dir(&gone).unwrap();
    let _fails_now_or_later = server.try_ask(&["BGSAVE"]);
    wait_for("a save that fails", || (server.info("rdb_last_bgsave_status") == "err").then_some(()));
    assert_eq!(
        refusal(&server).to_string(),
        format!("Redis at {at} takes no writes because it cannot save its data (MISCONF); its log says why")
    );
}

#[test]
fn a_server_that_loads_says_so_and_works_when_it_is_done() {
    let mut server =
        Redis::single(Options::with(["key-load-delay 1000", "loading-process-events-interval-bytes 1024"]));
    server.ask(&["DEBUG", "POPULATE", "1500", "key", "100"]);
    server.ask(&["SAVE"]);
    server.kill();
    server.start_loading();
    let error = refusal(&server);
    assert_eq!(error.to_string(), format!("Redis at {} is still loading its data", server.at()));
    assert!(error.is_transient() && !error.needs_reconnect());
    block_on(async {
        let mut link = open(&server.url()).await.unwrap();
        super::counted_at_last(&mut link, "a", 1, 1).await;
    });
}

#[test]
fn a_server_that_is_busy_with_a_script_says_so() {
    let server = Redis::single(Options::with(["busy-reply-threshold 20"]));
    thread::scope(|scope| {
        let endless = scope.spawn(|| server.try_ask(&["EVAL", "while true do end", "0"]));
        wait_for("a busy server", || {
            server.try_ask(&["PING"]).is_err_and(|error| error.code() == Some("BUSY")).then_some(())
        });
        let said = block_on(async {
            let mut link = open(&server.url()).await.unwrap();
            counted(&mut link, "a", 1).await.unwrap_err().to_string()
        });
        assert_eq!(said, format!("Redis at {} is busy with a script that does not end", server.at()));
        server.ask(&["SCRIPT", "KILL"]);
        assert!(endless.join().unwrap().is_err());
    });
}

#[test]
fn a_server_with_too_many_clients_says_so() {
    let server = Redis::single(Options::with(["maxclients 1"]));
    block_on(async {
        let _first = open(&server.url()).await.unwrap();
        let error = open(&server.url()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("Redis at {} takes no more clients (maxclients)", server.at()));
    });
}
