//! The decision service, which all protocols ask: one engine, one clock, one set of counters. Nothing here knows a protocol.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, RwLock},
};

use tokio::sync::mpsc;

use super::{
    BadRequest, Decision, Engine, Outcome, Request, Rules,
    api_rules::ApiRules,
    asking::{Asking, NotRefunded, NotReset},
    complaints::Complaints,
    counter_keys::{CounterKey, CounterKeys},
    escalation::{Offence, Offenders},
    latency::Latency,
    shared::is_shared,
    throttle::Throttled,
    together::Together,
    turns::{Seat, Turn, Turns},
};
use crate::{
    clock::Clock,
    meter::RequestBucket,
    policy::{DEFAULT_NAME, Listen, Policy, Prefix, address::StoreAddress},
    requests::status::{DecisionCount, QuestionCount, RequestsStatus, ServerCount, StoreProblem},
    store::{redis::StoreError, worker::Store},
};

/// Answers the questions of all protocols.
#[derive(Debug)]
pub struct DecisionService {
    engine: Engine,
    clock: Clock,
    /// The store and this host's leases, if hosts count together.
    together: Option<Together>,
    offenders: Offenders,
    complaints: Complaints,
    /// Turns in queues whose callers have hung up.
    turns: Arc<Turns>,
    latency: Latency,
    access: RwLock<Access>,
    /// Warnings about the listeners for the operator, as sentences.
    warnings: RwLock<Vec<String>>,
}

/// The peers that listeners believe.
#[derive(Debug, Default)]
struct Access {
    trusted_proxies: Vec<Prefix>,
}

impl DecisionService {
    /// Makes a decision service for a policy, without a store.
    pub fn new(policy: &Policy) -> Self {
        Self::with(policy, None)
    }

    /// Makes a decision service that shares limits with other hosts through a store.
    pub fn with(policy: &Policy, store: Option<Store>) -> Self {
        let name = policy.cluster().map_or(DEFAULT_NAME, |cluster| cluster.name());
        let clock = Clock::start();
        let together = store.map(|store| Together::new(store, name, policy.requests().keys, clock));
        let decisions = Self {
            engine: Engine::new(policy, clock.now_us()),
            clock,
            together,
            offenders: Offenders::default(),
            complaints: Complaints::default(),
            turns: Arc::default(),
            latency: Latency::default(),
            access: RwLock::default(),
            warnings: RwLock::default(),
        };
        decisions.settle(policy);
        decisions
    }

    /// Follows a policy. A store that the command line named (`redis`) replaces the store of the policy.
    pub fn follow(&self, policy: &Policy, redis: Option<&StoreAddress>) {
        let policy = policy.clone().moved_to(redis);
        self.engine.follow(&policy, self.clock.now_us());
        if let Some(store) = self.store() {
            store.follow(&policy);
        }
        self.settle(&policy);
    }

    fn settle(&self, policy: &Policy) {
        let Listen { trusted_proxies, .. } = policy.listen();
        if let Ok(mut access) = self.access.write() {
            access.trusted_proxies.clone_from(trusted_proxies);
        }
    }

