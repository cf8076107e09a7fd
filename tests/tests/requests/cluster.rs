//! Hosts that count requests together, on a real store and by the real clock: every algorithm, strictly and by leases.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use ratelimit_tests::{
    policies::REQUEST_ALGORITHMS,
    redis::{Options, Proxy, Redis, RedisCluster, Sentinels, wait_for},
};
use ratelimit_user::{
    config,
    requests::{
        Outcome, Request,
        asking::{Asking, NotRefunded},
        decision_service::DecisionService,
    },
    store::{
        redis::slot,
        worker::{self, Store},
    },
};

const LIMIT: u64 = 15;
/// An API of which a host holds 1000 after the first question.
const BUSY: &str = "[[api]]\nname = \"busy\"\nlimits = [\"64000/hour\"]\nalgorithm = \"fixed-window\"\n";
/// How long answers of the store may take where a test counts exactly what it gave: what another load on this machine holds up is no answer that is missing.
const PATIENCE: Duration = Duration::from_secs(5);
/// An answer that took longer has waited for something, and was not only held up by another load; or it was, which does not happen to many.
const SLOW: Duration = Duration::from_millis(40);
const MODES: [&str; 2] = ["strict", "lease"];

/// A policy with one API for each algorithm and mode, `algorithm/mode`, and further text.
fn policy(url: &str, further: &str) -> String {
    let api = |algorithm: &str, mode: &str| {
        format!(
            "[[api]]\nname = \"{algorithm}/{mode}\"\nlimits = [\"{LIMIT}/s\"]\nalgorithm = \"{algorithm}\"\nsharing = \"{mode}\"\n"
        )
    };
    let apis: String =
        REQUEST_ALGORITHMS.iter().flat_map(|algorithm| MODES.map(|mode| api(algorithm, mode))).collect();
    format!("[source]\nlimits = [\"1000/s\"]\n[cluster]\nredis = \"{url}\"\nhosts = 3\n{apis}{further}")
}

/// Hosts with a policy, all of which reach the store and have the patience to wait for it.
fn hosts(count: usize, text: &str) -> Vec<Arc<DecisionService>> {
    hosts_within(PATIENCE, count, text)
}

/// Hosts with a policy, all of which reach the store and wait for its answers until a deadline.
fn hosts_within(deadline: Duration, count: usize, text: &str) -> Vec<Arc<DecisionService>> {
    let policy = config::parse(text, "test").unwrap_or_else(|error| panic!("{error}")).policy;
    let host =
        |_| Arc::new(DecisionService::with(&policy, Store::with_deadline(&policy, None, deadline).unwrap()));
    let hosts: Vec<Arc<DecisionService>> = (0..count).map(host).collect();
    for host in &hosts {
        wait_for("a store that answers", || host.store().is_some_and(Store::is_up).then_some(()));
    }
    hosts
}

fn block_on<R>(task: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(task)
}

/// A request that was served: not before the first moment, not after the second.
type Served = (Instant, Instant);

/// Asks one host about some APIs in turn, so many times a second each, until a moment. What was served of each, and how often it was asked for:
/// less than that where the machine has other things to do.
fn ask(
    decisions: &DecisionService,
    apis: &[String],
    per_second: u64,
    until: Instant,
) -> (Vec<Vec<Served>>, u64) {
    let mut served = vec![Vec::new(); apis.len()];
    let mut asked = 0;
    block_on(async {
        let mut pace = tokio::time::interval(Duration::from_micros(1_000_000 / per_second));
        while Instant::now() < until {
            pace.tick().await;
            asked += 1;
            for (api, served) in apis.iter().zip(&mut served) {
                let began = Instant::now();
                let outcome = decisions
                    .check(&Request::new("user", api), Asking::Counted, |decision| decision.outcome)
                    .await;
                if outcome.unwrap().is_served() {
                    served.push((began, Instant::now()));
                }
            }
        }
    });
    (served, asked)
}

