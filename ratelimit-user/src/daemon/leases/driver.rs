//! Carries what leases, blocks and members have to say to the store worker, and back: one lease batch at a time, each with a deadline.

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

/// A lease that was let go can be given back when no packet has it in mind any more.
const SETTLES: Duration = Duration::from_millis(30);

/// Time from a mistake to the next attempt.
const ANEW_AFTER: Duration = Duration::from_millis(200);

/// Lease batches that it takes at most: one may repeat what was being said, and bring something more to give back.
const GOODBYES: usize = 3;

/// Carries lease batches to the store worker, and answers to the host.
#[derive(Debug)]
struct LeaseDriver {
    store: FrontStore,
    tick: Duration,
    lease: Duration,
    /// The servers that were greeted last.
    greeted: Option<u64>,
    /// What servers have last said of themselves.
    described: Arc<[ServerFacts]>,
    /// Why a store record could last not be reset.
    not_reset: Option<String>,
}

/// Exchanges lease batches with the store, every tick, until the daemon ends. A mistake in the program must not end that.
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
        // An answer that took longer than a tick is not waited for a second time.
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
                    // What packets spend is looked at however long the store takes.
                    is_late = true;
                    if let Err(failure) = with_cluster(&mut daemon.host(), Cluster::look_after_leases) {
                        log::warning(format!("leases were not looked after: {failure}"));
                    }
                }
            }
        }
    }
}

/// Gives back what is held, so that others need not wait until it runs out.
pub(in crate::daemon) async fn say_goodbye(daemon: &HostCell) {
    let Some(driver) = LeaseDriver::of(daemon) else { return };
    // After that there is nothing left to give back.
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

/// What the store is to be told now; `None` if nothing.
fn next_batch(host: &mut Host) -> Result<Option<LeaseBatch>, Failure> {
    let mut batch = None;
    with_cluster(host, |cluster, policy, enforced| {
        batch = cluster.tick(Instant::now(), policy, enforced)?;
        Ok(())
    })?;
    Ok(batch)
}

/// Takes in what the store answered to a lease batch.
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

    /// Sends a lease batch and hands over what came of it.
    async fn send(&mut self, daemon: &HostCell, batch: LeaseBatch) {
        if let Err(error) = self.meet(daemon).await {
            if let Some(cluster) = &mut daemon.host().cluster {
                cluster.store_failed(batch, &error);
            }
            return;
        }
        let failed = self.reset(&batch.resets).await;
        if let Some(cluster) = &mut daemon.host().cluster {
            // Tried again with the next lease batch.
            cluster.resets.extend(failed);
        }
        let deadline = self.store.round_trip().deadline();
        let (answers, gossip) = self.ask(daemon, &batch.lines, batch.gossip.as_ref(), deadline).await;
        let round_trip = self.store.round_trip();
        if let Err(failure) = take_answers(&mut daemon.host(), &batch, answers, gossip, round_trip) {
            log::warning(format!("leases were not renewed: {failure}"));
        }
    }

    /// Sees to it that servers which were connected to anew are looked at and greeted.
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
        // Every server hears of this cluster at once: what it has not known for long it does not give out.
        let group = |key: &str| is_sharded.then(|| slot(key.as_bytes()));
        let greeting = daemon.host().cluster.as_mut().map(|cluster| {
            cluster.store_connected(round_trip);
            cluster.leases.greeting(group)
        });
        let (answers, _) =
            self.ask(daemon, &greeting.unwrap_or_default(), None, round_trip.connecting()).await;
        // A part of the store may be away.
        match answers.iter().find_map(|answer| answer.as_ref().err()) {
            Some(error) if answers.iter().all(Result::is_err) => Err(error.clone()),
            _ => {
                self.greeted = Some(met.number);
                Ok(())
            }
        }
    }

    /// One answer for each line, and one to what there is to say about blocks and hosts.
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
        // It is tried again with every lease batch, and said once.
        if let Some(problem) = &problem
            && self.not_reset.as_ref() != Some(problem)
        {
            log::warning(format!("a user was not reset in the store: {problem}; it is tried again"));
        }
        self.not_reset = problem;
        failed
    }
}
