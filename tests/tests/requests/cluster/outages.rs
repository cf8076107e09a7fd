//! Stores, connections and parts of a Redis Cluster that are late, hang or are gone.

use std::time::{Duration, Instant};

use ratelimit_tests::redis::{Options, Proxy, Redis, RedisCluster, Sentinels, wait_for};
use ratelimit_user::{
    requests::{Request, asking::Asking, decision_service::DecisionService},
    store::{
        redis::{StoreError, slot},
        worker,
    },
};

use super::{LIMIT, ask_all, block_on, hosts, hosts_within, is_served, most, policy};

/// An answer that took longer has waited for something, and was not only held up by another load; or it was, which does not happen to many.
const SLOW: Duration = Duration::from_millis(40);

#[test]
fn without_the_store_every_host_gives_its_share_at_once_and_with_it_again_all_count_together() {
    let mut server = Redis::single(Options::default());
    let hosts = hosts_within(worker::DEADLINE, 3, &policy(&server.url(), ""));
    let apis = ["fixed-window/strict".to_owned(), "sliding-log/lease".to_owned()];
    server.kill();
    // The first questions may find out; from then on nobody waits.
    ask_all(&hosts, &apis, 20, Duration::from_millis(500));
    wait_for("hosts that know", || hosts.iter().all(|host| !host.store().unwrap().is_up()).then_some(()));
    let (all, asked) = ask_all(&hosts, &apis, 50, Duration::from_secs(3));
    for (api, served) in apis.iter().zip(&all) {
        let in_a_second = most(served, Duration::from_secs(1));
        let slow = served.iter().filter(|(began, ended)| *ended - *began > SLOW).count();
        println!("{api}: {in_a_second} in a second, {slow} were slow");
        // Each gives 5 of 15; windows of all hosts have the same edges.
        assert!(in_a_second as u64 <= 2 * LIMIT, "{api}: {in_a_second} in a second");
        // Of fewer questions fewer are served.
        assert!(served.len() as u64 >= asked.min(300) / 10, "{api}: {} in 3 s", served.len());
        assert!(slow * 10 <= served.len(), "{api}: {slow} of {}, as if they had waited", served.len());
    }
    server.start();
    wait_for("hosts that are back", || hosts.iter().all(|host| host.store().unwrap().is_up()).then_some(()));
    let (all, asked) = ask_all(&hosts, &apis[1..], 20, Duration::from_secs(3));
    let in_a_second = most(&all[0], Duration::from_secs(1));
    let least = if asked >= 150 { 10 } else { 1 };
    assert!((least..=LIMIT as usize).contains(&in_a_second), "{in_a_second} of {asked}");
}

#[test]
fn a_store_that_hangs_makes_nobody_wait_for_long() {
    let server = Redis::single(Options::default());
    let hosts = hosts_within(worker::DEADLINE, 1, &policy(&server.url(), ""));
    server.pause();
    let slow = block_on(async {
        let mut slow = 0;
        for _ in 0..50 {
            let began = Instant::now();
            is_served(&hosts[0], &Request::new("u", "sliding-log/strict")).await;
            slow += u64::from(began.elapsed() > SLOW);
        }
        slow
    });
    server.resume();
    assert!(slow <= 10, "{slow} of 50 waited: three find out, and the others need not");
}

#[test]
fn one_late_answer_and_one_lost_connection_cost_their_own_questions_and_no_more() {
    let server = Redis::single(Options::default());
    let proxy = Proxy::to(server.port());
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let further = "[[api]]\nname = \"hour\"\nlimits = [\"30/hour\"]\nsharing = \"strict\"\n";
    let deadline = Duration::from_millis(500);
    let hosts = hosts_within(deadline, 1, &policy(&url, further));
    let store = hosts[0].store().unwrap();
    let served = async |user: &str, times: u64| {
        let mut served = 0;
        for _ in 0..times {
            served += u64::from(is_served(&hosts[0], &Request::new(user, "hour")).await);
        }
        served
    };
    // The share of one of three hosts is ten.
    let all = 30;
    block_on(async {
        assert_eq!(served("before", 35).await, all);
        proxy.delay(deadline + Duration::from_millis(300));
        served("late", 1).await;
        proxy.delay(Duration::ZERO);
        assert!(store.is_up(), "one answer was late");
        // The proxy's delay is over for the answers behind the late one.
        tokio::time::sleep(deadline).await;
        assert!(store.is_up(), "and nobody has given it up since");
        assert_eq!(served("after", 35).await, all);
        proxy.cut();
        served("lost", 1).await;
        assert_eq!(served("lost and found", 35).await, all);
        server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(served("idle for too long", 35).await, all, "nobody was asked when it ended");
    });
}

