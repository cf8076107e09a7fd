//! Requests with several keys: no key shows others units that are given back a moment later.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use ratelimit_tests::redis::{Options, Redis, RedisCluster};
use ratelimit_user::requests::{Outcome, Request, asking::Asking, decision_service::DecisionService};

use super::{block_on, hosts};

/// Requests that one host asks about at once.
const CLIENTS: usize = 20;
/// Units of one path, of which a user has two.
const OF_PATH: u64 = 20;

/// A policy of the shape in which one full path can take other paths their units: a user's plan over all paths, and less for each path.
fn policy(url: &str, key: &str) -> String {
    format!(
        "[source]\nlimits = [\"1000/s\"]\n[cluster]\nredis = \"{url}\"\nhosts = 3\n\
         [plan.default]\nlimits = [\"40/hour\"]\n[[api]]\nname = \"web\"\nkey = {key}\nlimits = [\"{OF_PATH}/hour\"]\n"
    )
}

async fn outcome(host: &DecisionService, user: &str, path: &str) -> Outcome {
    let parts = [("path", path)];
    let request = Request::new(user, "web").with_parts(&parts);
    host.check(&request, Asking::Counted, |decision| decision.outcome).await.unwrap()
}

/// Clients of one host that ask about one path until they are told to stop, and how often they were served.
struct Flood {
    goes_on: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Flood {
    fn begin(hosts: &[Arc<DecisionService>], user: &str, path: &str) -> Self {
        let (goes_on, served) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
        let client = |n: usize| {
            let (host, goes_on) = (Arc::clone(&hosts[n % hosts.len()]), Arc::clone(&goes_on));
            let (user, path, served) = (user.to_owned(), path.to_owned(), Arc::clone(&served));
            tokio::spawn(async move {
                while goes_on.load(Ordering::Relaxed) {
                    if outcome(&host, &user, &path).await.is_served() {
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        };
        let clients = (0..CLIENTS * hosts.len()).map(client).collect();
        Self { goes_on, served, clients }
    }

    async fn has_served(&self, units: u64) {
        for _ in 0..5_000 {
            if self.served.load(Ordering::Relaxed) >= units {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{:?} of {units} in five seconds", self.served);
    }

    async fn end(self) -> u64 {
        self.goes_on.store(false, Ordering::Relaxed);
        for client in self.clients {
            client.await.unwrap();
        }
        self.served.load(Ordering::Relaxed)
    }
}

/// Asks so many times at once, over all hosts, and returns the answers.
async fn at_once(hosts: &[Arc<DecisionService>], times: usize, user: &str, path: &str) -> Vec<Outcome> {
    let ask = |n: usize| {
        let (host, user, path) = (Arc::clone(&hosts[n % hosts.len()]), user.to_owned(), path.to_owned());
        tokio::spawn(async move { outcome(&host, &user, &path).await })
    };
    let asked: Vec<_> = (0..times).map(ask).collect();
    let mut answers = Vec::new();
    for asked in asked {
        answers.push(asked.await.unwrap());
    }
    answers
}

/// Plays rounds, each with its own number. Where a server of the store was late or away, hosts have decided by themselves, and the round says nothing.
async fn play(hosts: &[Arc<DecisionService>], round: impl AsyncFn(usize) -> Result<(), String>) {
    let unanswered = || {
        let of = |host: &Arc<DecisionService>| {
            let store = host.store().unwrap();
            store.counts().1 + store.condition().away as u64
        };
        hosts.iter().map(of).sum::<u64>()
    };
    let mut rounds = 0;
    for n in 0..10 {
        let before = unanswered();
        let found = round(n).await;
        if unanswered() == before {
            found.unwrap_or_else(|why| panic!("round {n}: {why}"));
            rounds += 1;
        }
    }
    assert!(rounds > 0, "the store was late in every round");
}

/// Whether all of these were served; the sentence tells those that were not.
fn all_served(answers: &[Outcome]) -> Result<(), String> {
    let refused: Vec<_> = answers.iter().filter(|outcome| !outcome.is_served()).collect();
    match refused.len() {
        0 => Ok(()),
        count => Err(format!("{count} of {}: {refused:?}", answers.len())),
    }
}

/// While a path that is full is asked for all the time, another path of this user gets all of its units, and no refusal names a time at which it is not true.
fn a_full_path_costs_other_paths_nothing(url: &str) {
    let hosts = hosts(3, &policy(url, "[\"path\", \"user\"]"));
    block_on(play(&hosts, async |n| {
        let user = format!("user{n}");
        let flood = Flood::begin(&hosts, &user, "full");
        flood.has_served(OF_PATH).await;
        let others = at_once(&hosts, OF_PATH as usize, &user, "other").await;
        let more = at_once(&hosts, 6, &user, "third").await;
        let full = flood.end().await;
        all_served(&others)?;
        let is_true = |outcome: &Outcome| {
            matches!(outcome, Outcome::Refused { retry_us: Some(80_000_000..=180_000_000) })
        };
        match more.iter().all(is_true) && full == OF_PATH {
            true => Ok(()),
            false => Err(format!("{full} of the full path; the plan has one unit in 90 s: {more:?}")),
        }
    }));
}

#[test]
fn full_paths_cost_others_nothing_on_a_cluster() {
    let cluster = RedisCluster::new();
    a_full_path_costs_other_paths_nothing(&cluster.url());
}

#[test]
fn full_paths_cost_others_nothing_on_one_server() {
    let server = Redis::single(Options::default());
    a_full_path_costs_other_paths_nothing(&server.url());
}

#[test]
fn users_without_units_cost_a_common_path_nothing() {
    let cluster = RedisCluster::new();
    let hosts = hosts(3, &policy(&cluster.url(), "[\"path\"]"));
    block_on(play(&hosts, async |n| {
        let (spent, other) = (format!("spent{n}"), format!("other{n}"));
        for full in ["one", "two"] {
            all_served(&at_once(&hosts, OF_PATH as usize, &spent, &format!("{full}{n}")).await)?;
        }
        let common = format!("common{n}");
        let flood = Flood::begin(&hosts, &spent, &common);
        let others = at_once(&hosts, OF_PATH as usize, &other, &common).await;
        let served = flood.end().await;
        all_served(&others)?;
        if served == 0 { Ok(()) } else { Err(format!("{served} of a user who has none left")) }
    }));
}
