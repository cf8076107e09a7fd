//! This host's part in the cluster: what it tells the store, and what becomes of the answers.
//!
//! ```text
//! every tick:  counters -> leases -> kernel;  leases -> lease batch -> store -> answers -> leases -> kernel
//! ```
//! The host is locked on both sides of the conversation and never during it: nobody waits for the store.

mod leased_limits;
pub(super) mod owner;
pub(super) mod panicked;
mod report;

use std::{collections::BTreeSet, time::Instant};

use super::in_force::enforcer::EnforcedPolicy;
use crate::{
    build::BUILD,
    cluster::{
        gossip::{self, Gossip},
        leases::Leases,
        members,
    },
    dataplane::probe,
    failure::{ExitCode, Failure},
    log,
    policy::{ClusterPolicy, Policy},
    store::{
        breaker::Breaker,
        exchange::{Grant, Line, Timing},
        lease_batch::Keys,
        redis::{Call, ServerFacts, StoreError},
        round_trip::RoundTrip,
    },
};

/// Being suspended for less than that matters to nobody: leases end a margin before the store writes them off.
const SUSPENDED_NS: u64 = 50_000_000;

/// What the host knows of its cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) policy: ClusterPolicy,
    /// What this start of this host is called in the store.
    id: String,
    keys: Keys,
    pub(super) leases: Leases,
    /// The generation of the policy whose limits are followed.
    follows: Option<u64>,
    breaker: Breaker,
    pub(super) problem: Option<String>,
    warnings: Vec<String>,
    exchanges: u64,
    lines: u64,
    failures: u64,
    /// As it was measured when the store was last heard.
    round_trip: RoundTrip,
    /// When a loaded store is to hear of this host again.
    batch_due: Instant,
    /// Keys of limits whose store record is to be reset.
    pub(super) resets: BTreeSet<String>,
    /// For how long this host was suspended when last looked.
    suspended_ns: u64,
    /// How often the store's clock was set back, and how far and when it was last set.
    clock_steps: u64,
    clock_step: Option<(i64, u64)>,
    /// Whether it was said that hosts have different limits.
    said_disputes: bool,
    /// Blocks for all hosts, and the hosts.
    pub(super) gossip: Gossip,
    /// When it is time to hear of them again, and how often that has been.
    pub(super) gossip_due: Instant,
    gossips: u64,
}

/// A lease batch to the store, and when it was sent by the kernel's clock.
#[derive(Debug)]
pub(super) struct LeaseBatch {
    pub(super) lines: Vec<Line>,
    pub(super) sent_ns: u64,
    /// For how long this host had been suspended by then.
    suspended_ns: u64,
    pub(super) resets: BTreeSet<String>,
    pub(super) gossip: Option<Call<'static>>,
}

impl Cluster {
    /// Why an order for all hosts is refused where there is one.
    pub(super) fn none(code: ExitCode) -> Failure {
        Failure::new(code, "this host is in no cluster; give it one with [cluster] redis, or run --redis")
    }

    /// A host of that name that has told the store nothing yet.
    pub(super) fn new(policy: ClusterPolicy, name: &str, gossip: Gossip) -> Result<Self, Failure> {
        let timing = Timing::new(policy.lease(), policy.tick());
        let [epoch, _] = probe::random_secret()?;
        Ok(Self {
            gossip,
            gossip_due: Instant::now(),
            gossips: 0,
            id: format!("{name}:{epoch:016x}"),
            keys: Keys::new(policy.name()),
            leases: Leases::new(timing, policy.tick().as_nanos() as u64),
            follows: None,
            breaker: Breaker::default(),
            problem: Some("the store has not answered yet".to_owned()),
            warnings: Vec::new(),
            exchanges: 0,
            lines: 0,
            failures: 0,
            round_trip: RoundTrip::new(policy.tick(), policy.lease()),
            batch_due: Instant::now(),
            resets: BTreeSet::new(),
            suspended_ns: probe::suspended_ns(),
            clock_steps: 0,
            clock_step: None,
            said_disputes: false,
            policy,
        })
    }