/// A Redis Cluster that goes on without those of its slots that nobody serves.
fn partial_cluster() -> RedisCluster {
    let cluster = RedisCluster::new();
    for node in &cluster.nodes {
        node.ask(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    cluster
}

/// Users whose keys are in slots of this node of a cluster, or of others.
fn users(cluster: &RedisCluster, of: usize, is_there: bool) -> Vec<String> {
    let is_at = |user: &String| cluster.master_of(slot(user.as_bytes())) == Some(of);
    (0..).map(|n| format!("user{n}")).filter(|user| is_at(user) == is_there).take(3).collect()
}

#[test]
fn a_part_of_a_redis_cluster_that_is_gone_takes_only_its_own_users_off_the_store() {
    let mut cluster = partial_cluster();
    let further = "[[api]]\nname = \"strict\"\nlimits = [\"30/hour\"]\nsharing = \"strict\"\n";
    let hosts = hosts(1, &policy(&cluster.url(), further));
    let (here, gone) = (users(&cluster, 0, false), users(&cluster, 0, true));
    // No replica takes over.
    cluster.kill(3);
    cluster.kill(0);
    let mut served = [vec![0; 3], vec![0; 3]];
    let mut slow = 0;
    block_on(async {
        for _ in 0..40 {
            for (users, served) in [&here, &gone].into_iter().zip(&mut served) {
                for (user, served) in users.iter().zip(served) {
                    let began = Instant::now();
                    *served += u64::from(is_served(&hosts[0], &Request::new(user, "strict")).await);
                    slow += u64::from(began.elapsed() > SLOW);
                }
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    });
    println!("{served:?}, {slow} were slow");
    assert_eq!(served[0], [30; 3], "all of it");
    assert_eq!(served[1], [10; 3], "the share of one of three hosts");
    assert!(hosts[0].store().unwrap().is_up());
    assert!(slow <= 24, "{slow} of 240 waited");
}

#[test]
fn a_part_of_a_redis_cluster_that_hangs_holds_nobody_up_for_long_and_comes_back_by_itself() {
    let cluster = partial_cluster();
    let further = "[[api]]\nname = \"strict\"\nlimits = [\"3000/hour\"]\nsharing = \"strict\"\n";
    let hosts = hosts_within(worker::DEADLINE, 1, &policy(&cluster.url(), further));
    let (here, gone) = (users(&cluster, 0, false), users(&cluster, 0, true));
    let (decisions, store) = (&hosts[0], hosts[0].store().unwrap());
    let times = async |user: &str, times: u64| {
        let mut slow = 0;
        for _ in 0..times {
            let began = Instant::now();
            is_served(decisions, &Request::new(user, "strict")).await;
            slow += u64::from(began.elapsed() > SLOW);
        }
        slow
    };
    cluster.nodes[3].pause();
    cluster.nodes[0].pause();
    block_on(async {
        assert!(times(&gone[0], 100).await <= 20, "three answers are waited for, and then the part is gone");
        assert!(times(&here[0], 100).await <= 20, "others do not wait");
        assert!(store.is_up());
    });
    cluster.nodes[3].resume();
    cluster.nodes[0].resume();
    let failures = || store.counts().1;
    wait_for("a part that is back", || {
        let before = failures();
        block_on(times(&gone[1], 1));
        (failures() == before).then_some(())
    });
}

/// The fewest requests that were served in two seconds between the first and the last.
fn fewest(served: &[Instant]) -> usize {
    let last = *served.last().expect("something was served");
    let span = Duration::from_secs(2);
    let inside = |from: &Instant| served.iter().filter(|at| **at > *from && **at <= *from + span).count();
    served.iter().filter(|at| **at + span <= last).map(inside).min().unwrap_or(0)
}

fn longest_pause(served: &[Instant]) -> Duration {
    served.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(Duration::MAX)
}

/// A machine that stands still for a moment loses requests too, and does not do so again and again.
#[test]
fn an_open_slot_of_a_redis_cluster_costs_no_requests() {
    assert!((0..3).any(|_| is_open_slot_without_cost()), "three times in a row");
}

/// Whether users of a slot that is held open and then moved twice, and users of other slots, are served at nine tenths of their rate throughout.
fn is_open_slot_without_cost() -> bool {
    let cluster = partial_cluster();
    let api = |name: &str, limit: &str| {
        format!("[[api]]\nname = \"{name}\"\nlimits = [\"40/s burst 20\"]\nsharing = \"strict\"\n{limit}")
    };
    let log =
        "[[api]]\nname = \"log\"\nlimits = [\"20/s\"]\nsharing = \"strict\"\nalgorithm = \"sliding-log\"\n";
    let hosts = hosts_within(worker::DEADLINE, 1, &policy(&cluster.url(), &api("bucket", log)));
    let moving = users(&cluster, 0, true).remove(0);
    let of_slot = slot(moving.as_bytes());
    let elsewhere = users(&cluster, 0, false).remove(0);
    let asked: [(&str, &str); 4] =
        [(&moving, "bucket"), (&elsewhere, "bucket"), (&moving, "log"), (&elsewhere, "log")];
    let mut served = [const { Vec::new() }; 4];
    let began = Instant::now();
    let mut events = vec![
        (
            Duration::from_secs(1),
            (|cluster: &RedisCluster, slot| cluster.begin_migration(slot, 1)) as fn(&RedisCluster, u16),
        ),
        (Duration::from_secs(8), |cluster, slot| cluster.finish_migration(slot, 1)),
        (Duration::from_secs(9), |cluster, slot| cluster.migrate_slot(slot, 2)),
    ];
    block_on(async {
        while began.elapsed() < Duration::from_secs(11) {
            if events.first().is_some_and(|(at, _)| began.elapsed() >= *at) {
                (events.remove(0).1)(&cluster, of_slot);
            }
            for ((user, api), served) in asked.iter().zip(&mut served) {
                if is_served(&hosts[0], &Request::new(user, api)).await {
                    served.push(Instant::now());
                }
            }
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
    });
    let (_, failures) = hosts[0].store().unwrap().counts();
    let mut is_free = true;
    for ((user, api), served) in asked.iter().zip(&served) {
        let (limit, least) = (if *api == "log" { 20 } else { 40 }, fewest(served));
        println!(
            "{user} {api}: {} in all, {least} in the worst two seconds of {limit}/s; {failures} without an answer",
            served.len()
        );
        assert!(served.len() <= limit * 11 + 20, "{user} {api}: {} in 11 s", served.len());
        // A log gives a second's requests as soon as it can, so two of its seconds need not be whole: its sum and its longest pause say what was lost.
        is_free &= match *api {
            "log" => {
                served.len() * 10 >= limit * 11 * 9 && longest_pause(served) < Duration::from_millis(1_600)
            }
            _ => least * 10 >= 2 * limit * 9,
        };
    }
    is_free
}

/// Two APIs: one whose every request is asked about, and one of which a host holds 1000 after the first question.
const STRICT_AND_HELD: &str = "[[api]]\nname = \"hour\"\nlimits = [\"30/hour\"]\nsharing = \"strict\"\n\
                               [[api]]\nname = \"held\"\nlimits = [\"64000/hour\"]\nalgorithm = \"fixed-window\"\n";

/// How many of some requests of a user are served.
async fn served(host: &DecisionService, user: &str, api: &str, times: u64) -> u64 {
    let mut served = 0;
    for _ in 0..times {
        served += u64::from(is_served(host, &Request::new(user, api)).await);
    }
    served
}

/// What is wrong with the store, as a host finds it.
fn problem(host: &DecisionService) -> Option<&'static str> {
    host.store().unwrap().condition().problem.as_ref().map(StoreError::kind)
}

/// Waits until a host says that the store is full: whoever asked has its answer a moment earlier.
fn wait_until_full(host: &DecisionService) {
    let is_full = || !host.store().unwrap().is_up() && problem(host) == Some("out_of_memory");
    wait_for("a full store that is named", || is_full().then_some(()));
}

#[test]
fn a_full_store_is_away_with_the_first_refused_write_and_hosts_spend_what_they_hold_and_their_shares() {
    let server = Redis::single(Options::default());
    let hosts = hosts(2, &policy(&server.url(), STRICT_AND_HELD));
    let (host, store) = (&hosts[0], hosts[0].store().unwrap());
    block_on(async {
        assert_eq!(served(host, "before", "hour", 35).await, 30);
        assert_eq!(served(host, "holder", "held", 1).await, 1);
        server.fill();
        let refused = store.counts().1;
        assert_eq!(served(host, "a", "hour", 1).await, 1);
        wait_until_full(host);
        // Of 30 one of three hosts has ten.
        assert_eq!(served(host, "a", "hour", 35).await, 9);
        let began = Instant::now();
        assert_eq!(served(host, "holder", "held", 300).await, 300, "what is held is spent");
        let question = Request::new("a", "hour");
        let looks = host.check(&question, Asking::Peeking, |decision| decision.limit.is_some());
        assert_eq!(looks.await, Ok(true), "somebody only looks");
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}: nobody waits", began.elapsed());
        assert_eq!(store.counts().1 - refused, 1, "one question was asked in vain");
    });
    assert_eq!((store.is_up(), problem(host)), (false, Some("out_of_memory")));
    server.make_room();
    wait_for("hosts that are back", || hosts.iter().all(|host| host.store().unwrap().is_up()).then_some(()));
    block_on(async {
        assert_eq!(served(&hosts[1], "both", "hour", 20).await, 20);
        assert_eq!(served(host, "both", "hour", 20).await, 10, "all count together again");
    });
}

#[test]
fn a_full_store_that_goes_away_and_comes_back_with_room_counts_at_once() {
    let mut server = Redis::single(Options::default());
    let hosts = hosts(1, &policy(&server.url(), STRICT_AND_HELD));
    server.fill();
    block_on(served(&hosts[0], "a", "hour", 1));
    wait_until_full(&hosts[0]);
    server.kill();
    let is_gone = |kind| matches!(kind, Some("lost" | "unreachable"));
    wait_for("a store that is gone", || is_gone(problem(&hosts[0])).then_some(()));
    server.start();
    wait_for("a store that is back", || hosts[0].store().unwrap().is_up().then_some(()));
    assert_eq!(block_on(served(&hosts[0], "b", "hour", 35)), 30);
}

#[test]
fn a_full_master_is_left_for_the_one_that_sentinels_promote() {
    let sentinels = Sentinels::new();
    let hosts = hosts(1, &policy(&sentinels.url(), STRICT_AND_HELD));
    let full = &sentinels.servers[sentinels.master()];
    // A replica pays no attention to its own limit, and the other server has none.
    full.fill();
    block_on(served(&hosts[0], "a", "hour", 1));
    wait_until_full(&hosts[0]);
    // It cannot be told to follow either, and goes on as a master.
    sentinels.abandon();
    wait_for("a master with room", || hosts[0].store().unwrap().is_up().then_some(()));
    assert_eq!(block_on(served(&hosts[0], "b", "hour", 35)), 30);
}

#[test]
fn a_full_part_of_a_redis_cluster_takes_only_its_own_users_off_the_store() {
    let cluster = RedisCluster::new();
    let hosts = hosts(1, &policy(&cluster.url(), STRICT_AND_HELD));
    let (here, full) = (users(&cluster, 0, false), users(&cluster, 0, true));
    cluster.nodes[0].ask(&["CONFIG", "SET", "maxmemory", "1mb"]);
    block_on(async {
        assert_eq!(served(&hosts[0], &full[0], "hour", 35).await, 10, "the share of one of three hosts");
        assert_eq!(served(&hosts[0], &here[0], "hour", 35).await, 30, "all of it");
    });
    let condition = hosts[0].store().unwrap().condition();
    assert_eq!((condition.answering, condition.away, problem(&hosts[0])), (2, 1, Some("out_of_memory")));
    cluster.nodes[0].make_room();
    wait_for("a part that takes writes", || problem(&hosts[0]).is_none().then_some(()));
    assert_eq!(block_on(served(&hosts[0], &full[1], "hour", 35)), 30);
}
