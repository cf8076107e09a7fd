//! Envoy's rate limit quota service: proxies decide for themselves, from tokens that they were given.
//!
//! A report of a bucket is a question about what is left of it. Tokens are charged at once when they are given, as if they had been used, and unused
//! tokens are given back later. So nothing is given twice: tokens that proxies hold are never more than the limit allows. [`crate::requests::quota`]
//! counts the tokens; this file translates.

use std::{collections::HashMap, sync::Arc, time::Instant};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};

use super::{
    backlog::Backlog,
    descriptor::DescriptorQuery,
    framing::{self, MAX_STREAMED, MessageReader, Piece, decoded, framed},
    messages::{
        self, NumberMessage,
        quota::{
            Action, Blanket, BucketAction, BucketId, BucketUsage, QuotaAssignment, QuotaResponse,
            QuotaStrategy, Strategy, TokenBucket, UsageReports,
        },
    },
    status::{Code, GrpcStatus},
};
use crate::requests::{
    Decision, Outcome,
    asking::Asking,
    decision_service::DecisionService,
    quota::{
        QuotaTable,
        proxy_quota::{LIFE_S, ProxyQuota, QuotaPlan},
    },
};
use crate::serve::drain::Draining;

/// A bucket in a domain.
type Key = (String, BucketId);

/// The tokens that all proxies hold.
pub type Quotas = QuotaTable<Key>;

/// The most buckets of one stream. The use of further buckets is charged, and they are given nothing.
const MAX_BUCKETS: usize = 10_000;
/// Buckets of a report that are worked off before other tasks of this thread have their turn: about 2 ms without optimisation.
const BATCH: usize = 64;
/// The most parts in which tokens are given back. Each part may be a question to the store.
const MOST_PARTS: usize = 100;
/// The strategy under which nothing passes.
const DENY: QuotaStrategy = QuotaStrategy::BlanketRule(Blanket::DenyAll as i32);
/// Seconds until tokens come by themselves: longer than any assignment is good for.
const NEVER_S: i64 = 100_000_000;

/// The state of one stream, which is one proxy.
struct Conversation {
    decisions: Arc<DecisionService>,
    quotas: Arc<Quotas>,
    domain: String,
    accounts: HashMap<BucketId, ProxyQuota>,
    started: Instant,
}

/// What is left of a bucket.
enum QuotaLeft {
    /// Nothing limits the bucket, or its limits do not refuse.
    Free,
    /// The requests that are left, and the capacity of the limit that decided.
    Left(u64, u64),
    /// Nothing is left, for this many seconds.
    Empty(u64),
}

/// Talks to one proxy until it or the service ends.
pub async fn converse(
    decisions: Arc<DecisionService>,
    quotas: Arc<Quotas>,
    body: RecvStream,
    mut respond: SendResponse<Bytes>,
    backlog: Arc<Backlog>,
    draining: Draining,
) {
    let Ok(mut stream) = framing::begin(&mut respond) else { return };
    let mut reports = MessageReader::new(body, MAX_STREAMED);
    let mut share = backlog.hold(0);
    let (domain, accounts) = (String::new(), HashMap::new());
    let mut conversation = Conversation { decisions, quotas, domain, accounts, started: Instant::now() };
    let status = loop {
        let report = tokio::select! {
            biased;
            report = reports.next(&mut share) => report,
            () = draining.begun() => break GrpcStatus::new(Code::Unavailable, "the service ends; open another stream"),
        };
        let answer = match report {
            Ok(Piece::Message(message)) => conversation.answer(message).await,
            Ok(Piece::End) => break GrpcStatus::OK,
            Ok(Piece::Gone) => return,
            Err(status) => break status,
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(status) => break status,
        };
        if let Some(answer) = answer
            && !framing::send(&mut stream, answer, &backlog).await
        {
            return;
        }
    };
    let _gone = framing::end(&mut stream, &status, &backlog);
}

/// Answers messages that one proxy sends one after another, until one ends the stream. Returns how many were answered.
pub async fn answer_any(decisions: &Arc<DecisionService>, messages: impl Iterator<Item = Bytes>) -> usize {
    let (domain, accounts) = (String::new(), HashMap::new());
    let (decisions, quotas) = (Arc::clone(decisions), Arc::default());
    let mut conversation = Conversation { decisions, quotas, domain, accounts, started: Instant::now() };
    let mut answered = 0;
    for message in messages {
        if conversation.answer(message).await.is_err() {
            break;
        }
        answered += 1;
    }
    answered
}

