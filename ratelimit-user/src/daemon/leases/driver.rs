//! Carries lease batches, with calls of gossip, to the store worker and the answers back: one batch at a time, each with a deadline.

use std::{
    collections::BTreeSet,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use tokio::time::MissedTickBehavior;

use crate::{
    daemon::{
        cluster::{Cluster, LeaseBatch, panicked::words},
        host::{Host, HostCell},
        in_force::enforcer::EnforcedPolicy,
        line::store::FrontStore,
    },
    dataplane::probe,
    failure::Failure,
    log,
    policy::Policy,
    store::{
        exchange::{Grant, Line},
        redis::{Call, ServerFacts, StoreError, Value, slot},
        round_trip::RoundTrip,
    },
};

/// How long after a lease was given up its units can be returned: by then no packet can be spending from it.
const SETTLES: Duration = Duration::from_millis(30);

/// The pause between a panic and the next attempt.
const ANEW_AFTER: Duration = Duration::from_millis(200);

/// The most lease batches for a goodbye: the first may repeat unanswered entries, so that more is left to give back.
const GOODBYES: usize = 3;

/// Carries lease batches to the store worker, and answers to the host.
#[derive(Debug)]
struct LeaseDriver {
    store: FrontStore,
    tick: Duration,
    lease: Duration,
    /// The number of the connections whose servers were greeted last.
    greeted: Option<u64>,
    /// The facts that the servers last told of themselves.
    described: Arc<[ServerFacts]>,
    /// Why a store record could not be reset the last time, if so.
    not_reset: Option<String>,
}

/// Exchanges lease batches with the store, every tick, until the daemon ends. A panic must not end this.
pub(super) async fn converse(daemon: Arc<HostCell>) {
    while let Err(panic) = AssertUnwindSafe(talk(&daemon)).catch_unwind().await {
        log::error(format!(
            "this is a mistake in the program, please report it: {}; the conversation with the store begins anew",
            words(&*panic)
        ));
        tokio::time::sleep(ANEW_AFTER).await;
    }
}

async fn talk(daemon: &HostCell) {
    let Some(mut driver) = LeaseDriver::of(daemon) else { return };
    let mut tick = tokio::time::interval(driver.tick);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_late = false;
    loop {
        // After an answer that took longer than a tick, the next batch follows at once.
        if !std::mem::take(&mut is_late) {
            tick.tick().await;
        }
        let batch = match next_batch(&mut daemon.host()) {
            Ok(Some(batch)) => batch,
            Ok(None) => continue,
            Err(failure) => {
                log::warning(format!("leases were not renewed: {failure}"));
                continue;
            }
        };
        let mut sending = pin!(driver.send(daemon, batch));
        loop {
            tokio::select! {
                biased;
                () = &mut sending => break,
                _ = tick.tick() => {
                    // Spent units are read every tick, however long the store takes.
                    is_late = true;
                    if let Err(failure) = with_cluster(&mut daemon.host(), Cluster::look_after_leases) {
                        log::warning(format!("leases were not looked after: {failure}"));
                    }
                }
            }
        }
    }
}

/// Gives back all leases, so that other hosts need not wait until they run out.
pub(in crate::daemon) async fn say_goodbye(daemon: &HostCell) {
    let Some(driver) = LeaseDriver::of(daemon) else { return };
    // After the time of a lease all leases have run out, so there is nothing left to give back.
    let _over = tokio::time::timeout(driver.lease, give_back(daemon, driver)).await;
}

async fn give_back(daemon: &HostCell, mut driver: LeaseDriver) {
    for _ in 0..GOODBYES {
        if with_cluster(&mut daemon.host(), |cluster, _, enforced| cluster.give_up_leases(enforced)).is_err()
        {
            return;
        }
        tokio::time::sleep(SETTLES).await;
        let batch = next_batch(&mut daemon.host());
        let Ok(Some(batch)) = batch else { return };
        if batch.lines.is_empty() {
            return;
        }
        driver.send(daemon, batch).await;
    }
}

/// Works with the host's part in the cluster, if it has one.
fn with_cluster(
    host: &mut Host,
    work: impl FnOnce(&mut Cluster, &Policy, &mut EnforcedPolicy) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Host { in_force, enforced, cluster, .. } = host;
    cluster.as_mut().map_or(Ok(()), |cluster| work(cluster, in_force.policy(), enforced))
}

/// Returns the next lease batch; `None` if there is nothing to tell the store.
fn next_batch(host: &mut Host) -> Result<Option<LeaseBatch>, Failure> {
    let mut batch = None;
    with_cluster(host, |cluster, policy, enforced| {
        batch = cluster.tick(Instant::now(), policy, enforced)?;
        Ok(())
    })?;
    Ok(batch)
}

/// Takes in the store's answers to a lease batch.
fn take_answers(
    host: &mut Host,
    batch: &LeaseBatch,
    answers: Vec<Result<Grant, StoreError>>,
    gossip: Option<Result<Value, StoreError>>,
    round_trip: RoundTrip,
) -> Result<(), Failure> {
    let mut failure = None;
    if let Some(answer) = gossip {
        failure = answer.and_then(|answer| host.list_editor().hear_gossip(&answer, probe::now_ns())).err();
    }
    with_cluster(host, |cluster, _, enforced| {
        cluster.take_answers(batch, answers, failure, round_trip, enforced)
    })
}

impl LeaseDriver {
    fn of(daemon: &HostCell) -> Option<Self> {
        let host = daemon.host();
        let cluster = host.cluster.as_ref()?;
        Some(Self {
            store: host.requests.store(host.policy())?,
            tick: cluster.policy.tick(),
            lease: cluster.policy.lease(),
            greeted: None,
            described: Arc::default(),
            not_reset: None,
        })
    }

    /// Sends a lease batch, and gives the answers to the host.
    async fn send(&mut self, daemon: &HostCell, batch: LeaseBatch) {
        if let Err(error) = self.meet(daemon).await {
            if let Some(cluster) = &mut daemon.host().cluster {
                cluster.store_failed(batch, &error);
            }
            return;
        }
        let failed = self.reset(&batch.resets).await;
        if let Some(cluster) = &mut daemon.host().cluster {
            // These resets are tried again with the next lease batch.
            cluster.resets.extend(failed);
        }
        let deadline = self.store.round_trip().deadline();
        let (answers, gossip) = self.ask(daemon, &batch.lines, batch.gossip.as_ref(), deadline).await;
        let round_trip = self.store.round_trip();
        if let Err(failure) = take_answers(&mut daemon.host(), &batch, answers, gossip, round_trip) {
            log::warning(format!("leases were not renewed: {failure}"));
        }
    }

    /// Greets servers that were connected to anew, and notes their facts.
    async fn meet(&mut self, daemon: &HostCell) -> Result<(), StoreError> {
        let met = self.store.meet().await?;
        if self.described != met.servers {
            if let Some(cluster) = &mut daemon.host().cluster {
                cluster.store_described(&met.servers);
            }
            self.described = Arc::clone(&met.servers);
        }
        if self.greeted == Some(met.number) {
            return Ok(());
        }
        let round_trip = self.store.round_trip();
        let is_sharded = self.store.is_sharded();
        // Every server hears of this cluster at once, because a server leases nothing out of records that it has not known for long.
        let group = |key: &str| is_sharded.then(|| slot(key.as_bytes()));
        let greeting = daemon.host().cluster.as_mut().map(|cluster| {
            cluster.store_connected(round_trip);
            cluster.leases.greeting(group)
        });
        let (answers, _) =
            self.ask(daemon, &greeting.unwrap_or_default(), None, round_trip.connecting()).await;
        // Errors of some servers are accepted: a part of the store may be away.
        match answers.iter().find_map(|answer| answer.as_ref().err()) {
            Some(error) if answers.iter().all(Result::is_err) => Err(error.clone()),
            _ => {
                self.greeted = Some(met.number);
                Ok(())
            }
        }
    }

    /// Asks the store. Returns one answer for each line, and the answer to the call of gossip.
    async fn ask(
        &self,
        daemon: &HostCell,
        lines: &[Line],
        gossip: Option<&Call<'static>>,
        deadline: Duration,
    ) -> (Vec<Result<Grant, StoreError>>, Option<Result<Value, StoreError>>) {
        let timing = daemon.host().cluster.as_ref().map(|cluster| *cluster.leases.timing());
        let Some(timing) = timing else { return (Vec::new(), None) };
        self.store.exchange(lines, gossip, timing, deadline).await
    }

    /// Resets the store records of these limits, and returns the keys whose record could not be reset.
    async fn reset(&mut self, keys: &BTreeSet<String>) -> Vec<String> {
        if keys.is_empty() {
            return Vec::new();
        }
        let answers = self.store.reset(keys.iter().cloned().collect()).await;
        let mut failed = Vec::new();
        let mut problem = None;
        for (key, answer) in keys.iter().zip(answers) {
            if let Err(error) = answer {
                failed.push(key.clone());
                problem = Some(error.to_string());
            }
        }
        // A failed reset is tried again with every lease batch, but logged once.
        if let Some(problem) = &problem
            && self.not_reset.as_ref() != Some(problem)
        {
            log::warning(format!("a user was not reset in the store: {problem}; it is tried again"));
        }
        self.not_reset = problem;
        failed
    }
}
