//! This host's part in the cluster: what it tells the store, and what becomes of the answers.
//!
//! ```text
//! every tick:  counters -> leases -> kernel;  leases -> lease batch -> store -> answers -> leases -> kernel
//! ```
//! The host is locked on both sides of the conversation and never during it: nobody waits for the store.

pub(super) mod blocks;
pub(super) mod driver;
mod owner;
mod panicked;

use std::{collections::BTreeSet, time::Instant};

use ratelimit_common::{
    abi::{Lease, LimitSet, lease::lease_place},
    limit::{gcra, rate::Rate},
};

use super::{enforcer::EnforcedPolicy, log};
use crate::{
    build::BUILD,
    cluster::{
        blocks::BlockRecord as HeardBlock,
        gossip::{self, Gossip},
        leases::{LeasedLimit, Leases},
        members,
    },
    compile::{self, HostFacts, lists::Prefix},
    control::protocol::{Block, ClusterStatus, Reply},
    dataplane::probe,
    failure::{ExitCode, Failure},
    policy::{ClusterPolicy, Policy, User, WithoutStore, is_leased, terms::Terms},
    store::{
        breaker::Breaker,
        exchange::{Grant, Line, Others, Timing},
        lease_batch::Keys,
        redis::{Call, ServerFacts, StoreError},
        round_trip::RoundTrip,
    },
};

/// For how long a clock that was set is spoken of.
const SAID_FOR_NS: u64 = 3_600 * 1_000_000_000;
/// Being suspended for less than that matters to nobody: leases end a margin before the store writes them off.
const SUSPENDED_NS: u64 = 50_000_000;

/// What the host knows of its cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    policy: ClusterPolicy,
    /// What this start of this host is called in the store.
    id: String,
    keys: Keys,
    pub(super) leases: Leases,
    /// The generation of the policy whose limits are followed.
    follows: Option<u64>,
    breaker: Breaker,
    problem: Option<String>,
    warnings: Vec<String>,
    exchanges: u64,
    lines: u64,
    failures: u64,
    /// As it was measured when the store was last heard.
    round_trip: RoundTrip,
    /// When a loaded store is to hear of this host again.
    batch_due: Instant,
    /// Limits whose books are to be opened anew.
    resets: BTreeSet<String>,
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
    gossip_due: Instant,
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
    fn reckon_with(&mut self, round_trip: RoundTrip) {
        self.round_trip = round_trip;
        self.leases.reckon_with(round_trip.beyond_tick());
    }

    /// What this start of this host is called in the store.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whether the store counts as gone.
    fn is_cut_off(&self) -> bool {
        self.breaker.is_open()
    }

    /// How many times the limit all hosts together can have, at most.
    fn bound(&self) -> u32 {
        match self.policy.without_store() {
            WithoutStore::LastRate if self.is_cut_off() => self.policy.hosts(),
            WithoutStore::Reserve | WithoutStore::LastRate => 1,
        }
    }

    fn bound_in_words(&self) -> String {
        let kept = f64::from(self.policy.reserve().permille()) / 10.0;
        match (self.is_cut_off(), self.policy.without_store()) {
            (false, _) => "burst + rate x time on all hosts together".to_owned(),
            (true, WithoutStore::Reserve) => {
                format!(
                    "burst + rate x time on all hosts together; without the store each host has its part of the {kept} % that are kept back"
                )
            }
            (true, WithoutStore::LastRate) => {
                let hosts = self.policy.hosts();
                format!(
                    "burst + rate x time on each host by itself, {hosts} times the limit at most: without the store each goes on at the rate that it had"
                )
            }
        }
    }

    /// The store's clock was set, or this host stood still for longer than its clock says.
    fn clock_stepped(&mut self, step_ms: i64, now_ns: u64) {
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

    /// What is wrong with the cluster, as sentences.
    fn warnings(&self, now_ns: u64) -> Vec<String> {
        let mut warnings = self.warnings.clone();
        warnings.extend(self.gossip.unheard().map(|why| format!("{why}; limits hold all the same")));
        warnings.extend(self.dispute(now_ns));
        if let Some((step_ms, at_ns)) = self.clock_step
            && now_ns.saturating_sub(at_ns) < SAID_FOR_NS
        {
            let ago = now_ns.saturating_sub(at_ns) / 1_000_000_000;
            warnings.push(format!("{ago} s ago {}", gossip::clock_said(step_ms)));
        }
        warnings
    }

    /// The sentence that hosts have different limits, if they have.
    fn dispute(&self, now_ns: u64) -> Option<String> {
        const NAMED: usize = 3;
        let disputed: Vec<(&str, Others)> = self.leases.disputed(now_ns).collect();
        let one = |(key, others): &(&str, Others)| {
            let whose =
                if *others == Others::SayLess { "another host's, which is less" } else { "this host's" };
            format!("{} ({whose}, is in force)", self.keys.limit_of(key))
        };
        let named: Vec<String> = disputed.iter().take(NAMED).map(one).collect();
        let more = if disputed.len() > NAMED { ", ..." } else { "" };
        (!disputed.is_empty()).then(|| {
            format!(
                "hosts have different limits in their policies, or keep back different parts of them, and the smallest is in force for all; {} of them: \
                 {}{more}; give all hosts the same",
                disputed.len(),
                named.join(", ")
            )
        })
    }

    /// Says once that hosts have different limits, and that they agree again.
    fn speak_of_disputes(&mut self, now_ns: u64) {
        let dispute = self.dispute(now_ns);
        if dispute.is_some() != self.said_disputes {
            self.said_disputes = dispute.is_some();
            log::warning(dispute.unwrap_or_else(|| "hosts have the same limits again".to_owned()));
        }
    }

    /// The cluster as this host sees it, for `status`.
    pub(super) fn status(&self, now: Instant, now_ns: u64) -> ClusterStatus {
        let totals = self.leases.totals(now_ns);
        ClusterStatus {
            store: self.policy.redis().to_string(),
            store_up: self.problem.is_none(),
            problem: self.problem.clone(),
            failing_seconds: self.breaker.failing_for(now).map(|time| time.as_secs()),
            host: self.id.clone(),
            limits: totals.limits,
            leases: totals.held,
            lease_units: totals.units,
            exchanges: self.exchanges,
            lines: self.lines,
            failures: self.failures,
            given_up: self.breaker.opened(),
            round_trip_us: self.round_trip.last().as_micros() as u64,
            hosts_seen: self.gossip.members().len() as u64,
            changes_waiting: self.gossip.waiting() as u64,
            bound: self.bound_in_words(),
            bound_times_limit: self.bound(),
            limits_disputed: self.leases.disputed(now_ns).count() as u64,
            is_heard: self.gossip.unheard().is_none(),
            clock_steps: self.clock_steps,
            warnings: self.warnings(now_ns),
        }
    }
}