/// Asks all hosts at once.
fn ask_all(
    hosts: &[Arc<DecisionService>],
    apis: &[String],
    per_second: u64,
    lasting: Duration,
) -> (Vec<Vec<Served>>, u64) {
    let until = Instant::now() + lasting;
    let (mut all, mut asked) = (vec![Vec::new(); apis.len()], 0);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            hosts.iter().map(|host| scope.spawn(move || ask(host, apis, per_second, until))).collect();
        for thread in threads {
            let (served, of_host) = thread.join().unwrap();
            all.iter_mut().zip(served).for_each(|(all, served)| all.extend(served));
            asked += of_host;
        }
    });
    all.iter_mut().for_each(|served| served.sort_unstable());
    (all, asked)
}

/// The most that was served within an interval of this length, wherever it begins.
fn most(served: &[Served], interval: Duration) -> usize {
    let inside = |from: &Served| {
        served.iter().filter(|(began, ended)| *began >= from.0 && *ended <= from.0 + interval).count()
    };
    served.iter().map(inside).max().unwrap_or(0)
}

/// Three hosts, one user, each asking at more than the limit: no algorithm admits more than its own bound, and most of what it may.
fn no_more_than_the_bound(url: &str, lasting: Duration) {
    let hosts = hosts(3, &policy(url, ""));
    let apis: Vec<String> = REQUEST_ALGORITHMS
        .iter()
        .flat_map(|algorithm| MODES.map(|mode| format!("{algorithm}/{mode}")))
        .collect();
    let per_second = 12;
    let began = Instant::now();
    let (all, asked) = ask_all(&hosts, &apis, per_second, lasting);
    // On a busy machine the last questions take a little longer than they were to.
    let took = began.elapsed().as_secs_f64();
    let seconds = lasting.as_secs_f64();
    // Who has not asked has not been refused: of hosts that were held up, only what they got at most can be told.
    let is_on_time = asked * 10 >= per_second * hosts.len() as u64 * lasting.as_secs() * 8;
    let late: u64 = hosts.iter().map(|host| host.store().unwrap().counts().1).sum();
    assert_eq!(late, 0, "answers that were missing");
    for (api, served) in apis.iter().zip(&all) {
        let in_a_second = most(served, Duration::from_secs(1));
        let bound = match api.split('/').next() {
            Some("sliding-window" | "sliding-log") => LIMIT,
            Some("sliding-window-weighted") => 2 * LIMIT - 1,
            _ => 2 * LIMIT,
        };
        let total = served.len() as f64;
        println!("{api}: {in_a_second} in a second of at most {bound}, {total} in {seconds:.0} s");
        assert!(in_a_second as u64 <= bound, "{api}: {in_a_second} in a second");
        assert!(total <= LIMIT as f64 * (took + 1.0), "{api}: {total} in {took:.3} s");
        assert!(!is_on_time || total >= LIMIT as f64 * seconds * 0.7, "{api}: {total} in {seconds} s");
    }
}

#[test]
fn three_hosts_admit_no_more_than_the_bound_of_every_algorithm() {
    let server = Redis::single(Options::default());
    no_more_than_the_bound(&server.url(), Duration::from_secs(5));
}

#[test]
fn three_hosts_admit_no_more_than_the_bound_on_sentinels() {
    let sentinels = Sentinels::new();
    no_more_than_the_bound(&sentinels.url(), Duration::from_secs(5));
}

#[test]
fn three_hosts_admit_no_more_than_the_bound_on_a_redis_cluster() {
    let cluster = RedisCluster::new();
    no_more_than_the_bound(&cluster.url(), Duration::from_secs(5));
}

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
            let outcome = hosts[n % 2].check(&question, Asking::Counted, |decision| decision.outcome).await;
            served += u64::from(outcome.unwrap().is_served());
        }
        served
    });
    assert!((900..=1_000).contains(&served), "{served}");
}