impl Conversation {
    async fn answer(&mut self, message: Bytes) -> Result<Option<Bytes>, GrpcStatus> {
        let reports: UsageReports = decoded(message)?;
        match (self.domain.is_empty(), reports.domain.is_empty()) {
            (true, true) => return Err(GrpcStatus::invalid("domain is empty in the first report")),
            (true, false) => self.domain = reports.domain,
            (false, true) => {}
            (false, false) if reports.domain == self.domain => {}
            (false, false) => {
                return Err(GrpcStatus::invalid(
                    "the domain has changed; open another stream for another domain",
                ));
            }
        }
        let mut bucket_action = Vec::with_capacity(reports.bucket_quota_usages.len());
        for (nth, usage) in reports.bucket_quota_usages.into_iter().enumerate() {
            if nth % BATCH == BATCH - 1 {
                // Where no store is asked, nothing here waits, so a report of 10 000 buckets would keep all other tasks of this thread waiting.
                tokio::task::yield_now().await;
            }
            self.settle(usage, &mut bucket_action).await;
        }
        Ok((!bucket_action.is_empty()).then(|| framed(&QuotaResponse { bucket_action })))
    }

    /// Takes the report of one bucket, and decides what its proxy has from now on. A bucket that makes no sense as a question gets no answer, and other
    /// buckets of the stream are not affected.
    async fn settle(&mut self, usage: BucketUsage, actions: &mut Vec<BucketAction>) {
        let Some(id) = usage.bucket_id.filter(|id| !id.bucket.is_empty()) else { return };
        let part = |(name, value): (&String, &Vec<u8>)| {
            let mut value = Bytes::from(value.clone());
            messages::readable(&mut value);
            (Bytes::from(name.clone()), value)
        };
        let parts: Vec<(Bytes, Bytes)> = id.bucket.iter().map(part).collect();
        let domain = self.domain.clone();
        let entries = parts.iter().map(|(name, value)| (name, value));
        let Ok(question) = DescriptorQuery::read(&domain, entries, 1, false) else { return };
        let used = usage.num_requests_allowed;
        let idle = used == 0 && usage.num_requests_denied == 0;
        let now_us = self.started.elapsed().as_micros() as u64;

        let known = self.accounts.get(&id).copied();
        let key: Key = (domain.clone(), id);
        let has_room = self.accounts.len() < MAX_BUCKETS;
        if known.is_none() && !(has_room && self.quotas.join(&key)) {
            charge(&self.decisions, &question, used).await;
            return;
        }
        let mut account = known.unwrap_or_default();
        let before = account.held();
        let booked = account.report(used, now_us);
        give_back(&self.decisions, &question, booked.unused).await;
        charge(&self.decisions, &question, booked.unpaid).await;
        self.quotas.note(&key, before, account.held());
        let before = account.assignment();
        let (kind, life_s) = self.assign(&question, &key, &mut account, idle, now_us).await;
        let id = key.1;
        self.accounts.insert(id.clone(), account);
        let action = |kind| {
            let assignment = QuotaAssignment {
                assignment_time_to_live: Some(messages::Duration { seconds: life_s as i64, nanos: 0 }),
                rate_limit_strategy: Some(Strategy { strategy: Some(kind) }),
            };
            BucketAction { bucket_id: Some(id.clone()), bucket_action: Some(Action::Assign(assignment)) }
        };
        // Envoy fills a new bucket only as full as the bucket before was. After a rule without a bucket, a new bucket is full. Nobody is refused by that rule:
        // all actions of an answer come into force at once.
        if matches!(kind, QuotaStrategy::TokenBucket(_)) && before.0 > 0 && before != account.assignment() {
            actions.push(action(DENY));
        }
        actions.push(action(kind));
    }

