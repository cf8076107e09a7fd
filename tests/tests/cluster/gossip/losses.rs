//! Lost replies, late calls, and stores that forget.

use ratelimit_tests::redis::{Options, Proxy, Redis};
use ratelimit_user::{cluster::gossip::Saved, store::redis::Value};

use super::{Host, SOON, block_on, key, open};

const NET: &str = "203.0.113.0/24";

fn version(server: &Redis) -> String {
    match server.ask(&["HGET", &key("state"), "version"]) {
        Value::BulkString(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_edit_whose_reply_was_lost_counts_once() {
    let server = Redis::single(Options::default());
    let proxy = Proxy::to(server.port());
    block_on(async {
        let mut link = open(&format!("redis://127.0.0.1:{}", proxy.port())).await;
        let mut a = Host::new("a");
        // The script is there: one reply for the call.
        a.talk(&mut link).await;
        a.add(NET, Some(600), "flood");
        proxy.lose_next_reply();
        let error = a.tick(&mut link).await.unwrap_err();
        assert!(error.needs_reconnect(), "{error}");
        assert_eq!((proxy.lost_replies(), version(&server).as_str()), (1, "1"), "it ran");
        assert_eq!(a.gossip.waiting(), 1, "nobody knows");
        link.mend(SOON).await.unwrap();
        assert_eq!(a.talk(&mut link).await, 1);
        assert_eq!((a.gossip.waiting(), version(&server).as_str()), (0, "1"));
        assert_eq!(a.prefixes(), [NET]);
    });
}

#[test]
fn an_edit_that_a_daemon_left_behind_is_told_by_the_next_one_and_counts_once() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b] = ["a", "b"].map(Host::new);
        a.add(NET, None, "told, not answered");
        let call = a.call();
        link.run(&[call], SOON).await.remove(0).unwrap();
        a.add("10.1.0.0/16", None, "not told");
        let left = |host: &Host| (host.gossip.saved(), host.local.list.clone());
        let (saved, list) = left(&a);
        // The other one takes it back, and that is the last word.
        b.talk(&mut link).await;
        b.remove(NET).unwrap();
        b.talk(&mut link).await;
        let mut next = Host::after("a", 2, &saved, list);
        assert_eq!(next.gossip.waiting(), 2);
        // The host dies before it has said anything, too.
        let (saved, list) = left(&next);
        next = Host::after("a", 3, &saved, list);
        next.talk(&mut link).await;
        b.talk(&mut link).await;
        for host in [&next, &b] {
            assert_eq!(host.prefixes(), ["10.1.0.0/16"]);
        }
        assert_eq!((next.gossip.waiting(), version(&server).as_str()), (0, "3"));
    });
}

#[test]
fn a_daemon_that_has_lost_what_it_knew_tells_the_store_what_its_list_has() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b] = ["a", "b"].map(Host::new);
        a.add(NET, None, "of a");
        a.add("10.2.0.0/16", None, "of a");
        a.talk(&mut link).await;
        a.add("10.1.0.0/16", None, "not told");
        b.talk(&mut link).await;
        b.remove("10.2.0.0/16").unwrap();
        b.talk(&mut link).await;
        let mut next = Host::after("a", 2, &Saved::default(), a.local.list.clone());
        next.talk(&mut link).await;
        b.talk(&mut link).await;
        for host in [&next, &b] {
            assert_eq!(host.prefixes(), ["10.1.0.0/16", NET], "what was removed since stays so");
        }
    });
}

#[test]
fn a_call_that_runs_after_newer_ones_changes_nothing() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b] = ["a", "b"].map(Host::new);
        a.add(NET, None, "flood");
        let late = a.call();
        a.talk(&mut link).await;
        a.remove(NET).unwrap();
        a.talk(&mut link).await;
        let told = server.ask(&["HGET", &key("hosts"), "a"]);
        link.run(&[late], SOON).await.remove(0).unwrap();
        assert_eq!(version(&server), "2");
        assert_eq!(server.ask(&["HGET", &key("hosts"), "a"]), told, "what it says of itself is older too");
        b.talk(&mut link).await;
        assert_eq!(b.prefixes(), [""; 0]);
    });
}