    /// Decides about a request, and passes the decision to `render`. The decision does not outlive the call, because rules may change at any time.
    pub async fn check<R>(
        &self,
        request: &Request<'_>,
        asking: Asking,
        render: impl FnOnce(&Decision<'_>) -> R,
    ) -> Result<R, BadRequest> {
        let now_us = self.clock.now_us();
        {
            let rules = self.engine.rules();
            let counters = self.engine.counter_keys(&rules, request, now_us)?;
            if let Some(decision) = self.at_once(&rules, &counters, request, asking, now_us) {
                let decision = self.seated(&counters, request, asking, decision);
                self.note(counters.api, request, asking, decision.outcome, now_us);
                return Ok(render(&decision));
            }
        }
        let rules = self.engine.rules_for_long();
        let counters = self.engine.counter_keys(&rules, request, now_us)?;
        let decision = self.decide(&rules, &counters, request, asking, now_us).await;
        let decision = self.seated(&counters, request, asking, decision);
        self.note(counters.api, request, asking, decision.outcome, now_us);
        Ok(render(&decision))
    }

    /// Decides with the store if hosts count together, else on this host alone.
    async fn decide<'r>(
        &self,
        rules: &'r Rules,
        counters: &CounterKeys<'r>,
        request: &Request<'_>,
        asking: Asking,
        now_us: u64,
    ) -> Decision<'r> {
        match &self.together {
            Some(together) => {
                together.decide(&self.engine, &self.clock, rules, counters, request, asking).await
            }
            None => self.engine.judge(counters, request, now_us, asking.into()),
        }
    }

    /// Looks whether requests fit that are charged all together or not at all, without charging any, and passes a decision about each to `render`. A counter
    /// key of several requests is asked for their cost together.
    pub async fn peek_together<R>(
        &self,
        requests: &[(Request<'_>, Asking)],
        render: impl Fn(&Decision<'_>) -> R,
    ) -> Result<Vec<R>, BadRequest> {
        let (rules, now_us) = (self.engine.rules_for_long(), self.clock.now_us());
        let keys = |(request, _): &(Request<'_>, Asking)| self.engine.counter_keys(&rules, request, now_us);
        let keys = requests.iter().map(keys).collect::<Result<Vec<_>, _>>()?;
        let charged =
            |(_, (_, asking)): &(&CounterKeys<'_>, &(Request<'_>, Asking))| *asking == Asking::Counted;
        let mut costs: BTreeMap<u64, u64> = BTreeMap::new();
        for (counters, (request, _)) in keys.iter().zip(requests).filter(charged) {
            for counter in counters.iter() {
                let cost = costs.entry(counter.hash.fingerprint).or_default();
                *cost = cost.saturating_add(request.cost);
            }
        }
        let mut told = Vec::with_capacity(requests.len());
        for (counters, (request, asking)) in keys.iter().zip(requests) {
            // A request that only looks is charged nothing, but the cost that it asks about must fit.
            let cost_of = |counter: &CounterKey<'_>| {
                costs.get(&counter.hash.fingerprint).map_or(request.cost, |cost| request.cost.max(*cost))
            };
            let parts: BTreeSet<u64> = counters.iter().map(cost_of).collect();
            let mut decision: Option<Decision<'_>> = None;
            for cost in parts {
                let part = counters.only(|counter| cost_of(counter) == cost);
                let asked = request.costing(cost);
                let of_part = match self.at_once(&rules, &part, &asked, Asking::Peeking, now_us) {
                    Some(of_part) => of_part,
                    None => self.decide(&rules, &part, &asked, Asking::Peeking, now_us).await,
                };
                decision = Some(decision.map_or(of_part, |before| before.and(of_part)));
            }
            let decision = decision.unwrap_or(Decision::served(Outcome::Allowed, None));
            let decision = self.seated(counters, request, Asking::Peeking, decision);
            if !decision.outcome.is_served() {
                // Nobody asks again about a request that is refused here, so the refusal is counted here.
                self.note(counters.api, request, *asking, decision.outcome, now_us);
            }
            told.push(render(&decision));
        }
        Ok(told)
    }

    /// Replaces the turn of a request that waits or is refused by the turn of a caller that has hung up, if there is an earlier one.
    fn seated<'r>(
        &self,
        counters: &CounterKeys<'r>,
        request: &Request<'_>,
        asking: Asking,
        decision: Decision<'r>,
    ) -> Decision<'r> {
        if self.turns.is_empty() {
            return decision;
        }
        let now_us = self.clock.now_us();
        let own = match decision.outcome {
            Outcome::Delayed { wait_us } => Some(now_us + wait_us),
            Outcome::Refused { .. } => None,
            _ => return decision,
        };
        let seat = Seat::of(counters, request);
        let turn_us = match asking {
            Asking::Counted => self.turns.take(seat, own, now_us),
            // A proxy that asks for many requests at once does not wait for a turn.
            Asking::InBulk => None,
            Asking::Peeking => {
                self.turns.first(seat, now_us).filter(|turn| own.is_none_or(|own| *turn < own))
            }
        };
        match turn_us {
            Some(turn_us) => Decision { outcome: Outcome::Delayed { wait_us: turn_us - now_us }, ..decision },
            None => decision,
        }
    }

    /// Returns the turn of a request that waits for `wait_us` from now on; `None` if the policy has changed and the request has no counter keys any more.
    pub fn turn(&self, request: &Request<'_>, wait_us: u64) -> Option<Turn> {
        let (rules, now_us) = (self.engine.rules(), self.clock.now_us());
        let counters = self.engine.counter_keys(&rules, request, now_us).ok()?;
        Some(Turn::new(&self.turns, self.clock, Seat::of(&counters, request), now_us + wait_us))
    }

    /// Decides without waiting for the store, if that is possible.
    fn at_once<'r>(
        &self,
        rules: &'r Rules,
        counters: &CounterKeys<'r>,
        request: &Request<'_>,
        asking: Asking,
        now_us: u64,
    ) -> Option<Decision<'r>> {
        match &self.together {
            Some(together) if counters.iter().any(is_shared) => {
                together.at_once(&self.engine, rules, counters, request, asking, now_us)
            }
            _ => Some(self.engine.judge(counters, request, now_us, asking.into())),
        }
    }

    /// Gives back what a request was charged `age_us` ago; 0 is any age. For a login it says that the login succeeded, and the address is known from then
    /// on. Where nothing was charged, nothing is given back and no address becomes known.
    pub async fn refund(&self, request: &Request<'_>, age_us: u64) -> Result<(), NotRefunded> {
        let (rules, now_us) = (self.engine.rules_for_long(), self.clock.now_us());
        // The refund goes to the counter keys that were charged. A pair of user and address that is known from now on was unknown then.
        let counters = self.engine.counter_keys(&rules, request, now_us)?;
        let back = match &self.together {
            Some(together) if counters.iter().any(is_shared) => {
                together.refund(&self.engine, &self.clock, &rules, &counters, request, age_us).await?
            }
            _ => self.engine.give_back(&counters, request, age_us, now_us),
        };
        if back {
            self.engine.know(&counters, now_us);
        }
        Ok(())
    }

    /// Gives back what a request was charged that is not served. Does nothing for logins: a refund would say that the login succeeded.
    pub async fn give_back(&self, request: &Request<'_>) {
        if self.engine.rules().counter_keys(request).is_ok_and(|counters| counters.known.is_none()) {
            // The question was valid when it was charged. If the rules have changed since, there is nothing to give back.
            let _changed = self.refund(request, 0).await;
        }
    }

    /// Returns the least capacity of all limits of a request, as the policy has them (not reduced while the store is away); `None` if nothing limits it.
    pub fn capacity(&self, request: &Request<'_>) -> Result<Option<u64>, BadRequest> {
        let rules = self.engine.rules();
        let counters = rules.counter_keys(request)?;
        let limits = counters.iter().flat_map(|counter| &counter.allowance.limits);
        Ok(limits.map(|limit| limit.meter.capacity()).min())
    }

    /// Forgets what was counted under the keys of a request: on this host at once, in the store as soon as it takes the reset. Does not wait for the store.
    pub async fn reset(&self, request: &Request<'_>) -> Result<(), NotReset> {
        let rules = self.engine.rules();
        if let Some(together) = &self.together {
            together.reset(&rules.counter_keys(request)?, request)?;
        }
        Ok(self.engine.reset(&rules, request)?)
    }

    /// Takes from a bucket that the caller describes.
    pub fn throttle(&self, key: &[u8], bucket: &RequestBucket, quantity: u64) -> Throttled {
        self.engine.throttle(key, bucket, quantity, self.clock.now_us())
    }

    /// Logs a question that makes no sense, for the operator.
    pub fn complain(&self, why: &dyn std::fmt::Display) {
        self.complaints.hear(why, self.clock.now_us());
    }

    /// Whether this peer is believed about the address of a caller.
    pub fn trusts(&self, peer: std::net::IpAddr) -> bool {
        let Ok(access) = self.access.read() else { return false };
        let peer = Prefix::masked(peer.to_canonical(), if peer.to_canonical().is_ipv4() { 32 } else { 128 });
        access.trusted_proxies.iter().any(|prefix| prefix.covers(&peer))
    }

    /// Replaces the warnings about the listeners.
    pub fn warn(&self, warnings: Vec<String>) {
        *self.warnings.write().unwrap_or_else(PoisonError::into_inner) = warnings;
    }

    /// The warnings about the listeners for the operator, as sentences.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The engine, to be looked at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The state of the decision service, as `status` and metrics show it.
    pub fn status(&self) -> RequestsStatus {
        let (usage, rules) = (self.engine.usage(), self.engine.rules());
        let decisions = rules.apis().into_iter().flat_map(|api| {
            api.tally.counts().map(|(outcome, decisions)| DecisionCount {
                api: api.name.to_string(),
                outcome: outcome.to_owned(),
                decisions,
            })
        });
        let condition = self.store().map(Store::condition).unwrap_or_default();
        let (asked, unanswered) = self.store().map_or((0, 0), Store::counts);
        RequestsStatus {
            keys: usage.keys,
            evicted: usage.evicted,
            decisions: decisions.collect(),
            decision_times: self.latency.times(),
            store_up: self.store().map(Store::is_up),
            store_questions: QuestionCount { asked, unanswered },
            store_servers: ServerCount { answering: condition.answering as u64, away: condition.away as u64 },
            store_problem: condition.problem.map(|problem| StoreProblem {
                kind: problem.kind().to_owned(),
                sentence: problem.to_string(),
            }),
            store_clock_steps: self.store().map_or(0, Store::clock_steps),
            store_warnings: self.store().map(Store::warnings).unwrap_or_default(),
        }
    }

    /// Returns why callers had better ask another host, or `None`. The reason is a store that has never worked here and needs somebody to set something
    /// right. A store that has gone is no reason: hosts then give their shares, and all hosts would be unready at once.
    pub fn unready(&self) -> Option<String> {
        let condition = self.store()?.condition();
        // A replica may become the master later. A store that was a replica from the start on more likely has a wrong address, so that is a problem to report.
        let may_pass = |problem: &StoreError| problem.is_transient() && !problem.is_of_replica();
        if condition.has_worked || condition.problem.as_ref().is_some_and(may_pass) {
            return None;
        }
        Some(match condition.problem {
            Some(problem) => format!("requests are counted without other hosts: {problem}"),
            None => "the store has not been tried yet".to_owned(),
        })
    }

    /// The handle of the store worker, if there is a store.
    pub fn store(&self) -> Option<&Store> {
        self.together.as_ref().map(Together::store)
    }

    /// Takes the receiver of addresses that are to be blocked; `None` if somebody has taken it already.
    pub fn escalations(&self) -> Option<mpsc::Receiver<Offence>> {
        self.offenders.take()
    }

    /// Counts a decision and its time, and checks whether the caller has been refused too often for too long.
    fn note(&self, api: &ApiRules, request: &Request<'_>, asking: Asking, outcome: Outcome, now_us: u64) {
        if asking == Asking::Peeking {
            return;
        }
        // An address is only blocked if a trusted peer vouches for it: otherwise naming an address in a question would get it blocked.
        if let (false, true, Some(escalation), Some(ip)) =
            (outcome.is_served(), request.vouched, &api.escalation, request.ip)
        {
            self.offenders.refused(api, escalation, ip, now_us);
        }
        api.tally.count(outcome);
        self.latency.record(self.clock.now_us() - now_us);
    }
}

#[cfg(test)]
mod tests;