    /// Returns what a proxy decides by from now on, and for how many seconds.
    async fn assign(
        &self,
        question: &DescriptorQuery<'_>,
        key: &Key,
        account: &mut ProxyQuota,
        idle: bool,
        now_us: u64,
    ) -> (QuotaStrategy, u64) {
        let shared = self.quotas.get(key);
        // For an API that the policy does not have, or no longer has, nobody holds anything.
        let capacity = self.decisions.capacity(&question.request());
        let capacity = capacity.map_or(0, |capacity| capacity.unwrap_or(u64::MAX));
        let (left, retry_s) = match standing(&self.decisions, question).await {
            QuotaLeft::Free => return (QuotaStrategy::BlanketRule(Blanket::AllowAll.into()), LIFE_S),
            // All proxies together hold no more than the limit gives at once.
            QuotaLeft::Left(left, nearest) => {
                (left.min(nearest.min(capacity).saturating_sub(shared.held)), 1)
            }
            QuotaLeft::Empty(retry_s) => (0, retry_s),
        };
        // The limit has become smaller than what proxies hold of it. An assignment cannot be made smaller, so it ends, and the next report is given what the
        // limit has.
        let plan = match shared.held > capacity {
            true => QuotaPlan::Deny,
            false => account.plan(left, shared.proxies, idle, now_us),
        };
        match plan {
            QuotaPlan::Extend => account.extended(now_us),
            QuotaPlan::Assign(wanted) => {
                let before = account.held();
                let tokens = reserve(&self.decisions, question, wanted.min(u64::from(u32::MAX))).await;
                account.assigned(tokens, now_us);
                self.quotas.note(key, before, account.held());
            }
            QuotaPlan::Deny => account.denied(now_us),
        }
        match account.assignment() {
            (0, _) => (DENY, retry_s.clamp(1, LIFE_S)),
            (tokens, serial) => (QuotaStrategy::TokenBucket(bucket(tokens, serial)), LIFE_S),
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        for (id, account) in self.accounts.drain() {
            self.quotas.leave(&(self.domain.clone(), id), account.held());
        }
    }
}

/// Makes a bucket that is full once and never filled again. A proxy sees a bucket as new if its numbers differ, or the fraction of the interval.
fn bucket(tokens: u64, serial: u32) -> TokenBucket {
    TokenBucket {
        max_tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
        tokens_per_fill: Some(NumberMessage { value: 1 }),
        fill_interval: Some(messages::Duration { seconds: NEVER_S, nanos: serial as i32 }),
    }
}

async fn standing(decisions: &DecisionService, question: &DescriptorQuery<'_>) -> QuotaLeft {
    let seen = |decision: &Decision<'_>| match (decision.outcome, decision.limit) {
        (Outcome::Deprioritised, _) | (Outcome::Allowed | Outcome::InMargin, None) => QuotaLeft::Free,
        (Outcome::Allowed | Outcome::InMargin, Some(nearest)) => {
            // One request fits, if only in the soft margin.
            QuotaLeft::Left(nearest.remaining.max(1), nearest.limit.meter.capacity())
        }
        (Outcome::Delayed { wait_us }, _) => QuotaLeft::Empty(wait_us.div_ceil(1_000_000)),
        (Outcome::Refused { retry_us }, _) => {
            QuotaLeft::Empty(retry_us.map_or(LIFE_S, |retry_us| retry_us.div_ceil(1_000_000)))
        }
    };
    match decisions.check(&question.request().costing(1), Asking::Peeking, seen).await {
        Ok(standing) => standing,
        // A bucket that makes no sense as a question is given nothing.
        Err(bad) => {
            decisions.complain(&bad);
            QuotaLeft::Empty(LIFE_S)
        }
    }
}

/// Gives back what a proxy did not use. A limit that has become smaller takes back at most what it gives at once, so this goes in parts. What is left
/// after [`MOST_PARTS`] parts counts as used.
async fn give_back(decisions: &DecisionService, question: &DescriptorQuery<'_>, mut unused: u64) {
    let capacity = decisions.capacity(&question.request()).ok().flatten().unwrap_or(u64::MAX).max(1);
    for _ in 0..MOST_PARTS {
        let part = unused.min(capacity);
        question.give_back(decisions, part).await;
        unused -= part;
        if unused == 0 {
            return;
        }
    }
}

/// Charges what was used without a question before, as far as there is something left to charge.
pub(super) async fn charge(decisions: &DecisionService, question: &DescriptorQuery<'_>, mut used: u64) {
    while used > 0 {
        match reserve(decisions, question, used).await {
            0 => return,
            charged => used -= charged,
        }
    }
}

/// Takes `wanted` units, or as many as are left, and returns how many. It peeks first, so that giving a proxy less does not count as a refusal.
async fn reserve(decisions: &DecisionService, question: &DescriptorQuery<'_>, wanted: u64) -> u64 {
    let mut tokens = wanted;
    while tokens > 0 {
        let request = question.request().costing(tokens);
        let mut outcome = decisions.check(&request, Asking::Peeking, |decision| decision.outcome).await;
        if matches!(outcome, Ok(Outcome::Allowed | Outcome::InMargin)) {
            outcome = decisions.check(&request, Asking::InBulk, |decision| decision.outcome).await;
            match outcome {
                Ok(Outcome::Allowed | Outcome::InMargin) => return tokens,
                // The units were charged for a later turn, and a proxy does not wait.
                Ok(Outcome::Delayed { .. }) => question.give_back(decisions, tokens).await,
                _ => {}
            }
        }
        if matches!(outcome, Ok(Outcome::Deprioritised) | Err(_)) {
            return 0;
        }
        // Others have taken the units first, here or on another host.
        let left = match standing(decisions, question).await {
            QuotaLeft::Left(left, _) => left,
            _ => 0,
        };
        tokens = if left < tokens { left } else { tokens / 2 };
    }
    0
}

#[cfg(test)]
mod tests;