    /// What is held follows how long the store takes to answer, and how often it is asked.
    fn set_round_trip(&mut self, round_trip: RoundTrip) {
        self.round_trip = round_trip;
        self.leases.set_round_trip(round_trip.beyond_tick());
    }

    /// What this start of this host is called in the store.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whether the store counts as gone.
    fn is_cut_off(&self) -> bool {
        self.breaker.is_open()
    }

    /// The store's clock was set, or this host stood still for longer than its clock says.
    pub(super) fn clock_stepped(&mut self, step_ms: i64, now_ns: u64) {
        self.clock_step = Some((step_ms, now_ns));
        if step_ms < 0 {
            self.clock_steps += 1;
        } else {
            // What is held may have been written off.
            self.leases.lapse(now_ns);
        }
    }

    /// What is held is void if this host was suspended: its clock stood still, and the store's did not.
    fn wake_up(&mut self, now_ns: u64) {
        let suspended_ns = probe::suspended_ns();
        if suspended_ns > self.suspended_ns.saturating_add(SUSPENDED_NS) {
            let seconds = (suspended_ns - self.suspended_ns) as f64 / 1e9;
            log::warning(format!(
                "this host was suspended for {seconds:.1} s; what it held of limits is given up"
            ));
            self.leases.lapse(now_ns);
        }
        self.suspended_ns = self.suspended_ns.max(suspended_ns);
    }

