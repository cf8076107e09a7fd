//! This host's part in the cluster: makes lease batches and takes in the answers of the store.
//!
//! ```text
//! every tick:  counters -> leases -> kernel;  leases -> lease batch -> store -> answers -> leases -> kernel
//! ```
//! The host is locked before and after an exchange but never during it: nobody waits for the store.

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

/// A suspension shorter than this does no harm: leases end a margin before the store writes them off.
const SUSPENDED_NS: u64 = 50_000_000;

/// The host's state of its cluster: leases, gossip, and the conversation with the store.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) policy: ClusterPolicy,
    /// The name of this start of this host in the store.
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
    /// The round trip as it was last measured.
    round_trip: RoundTrip,
    /// When the next lease batch is due. A loaded store stretches the tick.
    batch_due: Instant,
    /// Keys of limits whose store record is to be reset.
    pub(super) resets: BTreeSet<String>,
    /// Nanoseconds that this host was suspended since its boot, at the last look.
    suspended_ns: u64,
    /// How often the store's clock was set back; `clock_step` is by how many milliseconds and when it was last set.
    clock_steps: u64,
    clock_step: Option<(i64, u64)>,
    /// Whether the log has said that hosts have different limits.
    said_disputes: bool,
    /// Blocks for all hosts, and the hosts.
    pub(super) gossip: Gossip,
    /// When the next call of gossip is due; `gossips` is how many there were.
    pub(super) gossip_due: Instant,
    gossips: u64,
}

/// A lease batch, and the time of the kernel's clock when it was sent.
#[derive(Debug)]
pub(super) struct LeaseBatch {
    pub(super) lines: Vec<Line>,
    pub(super) sent_ns: u64,
    /// Nanoseconds that this host had been suspended by then.
    suspended_ns: u64,
    pub(super) resets: BTreeSet<String>,
    pub(super) gossip: Option<Call<'static>>,
}

impl Cluster {
    /// Returns the refusal of an order for all hosts on a host without a cluster.
    pub(super) fn none(code: ExitCode) -> Failure {
        Failure::new(code, "this host is in no cluster; give it one with [cluster] redis, or run --redis")
    }

    /// Makes a host with this name that has told the store nothing yet.
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

    /// Sets the round trip, which decides how much this host holds and when leases are renewed.
    fn set_round_trip(&mut self, round_trip: RoundTrip) {
        self.round_trip = round_trip;
        self.leases.set_round_trip(round_trip.beyond_tick());
    }

    /// The name of this start of this host in the store.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whether the breaker counts the store as gone.
    fn is_cut_off(&self) -> bool {
        self.breaker.is_open()
    }

    /// Called when the store's clock was set, or when this host stood still for longer than its clock says.
    pub(super) fn clock_stepped(&mut self, step_ms: i64, now_ns: u64) {
        self.clock_step = Some((step_ms, now_ns));
        if step_ms < 0 {
            self.clock_steps += 1;
        } else {
            // The store may have written off this host's leases.
            self.leases.lapse(now_ns);
        }
    }

    /// Ends all leases if this host was suspended: its clock stood still, and the store's did not.
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

    /// Looks after leases, and returns the lease batch for the store; `None` if there is nothing to tell.
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
        // The caller waits for a normal tick; only the stretch is added here.
        self.batch_due = now + self.round_trip.stretched_by();
        let suspended_ns = self.suspended_ns;
        Ok(Some(LeaseBatch { lines, sent_ns: probe::now_ns(), suspended_ns, resets, gossip }))
    }

    /// Takes in the store's answers to the lines of a lease batch. `failure` is an error of its other parts.
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
        // Time in which this host was suspended has passed for the store.
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
            // In a Redis Cluster some masters may answer and others not. Users whose records are on a master that answers go on as before.
            Some(error) if answered => self.answered_in_part(&error),
            Some(error) => self.failed(&error),
            None => self.answered(),
        }
        self.tell_leases(enforced)
    }

    /// Called when the store could not be asked at all.
    pub(super) fn store_failed(&mut self, batch: LeaseBatch, error: &StoreError) {
        self.resets.extend(batch.resets);
        self.failed(error);
    }

    /// Called when servers of the store were connected to anew.
    pub(super) fn store_connected(&mut self, round_trip: RoundTrip) {
        self.set_round_trip(round_trip);
        tracing::info!(event = "store", up = true, "connected to the store {}", self.policy.redis());
    }

    /// Takes in the facts that the servers of the store tell of themselves. The store worker logs them.
    pub(super) fn store_described(&mut self, facts: &[ServerFacts]) {
        self.warnings = facts.iter().filter_map(ServerFacts::eviction_warning).collect();
    }

    /// Returns the call of gossip, if it is due.
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
        // Another record is to be reset meanwhile.
        cluster.resets.insert("another".into());
        let error = StoreError::Unreachable { at: "127.0.0.1:1".into(), why: "refused".into() };
        cluster.store_failed(lost, &error);
        assert!(cluster.resets.is_superset(&wanted) && cluster.resets.contains("another"));
    }
}