impl Cluster {
    /// Takes in what packets have spent, and tells them what they may spend.
    pub(super) fn look_after_leases(
        &mut self,
        policy: &Policy,
        enforced: &mut EnforcedPolicy,
    ) -> Result<(), Failure> {
        self.follow_policy(policy, enforced)?;
        let now_ns = probe::now_ns();
        self.wake_up(now_ns);
        let spent = enforced.maps.all_spent(&self.leases.places())?;
        self.leases.observe(now_ns, |place| spent.of(place));
        if self.is_cut_off() && self.policy.without_store() == WithoutStore::LastRate {
            self.leases.go_on(now_ns);
        }
        self.tell_leases(enforced)
    }

    /// Does that, and says what the store is to be told; `None` if nothing.
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
    fn take_answers(
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
        self.reckon_with(round_trip);
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
    fn store_failed(&mut self, batch: LeaseBatch, error: &StoreError) {
        self.resets.extend(batch.resets);
        self.failed(error);
    }

    /// What the servers of the store say of themselves, once they are connected to.
    fn store_connected(&mut self, facts: &[ServerFacts], round_trip: RoundTrip) {
        self.reckon_with(round_trip);
        let warnings: Vec<String> = facts.iter().filter_map(eviction_warning).collect();
        for warning in warnings.iter().filter(|warning| !self.warnings.contains(warning)) {
            log::warning(warning);
        }
        self.warnings = warnings;
        tracing::info!(event = "store", up = true, "connected to the store {}", self.policy.redis());
    }

    /// The hosts of the cluster.
    pub(super) fn reply(&self, now_ns: u64) -> Reply {
        let status = Box::new(self.status(Instant::now(), now_ns));
        let mut hosts = self.gossip.members().to_vec();
        hosts.sort_by(|one, other| one.host.cmp(&other.host));
        Reply::Cluster { status, hosts }
    }

    /// Lets go of every lease, so that others can have it.
    fn give_up_leases(&mut self, enforced: &mut EnforcedPolicy) -> Result<(), Failure> {
        self.leases.give_up(probe::now_ns());
        self.batch_due = Instant::now();
        self.tell_leases(enforced)
    }

    /// Has the store open the books of a user anew.
    pub(super) fn reset_in_store(&mut self, user: &User) {
        let keys = named(user.network()).map(|(name, _)| self.keys.record(user.name(), &name));
        self.resets.extend(keys);
    }

    /// Follows the limits of the policy in force.
    fn follow_policy(&mut self, policy: &Policy, enforced: &mut EnforcedPolicy) -> Result<(), Failure> {
        let generation = enforced.desired.policy.generation;
        if self.follows == Some(generation) {
            return Ok(());
        }
        let mut limits = Vec::new();
        for user in policy.users().iter() {
            let Some(index) = enforced.desired.names.users.of(user.name()) else { continue };
            let Some(set) = enforced.desired.user_set(index as u32) else { continue };
            limits.extend(self.leased_limits(user, index as u32, set, &enforced.facts));
        }
        let places: Vec<u32> = limits.iter().map(|limit| limit.place).collect();
        let spent = enforced.maps.all_spent(&places)?;
        let gone = self.leases.follow(limits, probe::now_ns(), |place| spent.of(place));
        self.follows = Some(generation);
        for place in gone {
            enforced.maps.set_lease(place, Lease::NONE)?;
        }
        Ok(())
    }

    /// The limits of a user that hold on all hosts together.
    fn leased_limits(&self, user: &User, index: u32, set: &LimitSet, facts: &HostFacts) -> Vec<LeasedLimit> {
        let rates = user.network();
        let places = compile::places(rates, set, facts.headroom, facts.reserve);
        let leased = |((name, rate), place): ((String, &Rate), Option<usize>)| {
            let place = place.filter(|_| is_leased(rate))?;
            Some(LeasedLimit {
                key: self.keys.record(user.name(), &name),
                place: lease_place(index, place as u32),
                // Checked when the policy was read.
                terms: Terms::of(rate, self.policy.reserve()).ok()?,
            })
        };
        named(rates).zip(places).filter_map(leased).collect()
    }

    /// Tells the kernel what has changed.
    fn tell_leases(&mut self, enforced: &mut EnforcedPolicy) -> Result<(), Failure> {
        for (place, lease) in self.leases.news() {
            let expires_q8 = gcra::time_q8(lease.expires_ns);
            enforced
                .maps
                .set_lease(place, Lease { ceiling: lease.ceiling, expires_q8, enough: lease.enough })?;
        }
        Ok(())
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
        // Who is there is asked for once a second.
        Some(self.gossip.call(&self.keys, &facts, self.gossips % 4 == 1, now_ns))
    }

    /// Blocks for all hosts that do not hold here.
    pub(super) fn refused(&self, now_ns: u64) -> Vec<Block> {
        let refused = |(prefix, block, why): (&Prefix, &_, Option<&str>)| {
            let block: &HeardBlock = block;
            let left =
                block.host_block.until_ns.map(|until| until.saturating_sub(now_ns).div_ceil(1_000_000_000));
            Some(Block {
                prefix: prefix.to_string(),
                seconds_left: left,
                reason: Some(block.host_block.reason.clone()).filter(|reason| !reason.is_empty()),
                origin: Some(block.origin.clone()),
                refused: Some(why?.to_owned()),
            })
        };
        self.gossip.blocks(now_ns).filter_map(refused).collect()
    }

    /// The host that blocks a prefix on all of them.
    pub(super) fn block_of<'c>(&'c self, prefix: &Prefix, now_ns: u64) -> Option<&'c str> {
        self.gossip.block(prefix, now_ns).map(|block| block.origin.as_str())
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

/// What each limit of a user is called in the store: what it counts, and a number if that is not the first of its kind.
fn named(rates: &[Rate]) -> impl Iterator<Item = (String, &Rate)> {
    rates.iter().enumerate().map(|(at, rate)| {
        let before = rates[..at].iter().filter(|other| other.meter == rate.meter).count();
        let number = if before == 0 { String::new() } else { format!("-{}", before + 1) };
        (format!("{}{number}", rate.meter.name()), rate)
    })
}

/// A store that forgets what it was told makes limits wider than they are.
fn eviction_warning(facts: &ServerFacts) -> Option<String> {
    let evicts = facts.evicts_all_keys() || facts.evicts_volatile_keys();
    (evicts && facts.maxmemory > 0).then(|| {
        format!(
            "{} has maxmemory-policy {}: when its memory is full it forgets what users have spent, and they can spend it again; \
             set maxmemory-policy noeviction",
            facts.at, facts.maxmemory_policy
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cluster::gossip::Saved, config};

    #[test]
    fn books_that_were_to_be_opened_anew_still_are_when_the_store_cannot_be_asked() {
        let text = "[source]\nlimits = [\"1/s\"]\n[cluster]\nredis = \"redis://127.0.0.1:1\"\n[[user]]\nname = \"acme\"\n\
                    sources = [\"192.0.2.0/24\"]\nnetwork = [\"10 packets/s\", \"100 packets/min\"]\n";
        let policy = config::parse(text, "test").unwrap().policy;
        let gossip = Gossip::new("a", 1, &Saved::default(), [], 0).unwrap();
        let mut cluster = Cluster::new(policy.cluster().unwrap().clone(), "a", gossip).unwrap();
        cluster.reset_in_store(policy.users().iter().next().unwrap());
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
