//! Hosts that count requests together, on a real store and by the real clock: every algorithm, strictly and by leases.

mod answers;
mod bounds;
mod changes;
mod leases;
mod outages;
mod refunds;
mod several_keys;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ratelimit_tests::{policies::REQUEST_ALGORITHMS, redis::wait_for};
use ratelimit_user::{
    config,
    requests::{Outcome, Request, asking::Asking, decision_service::DecisionService},
    store::worker::Store,
};
use tokio::time::MissedTickBehavior;

/// Requests a second of each API of [`policy`].
const LIMIT: u64 = 15;

/// How long answers of the store may take where a test counts exactly what it gave: what another load on this machine holds up is no answer that is missing.
const PATIENCE: Duration = Duration::from_secs(5);

/// How hosts share a limit: each request is asked about, or hosts hold leases.
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

/// Whether a host serves a request, which counts.
async fn is_served(host: &DecisionService, request: &Request<'_>) -> bool {
    host.check(request, Asking::Counted, |decision| decision.outcome.is_served()).await.unwrap()
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
        // A host that was held up does not make up for it: questions that come at once are refused, and would count as asked all the same.
        pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while Instant::now() < until {
            pace.tick().await;
            asked += 1;
            for (api, served) in apis.iter().zip(&mut served) {
                let began = Instant::now();
                if is_served(decisions, &Request::new("user", api)).await {
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