/// What one host answers to a question.
#[derive(Debug, PartialEq)]
struct Answer {
    outcome: Outcome,
    limit: String,
    left: u64,
    more_us: u64,
    violated: Vec<String>,
}

fn answer(host: &DecisionService, question: &Request<'_>, asking: Asking) -> Answer {
    let answered = host.check(question, asking, |decision| {
        let near = decision.limit.expect("a limit");
        Answer {
            outcome: decision.outcome,
            limit: near.limit.name.clone(),
            left: near.remaining,
            more_us: near.more_us,
            violated: decision.violated.limits().map(|limit| limit.name.clone()).collect(),
        }
    });
    block_on(answered).unwrap()
}

#[test]
fn of_what_a_host_holds_each_request_takes_one_in_every_answer() {
    let server = Redis::single(Options::default());
    let further = "[[api]]\nname = \"few\"\nlimits = [\"640/hour\"]\nalgorithm = \"fixed-window\"\n\
                   [[api]]\nname = \"slow\"\nlimits = [\"640/day\"]\n";
    let hosts = hosts(1, &policy(&server.url(), further));
    for api in ["few", "slow"] {
        let question = Request::new("user", api);
        for left in (0..640).rev() {
            if left % 50 == 0 {
                let peeked = answer(&hosts[0], &question, Asking::Peeking);
                assert_eq!((peeked.left, peeked.outcome), (left + 1, Outcome::Allowed), "{api}");
            }
            assert_eq!(answer(&hosts[0], &question, Asking::Counted).left, left, "{api}");
        }
        let (asked, _) = hosts[0].store().unwrap().counts();
        // About half that without another load; all of them if nothing were held.
        assert!(asked < 1_200, "{asked} questions");
    }
}

#[test]
fn hosts_tell_of_a_margin_of_all_that_refuse_and_of_when_there_is_more() {
    let server = Redis::single(Options::default());
    let further = "[plan.default]\nlimits = [\"5/day fixed-window\"]\n\
                   [[api]]\nname = \"soft\"\nkey = [\"ip\"]\nlimits = [\"10/day\"]\nthrottle = \"soft 50%\"\n\
                   [[api]]\nname = \"lent\"\nkey = [\"ip\"]\nlimits = [\"100/day\"]\nthrottle = \"soft 50%\"\n\
                   [[api]]\nname = \"two\"\nlimits = [\"100/hour\", \"5/min\"]\nalgorithm = \"fixed-window\"\n";
    let hosts = hosts(2, &policy(&server.url(), further));
    // A bucket with a margin tells which of it is above, whoever asks.
    for (api, of) in [("soft", 10), ("lent", 100)] {
        let ask = Request::new("", api).from("192.0.2.1".parse().unwrap());
        let all: Vec<Answer> =
            (0..of * 3 / 2 + 1).map(|nth| answer(&hosts[nth % 2], &ask, Asking::Counted)).collect();
        let count = |wanted: Outcome| all.iter().filter(|answer| answer.outcome == wanted).count();
        assert_eq!((count(Outcome::Allowed), count(Outcome::InMargin)), (of, of / 2), "{api}");
        assert_eq!((all[2].left, all[of].left), (of as u64 - 3, 0), "{api}");
        let Some(Answer { outcome: Outcome::Refused { retry_us: Some(retry_us) }, more_us, .. }) = all.last()
        else {
            panic!("{api}: {:?}", all.last())
        };
        let one_us = 86_400_000_000 / (of as u64 * 3 / 2);
        assert!(
            (one_us - 10_000_000..=one_us).contains(more_us) && retry_us >= more_us,
            "{more_us} {retry_us}"
        );
    }
    let question = Request::new("ann", "two");
    assert_eq!(answer(&hosts[0], &question.costing(3), Asking::Counted).left, 2);
    let refused = answer(&hosts[1], &question.costing(3), Asking::Counted);
    assert_eq!((refused.left, refused.violated.join(" ")), (2, "two-min default".to_owned()));
    // The same from what the host has been told a moment ago.
    let again = answer(&hosts[1], &question.costing(3), Asking::Counted);
    assert_eq!((again.left, again.violated, again.limit), (2, refused.violated, refused.limit));
}

