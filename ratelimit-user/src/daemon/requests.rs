//! Requests as the daemon has them: what operators ask about them, and callers that are blocked for them.

use std::{net::IpAddr, sync::Arc};

use super::{
    host::Host,
    lists::{Order, Scope},
    log,
    service::Daemon,
};
use crate::{
    compile::lists::Prefix,
    control::protocol::{DecisionInfo, Operator, Reply, TestQuestion},
    dataplane::probe,
    failure::{ExitCode, Failure},
    requests::{Decision, Outcome, Priority, Request as Question, asking::Asking, escalation::Offence},
};

/// Blocks those who stay above their limits, until the daemon ends.
pub(super) async fn follow_offenders(daemon: Arc<Daemon>) {
    let Some(mut offenders) = daemon.host().decisions.escalations() else { return };
    while let Some(offence) = offenders.recv().await {
        let prefix = offence.prefix;
        if let Err(failure) = daemon.host().escalate(&offence) {
            log::warning(format!("{prefix} ({}) is not blocked: {failure}", offence.reason));
        }
    }
}

impl Host {
    /// Blocks an address that was refused too often for too long, on all hosts if there are others.
    fn escalate(&mut self, offence: &Offence) -> Result<Reply, Failure> {
        let found = |why: String| Failure::new(ExitCode::Found, why);
        if let Some(allowed) = self.allows().find(|allowed| meets(allowed, &offence.prefix)) {
            return Err(found(format!("{allowed} is on the allow list")));
        }
        let trusted = &self.policy().listen().trusted_proxies;
        if let Some(proxy) = trusted.iter().find(|proxy| meets(proxy, &offence.prefix)) {
            return Err(found(format!("{proxy} is a trusted proxy: it asks for others")));
        }
        let scope = Scope::of(self.cluster.is_some());
        let prefix = offence.prefix.to_string();
        let (for_ns, reason) = (Some(offence.for_ns), short(&offence.reason));
        let order = Order { operator: &Operator::default(), by: &"escalate", now_ns: probe::now_ns() };
        self.block(&prefix, for_ns, Some(&reason), scope, &order)
    }
}

impl Daemon {
    /// Asks the engine once, as `ratelimit test` does.
    pub(super) async fn test(&self, asked: &TestQuestion) -> Result<Reply, Failure> {
        let ip: Option<IpAddr> = asked.ip;
        let parts: Vec<(&str, &str)> =
            asked.parts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let priority = match asked.priority.as_deref().map(|word| (word, Priority::parse(word))) {
            None => Priority::default(),
            Some((_, Some(priority))) => priority,
            Some((word, None)) => {
                return Err(Failure::usage(format!(
                    "priority {word:?} is not known; use critical, normal or background"
                )));
            }
        };
        let question = Question {
            user: &asked.user,
            api: &asked.api,
            ip,
            // Operators have rights to the control socket.
            vouched: true,
            cost: asked.cost,
            priority,
            parts: &parts,
        };
        let asking = if asked.peek { Asking::Peeking } else { Asking::Counted };
        let decisions = Arc::clone(&self.host().decisions);
        let info = decisions.check(&question, asking, describe).await;
        info.map(Reply::Decision).map_err(|bad| Failure::usage(bad.to_string()))
    }
}

fn describe(decision: &Decision<'_>) -> DecisionInfo {
    let near = decision.limit.as_ref();
    let (delay_us, retry_us) = match decision.outcome {
        Outcome::Delayed { wait_us } => (Some(wait_us), None),
        Outcome::Refused { retry_us } => (None, retry_us),
        _ => (None, None),
    };
    DecisionInfo {
        allowed: decision.outcome.is_served(),
        outcome: decision.outcome.name().to_owned(),
        policy: near.map(|near| near.limit.name.clone()),
        limit: near.map(|near| near.limit.quota),
        window_seconds: near.map(|near| near.limit.window_s),
        remaining: near.map(|near| near.remaining),
        reset_ms: near.map(|near| near.reset_us.div_ceil(1_000)),
        retry_after_ms: retry_us.map(|us| us.div_ceil(1_000)),
        delay_ms: delay_us.map(|us| us.div_ceil(1_000)),
    }
}

fn meets(one: &Prefix, other: &Prefix) -> bool {
    one.covers(other) || other.covers(one)
}

/// As much of a reason as a block has room for.
fn short(reason: &str) -> String {
    let mut text = String::new();
    for c in reason.chars() {
        if text.len() + c.len_utf8() > ratelimit_common::abi::list::REASON_LEN {
            break;
        }
        text.push(c);
    }
    text
}