#[test]
fn an_emptied_store_gets_everything_back_and_removals_stay_removals() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b, mut c] = ["a", "b", "c"].map(Host::new);
        a.add("10.1.0.0/16", None, "of a");
        b.add("10.2.0.0/16", Some(600), "of b");
        a.add("10.3.0.0/16", None, "removed");
        for host in [&mut a, &mut b, &mut c] {
            host.talk(&mut link).await;
        }
        a.talk(&mut link).await;
        // Host c does not hear of the removal.
        b.talk(&mut link).await;
        b.remove("10.3.0.0/16").unwrap();
        b.talk(&mut link).await;
        a.talk(&mut link).await;
        server.ask(&["FLUSHALL"]);
        // a has to hear that it is another store before it can give anything back.
        assert_eq!(c.talk(&mut link).await, 1);
        assert_eq!(c.prefixes(), ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"], "kept");
        a.add("10.1.0.0/16", None, "newer");
        for host in [&mut b, &mut a, &mut c] {
            host.talk(&mut link).await;
        }
        b.talk(&mut link).await;
        for host in [&a, &b, &c] {
            assert_eq!(host.prefixes(), ["10.1.0.0/16", "10.2.0.0/16"]);
            assert_eq!(host.list()[0].1, "newer");
            assert_eq!(host.seconds_left("10.2.0.0/16"), Some(600));
        }
        assert!(c.log[0].starts_with("the store is another one, or has been emptied"), "{:?}", c.log);
    });
}

#[test]
fn what_is_given_back_does_not_take_the_place_of_what_was_said_since() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b] = ["a", "b"].map(Host::new);
        a.add(NET, None, "of a");
        a.talk(&mut link).await;
        server.ask(&["FLUSHALL"]);
        // The host hears of the loss, and has not given anything back yet.
        assert!(a.tick(&mut link).await.unwrap().again);
        b.add(NET, None, "of b");
        b.talk(&mut link).await;
        a.talk(&mut link).await;
        b.talk(&mut link).await;
        assert_eq!([a.list()[0].1, b.list()[0].1], ["of b"; 2]);
        assert_eq!(version(&server), "1");
    });
}

#[test]
fn what_the_host_it_was_made_on_does_not_give_back_is_given_back_by_others() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b, mut c] = ["a", "b", "c"].map(Host::new);
        a.add(NET, None, "of a");
        for host in [&mut a, &mut b] {
            host.talk(&mut link).await;
        }
        drop(a);
        server.ask(&["FLUSHALL"]);
        b.talk(&mut link).await;
        c.talk(&mut link).await;
        assert_eq!((b.prefixes(), c.prefixes()), (vec![NET.to_owned()], vec![]));
        b.offset_ns += 31 * super::SECOND;
        b.talk(&mut link).await;
        c.talk(&mut link).await;
        assert_eq!(c.prefixes(), [NET]);
        let now_ns = c.now_ns();
        assert_eq!(c.gossip.block(&super::p(NET), now_ns).unwrap().origin, "a");
    });
}

#[test]
fn a_replica_that_took_over_without_the_last_writes_hears_of_them_again() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b] = ["a", "b"].map(Host::new);
        a.add("10.1.0.0/16", None, "old");
        a.add("10.2.0.0/16", None, "old");
        a.talk(&mut link).await;
        b.talk(&mut link).await;
        let parts = ["state", "blocks", "changes", "hosts", "seen"];
        let before = parts.map(|part| match server.ask(&["DUMP", &key(part)]) {
            Value::BulkString(dump) => dump,
            other => panic!("{other:?}"),
        });
        a.remove("10.1.0.0/16").unwrap();
        a.add("10.3.0.0/16", None, "new");
        a.talk(&mut link).await;
        b.talk(&mut link).await;
        assert_eq!(b.prefixes(), ["10.2.0.0/16", "10.3.0.0/16"]);
        // Another process has what there was before.
        server.ask(&["FLUSHALL"]);
        let mut client = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        for (part, dump) in parts.iter().zip(before) {
            redis::cmd("RESTORE").arg(key(part)).arg(0).arg(dump).exec(&mut client).unwrap();
        }
        server.ask(&["HSET", &key("state"), "run", "0123abcd"]);
        // Others have gone on meanwhile, further than what was lost.
        let mut c = Host::new("c");
        for net in ["10.7.0.0/16", "10.8.0.0/16", "10.9.0.0/16"] {
            c.add(net, None, "c's");
        }
        c.talk(&mut link).await;
        for host in [&mut b, &mut a, &mut c] {
            host.talk(&mut link).await;
        }
        b.talk(&mut link).await;
        let all = ["10.2.0.0/16", "10.3.0.0/16", "10.7.0.0/16", "10.8.0.0/16", "10.9.0.0/16"];
        for host in [&a, &b, &c] {
            assert_eq!(host.prefixes(), all);
        }
    });
}

#[test]
fn a_store_that_lost_only_a_part_of_it_begins_again() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b] = ["a", "b"].map(Host::new);
        for lost in ["blocks", "changes", "state"] {
            a.add(NET, None, lost);
            a.talk(&mut link).await;
            server.ask(&["DEL", &key(lost)]);
            a.talk(&mut link).await;
            b.talk(&mut link).await;
            assert_eq!(b.list()[0].1, lost);
        }
    });
}