#[test]
fn elastic_limits_without_headroom_are_each_as_large_as_they_say() {
    let server = Redis::single(Options::default());
    let further = "[[api]]\nname = \"two\"\nlimits = [\"10/hour elastic 50%\", \"100/day elastic 50%\"]\nalgorithm = \"fixed-window\"\n";
    let hosts = hosts(1, &policy(&server.url(), further));
    let question = Request::new("user", "two");
    let served = |times: usize| {
        (0..times).filter(|_| answer(&hosts[0], &question, Asking::Counted).outcome.is_served()).count()
    };
    hosts[0].engine().set_headroom(false);
    assert_eq!(served(12), 10);
    hosts[0].engine().set_headroom(true);
    std::thread::sleep(Duration::from_millis(1_050));
    assert_eq!(served(12), 5);
}

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
            let user = Request::new("u", "sliding-log/strict");
            let asked = hosts[0].check(&user, Asking::Counted, |decision| decision.outcome);
            asked.await.unwrap();
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
            let question = Request::new(user, "hour");
            let outcome = hosts[0].check(&question, Asking::Counted, |decision| decision.outcome).await;
            served += u64::from(outcome.unwrap().is_served());
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

/// Users whose keys are in slots of this node of a cluster, or of others.
fn users(cluster: &RedisCluster, of: usize, is_there: bool) -> Vec<String> {
    let is_at = |user: &String| cluster.master_of(slot(user.as_bytes())) == Some(of);
    (0..).map(|n| format!("user{n}")).filter(|user| is_at(user) == is_there).take(3).collect()
}

