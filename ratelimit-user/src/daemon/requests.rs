//! Requests as the daemon has them: the decision service, and what operators ask it.

use std::{net::IpAddr, sync::Arc};

use crate::{
    control::protocol::{DecisionInfo, Reply, TestQuestion},
    failure::{ExitCode, Failure},
    policy::{Policy, address::StoreAddress},
    requests::{
        Decision, Outcome, Priority, Request as Question, asking::Asking, decision_service::DecisionService,
    },
    store::worker::Store,
};

/// The decision service, and the store of the command line that it follows policies with.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) decisions: Arc<DecisionService>,
    redis: Option<StoreAddress>,
}

impl Requests {
    /// A service for a policy, which this host's name in the store goes with if it is in a cluster.
    pub(super) fn new(
        policy: &Policy,
        redis: Option<&StoreAddress>,
        id: Option<&str>,
    ) -> Result<Self, Failure> {
        let policy = policy.clone().moved_to(redis);
        let store = Store::of(&policy, id).map_err(|error| {
            Failure::new(ExitCode::Unsupported, format!("cannot start a thread: {error}"))
        })?;
        Ok(Self { decisions: Arc::new(DecisionService::with(&policy, store)), redis: redis.cloned() })
    }

    /// Another policy is in force.
    pub(super) fn follow(&self, policy: &Policy) {
        self.decisions.follow(policy, self.redis.as_ref());
    }
}

/// Asks the engine once, as `ratelimit test` does.
pub(super) async fn test(decisions: &DecisionService, asked: &TestQuestion) -> Result<Reply, Failure> {
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
    let info = decisions.check(&question, asking, describe).await;
    info.map(Reply::Decision).map_err(|bad| Failure::usage(bad.to_string()))
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