    /// Looks after leases, and says what the store is to be told; `None` if nothing.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        policy: &Policy,
        enforced: &mut EnforcedPolicy,
    ) -> Result<Option<LeaseBatch>, Failure> {
        self.look_after_leases(policy, enforced)?;
        let now_ns = probe::now_ns();
        if !self.breaker.allows(now) || now < self.batch_due {
            return Ok(None);
        }
        let lines = self.leases.batch(now_ns);
        let resets = std::mem::take(&mut self.resets);
        let gossip = self.gossip_call(now, now_ns);
        if lines.is_empty() && resets.is_empty() && gossip.is_none() {
            return Ok(None);
        }
        // A tick that is not stretched is waited for by whoever calls this.
        self.batch_due = now + self.round_trip.stretched_by();
        let suspended_ns = self.suspended_ns;
        Ok(Some(LeaseBatch { lines, sent_ns: probe::now_ns(), suspended_ns, resets, gossip }))
    }

    /// Takes in what the store answered to each line. `failure` is what went wrong with the rest of the lease batch.
    pub(super) fn take_answers(
        &mut self,
        batch: &LeaseBatch,
        answers: Vec<Result<Grant, StoreError>>,
        mut failure: Option<StoreError>,
        round_trip: RoundTrip,
        enforced: &mut EnforcedPolicy,
    ) -> Result<(), Failure> {
        let now_ns = probe::now_ns();
        let mut answered = false;
        // What was suspended meanwhile has passed for the store.
        let suspended_ns = probe::suspended_ns().saturating_sub(batch.suspended_ns);
        let sent_ns = batch.sent_ns.saturating_sub(suspended_ns);
        for (line, answer) in batch.lines.iter().zip(answers) {
            match answer {
                Ok(grant) => {
                    answered = true;
                    self.leases.answer(&line.key, &grant, sent_ns, now_ns);
                }
                Err(error) => failure = Some(error),
            }
        }
        if answered || failure.is_none() {
            self.exchanges += 1;
            self.lines += batch.lines.len() as u64;
        }
        self.set_round_trip(round_trip);
        self.speak_of_disputes(now_ns);
        match failure {
            // In a Redis Cluster some masters may be there and others not. Users of those that are go on as before.
            Some(error) if answered => self.answered_in_part(&error),
            Some(error) => self.failed(&error),
            None => self.answered(),
        }
        self.tell_leases(enforced)
    }

    /// The store could not be asked at all.
    pub(super) fn store_failed(&mut self, batch: LeaseBatch, error: &StoreError) {
        self.resets.extend(batch.resets);
        self.failed(error);
    }

    /// Servers of the store were connected to anew.
    pub(super) fn store_connected(&mut self, round_trip: RoundTrip) {
        self.set_round_trip(round_trip);
        tracing::info!(event = "store", up = true, "connected to the store {}", self.policy.redis());
    }

    /// What the servers of the store say of themselves by now. The store worker writes it to the log.
    pub(super) fn store_described(&mut self, facts: &[ServerFacts]) {
        self.warnings = facts.iter().filter_map(ServerFacts::eviction_warning).collect();
    }

    /// The call that tells and hears of blocks and hosts, if it is time.
    fn gossip_call(&mut self, now: Instant, now_ns: u64) -> Option<Call<'static>> {
        if now < self.gossip_due {
            return None;
        }
        self.gossip_due = now + gossip::TICK;
        self.gossips += 1;
        let facts = members::Facts {
            program: BUILD.to_owned(),
            round_trip_us: self.round_trip.last().as_micros() as u64,
            leases: self.leases.totals(now_ns).held,
            ..members::Facts::default()
        };
        // The members of the cluster are asked for once a second.
        Some(self.gossip.call(&self.keys, &facts, self.gossips % 4 == 1, now_ns))
    }

    fn answered(&mut self) {
        if let Some(time) = self.breaker.failing_for(Instant::now()).filter(|_| self.breaker.is_open()) {
            tracing::info!(
                event = "store",
                up = true,
                "the store answers again after {:.1} s",
                time.as_secs_f64()
            );
        }
        self.breaker.succeeded();
        self.problem = None;
    }

    fn answered_in_part(&mut self, error: &StoreError) {
        self.breaker.succeeded();
        self.failures += 1;
        let problem = error.to_string();
        if self.problem.as_ref() != Some(&problem) {
            log::warning(format!("a part of the store does not answer: {problem}"));
        }
        self.problem = Some(problem);
    }

    fn failed(&mut self, error: &StoreError) {
        let was_open = self.breaker.is_open();
        self.failures += 1;
        self.breaker.failed(Instant::now());
        self.problem = Some(error.to_string());
        if self.breaker.is_open() && !was_open {
            tracing::error!(event = "store", up = false, problem = %error, "the store does not answer: {error}; in force: {}", self.bound_in_words());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cluster::gossip::Saved, config};

    #[test]
    fn records_that_were_to_be_reset_still_are_when_the_store_cannot_be_asked() {
        let text = "[source]\nlimits = [\"1/s\"]\n[cluster]\nredis = \"redis://127.0.0.1:1\"\n[[user]]\nname = \"acme\"\n\
                    sources = [\"192.0.2.0/24\"]\nnetwork = [\"10 packets/s\", \"100 packets/min\"]\n";
        let policy = config::parse(text, "test").unwrap().policy;
        let gossip = Gossip::new("a", 1, &Saved::default(), [], 0).unwrap();
        let mut cluster = Cluster::new(policy.cluster().unwrap().clone(), "a", gossip).unwrap();
        let why = cluster.reset_in_store(policy.users().iter().next().unwrap());
        assert_eq!(why, Some("the store has not answered yet"));
        let wanted = cluster.resets.clone();
        assert_eq!(wanted.len(), 2, "one for each limit");
        let batch = |resets| LeaseBatch { lines: vec![], sent_ns: 0, suspended_ns: 0, resets, gossip: None };
        let lost = batch(std::mem::take(&mut cluster.resets));
        // Somebody resets something else meanwhile.
        cluster.resets.insert("another".into());
        let error = StoreError::Unreachable { at: "127.0.0.1:1".into(), why: "refused".into() };
        cluster.store_failed(lost, &error);
        assert!(cluster.resets.is_superset(&wanted) && cluster.resets.contains("another"));
    }
}