#[test]
fn a_part_of_a_redis_cluster_that_is_gone_takes_only_its_own_users_off_the_store() {
    let mut cluster = RedisCluster::new();
    for node in &cluster.nodes {
        node.ask(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
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
                    let question = Request::new(user, "strict");
                    let outcome =
                        hosts[0].check(&question, Asking::Counted, |decision| decision.outcome).await;
                    slow += u64::from(began.elapsed() > SLOW);
                    *served += u64::from(outcome.unwrap().is_served());
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
    let cluster = RedisCluster::new();
    for node in &cluster.nodes {
        node.ask(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let further = "[[api]]\nname = \"strict\"\nlimits = [\"3000/hour\"]\nsharing = \"strict\"\n";
    let hosts = hosts_within(worker::DEADLINE, 1, &policy(&cluster.url(), further));
    let (here, gone) = (users(&cluster, 0, false), users(&cluster, 0, true));
    let (decisions, store) = (&hosts[0], hosts[0].store().unwrap());
    let times = async |user: &str, times: u64| {
        let mut slow = 0;
        for _ in 0..times {
            let began = Instant::now();
            let question = Request::new(user, "strict");
            decisions.check(&question, Asking::Counted, |_| ()).await.unwrap();
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

#[test]
fn a_refusal_is_believed_under_the_limits_that_it_was_made_under_and_for_a_second_at_most() {
    let server = Redis::single(Options::default());
    let api = |mode: &str, limit: u64| {
        format!("[[api]]\nname = \"{mode}\"\nlimits = [\"{limit}/hour\"]\nsharing = \"{mode}\"\n")
    };
    let of = |limit: u64| policy(&server.url(), &MODES.map(|mode| api(mode, limit)).concat());
    let hosts = hosts(2, &of(10));
    let questions = || hosts[0].store().unwrap().counts().0;
    block_on(async {
        for mode in MODES {
            let user = Request::new("user", mode);
            let is_served = async |host: usize| {
                let outcome = hosts[host].check(&user, Asking::Counted, |decision| decision.outcome);
                outcome.await.unwrap().is_served()
            };
            let spend = async |host: usize| {
                let mut served = 0;
                while is_served(host).await {
                    served += 1;
                }
                served
            };
            assert_eq!(spend(0).await, 10, "{mode}");
            // Whoever asks again is no load on the store.
            let asked = questions();
            assert!(!is_served(0).await && questions() == asked, "{mode}: from memory");
            hosts[0].follow(&config::parse(&of(15), "test").unwrap().policy, None);
            assert_eq!(spend(0).await, 5, "{mode}: a limit that is raised counts at once");
            let refused = Instant::now();
            hosts[1].reset(&user).await.unwrap();
            while !is_served(0).await {
                assert!(
                    refused.elapsed() < Duration::from_secs(2),
                    "{mode}: a second, and what the machine takes"
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            println!("{mode}: refused for {:?} after a reset at another host", refused.elapsed());
            spend(0).await;
            hosts[0].reset(&user).await.unwrap();
            assert!(is_served(0).await, "{mode}: at once where it was reset");
            hosts[0].follow(&config::parse(&of(10), "test").unwrap().policy, None);
        }
    });
}

#[test]
fn another_amount_of_a_log_that_hosts_count_together_gives_nothing_again() {
    let server = Redis::single(Options::default());
    let api = |mode: &str, limit: &str| {
        format!("[[api]]\nname = \"{mode}\"\nlimits = [\"{limit} sliding-log\"]\nsharing = \"{mode}\"\n")
    };
    let of = |amount: u64| {
        let apis = MODES.map(|mode| api(mode, &format!("{amount}/hour"))).concat();
        policy(&server.url(), &apis)
    };
    let hosts = hosts(2, &of(100));
    let follow = |amount: u64| {
        let changed = config::parse(&of(amount), "test").unwrap().policy;
        hosts.iter().for_each(|host| host.follow(&changed, None));
    };
    block_on(async {
        for mode in MODES {
            let served = async |user: &str, most: usize| {
                let mut served = 0;
                for turn in 0..most {
                    let request = Request::new(user, mode);
                    let outcome =
                        hosts[turn % 2].check(&request, Asking::Counted, |decision| decision.outcome);
                    served += usize::from(outcome.await.unwrap().is_served());
                }
                served
            };
            assert_eq!(served("spent", 300).await, 100, "{mode}");
            for amount in [10, 100, 10, 9, 100] {
                follow(amount);
                assert_eq!(served("spent", 30).await, 0, "{mode}: {amount} an hour");
            }
            // What hosts hold beforehand when the amount becomes smaller is counted when they tell of it.
            let mut all = served("leased", 20).await;
            for amount in [10, 100, 10, 100] {
                follow(amount);
                all += served("leased", 150).await;
            }
            assert!((20..=100).contains(&all), "{mode}: {all} of 100");
        }
    });
}

#[test]
fn a_user_is_reset_on_all_hosts_and_what_is_refunded_can_be_used_again() {
    let server = Redis::single(Options::default());
    let further = "[[api]]\nname = \"slow\"\nlimits = [\"10/hour\"]\nalgorithm = \"fixed-window\"\n";
    let hosts = hosts(2, &policy(&server.url(), further));
    let user = Request::new("user", "slow");
    block_on(async {
        let served = |host: usize| {
            let decisions = Arc::clone(&hosts[host]);
            async move {
                decisions
                    .check(&Request::new("user", "slow"), Asking::Counted, |decision| decision.outcome)
                    .await
                    .unwrap()
            }
        };
        for n in 0..10 {
            assert_eq!(served(n % 2).await, Outcome::Allowed, "{n}");
        }
        assert!(!served(0).await.is_served());
        assert!(!served(1).await.is_served());
        hosts[0].refund(&user.costing(2), 0).await.unwrap();
        // What was refused is believed for a second.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        assert!(served(1).await.is_served() && served(0).await.is_served() && !served(0).await.is_served());
        hosts[0].reset(&user).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        assert!(served(1).await.is_served());
    });
}
