//! The daemon's side of requests: the front process decides about them, and the daemon asks it for operators.

use std::{net::IpAddr, time::Duration};

use super::{front::Front, store::FrontStore};
use crate::{
    control::protocol::{DecisionInfo, Reply, TestQuestion},
    daemon::state::version::PolicyVersion,
    failure::{ExitCode, Failure},
    policy::{ClusterPolicy, Policy, address::StoreAddress},
    requests::{
        Decision, Outcome, Priority, Request as Question, asking::Asking, decision_service::DecisionService,
        status::RequestsStatus,
    },
    store::{AddressedStore, backend::Backend as _, round_trip::RoundTrip},
};

/// The tick and lease from which the round trip is computed if there is no store.
const NO_STORE: Duration = Duration::from_millis(50);

/// The front process, and the store of the command line.
#[derive(Debug)]
pub(in crate::daemon) struct Requests {
    pub(in crate::daemon) front: Front,
    redis: Option<StoreAddress>,
}

impl Requests {
    /// Makes the state of requests under a policy, on the store of the command line if it names one.
    pub(in crate::daemon) fn new(version: &PolicyVersion, redis: Option<&StoreAddress>) -> Self {
        let policy = version.policy().clone().moved_to(redis);
        let timing = |cluster: &ClusterPolicy| RoundTrip::new(cluster.tick(), cluster.lease());
        let round_trip = policy.cluster().map_or_else(|| RoundTrip::new(NO_STORE, NO_STORE), timing);
        Self { front: Front::new(version, round_trip), redis: redis.cloned() }
    }

    /// Takes over another policy.
    pub(in crate::daemon) fn follow(&self, version: &PolicyVersion) {
        self.front.follow(version);
    }

    /// Sets whether the host has headroom, so that elastic limits give their margin.
    pub(in crate::daemon) fn set_headroom(&self, is_there: bool) {
        self.front.set_headroom(is_there);
    }

    /// Returns the counters that the front last reported.
    pub(in crate::daemon) fn status(&self) -> RequestsStatus {
        self.front.requests()
    }

    /// Returns warnings about the listeners.
    pub(in crate::daemon) fn warnings(&self) -> Vec<String> {
        self.front.warnings()
    }

    /// Returns the way to the store, if the policy names one.
    pub(in crate::daemon) fn store(&self, policy: &Policy) -> Option<FrontStore> {
        let policy = policy.clone().moved_to(self.redis.as_ref());
        let is_sharded = AddressedStore::is_sharded(policy.cluster()?.redis());
        Some(FrontStore::of(self.front.clone(), is_sharded))
    }
}

/// Asks the front process for the decision about the request of `ratelimit test`.
pub(in crate::daemon) async fn ask(front: &Front, test_question: TestQuestion) -> Result<Reply, Failure> {
    let silent =
        || Failure::new(ExitCode::NoDaemon, "the front process does not answer; ask again in a second");
    front.test(test_question).await.unwrap_or_else(|| Err(silent())).map(Reply::Decision)
}

/// Decides about the request of `ratelimit test`, in the front process.
pub(in crate::daemon) async fn test(
    decisions: &DecisionService,
    test_question: &TestQuestion,
) -> Result<DecisionInfo, Failure> {
    let ip: Option<IpAddr> = test_question.ip;
    let parts: Vec<(&str, &str)> =
        test_question.parts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let priority = match test_question.priority.as_deref().map(|word| (word, Priority::parse(word))) {
        None => Priority::default(),
        Some((_, Some(priority))) => priority,
        Some((word, None)) => {
            return Err(Failure::usage(format!(
                "priority {word:?} is not known; use critical, normal or background"
            )));
        }
    };
    let question = Question {
        user: &test_question.user,
        api: &test_question.api,
        ip,
        // The question comes over the control socket, whose callers are trusted to name a user.
        vouched: true,
        cost: test_question.cost,
        priority,
        parts: &parts,
    };
    let asking = if test_question.peek { Asking::Peeking } else { Asking::Counted };
    let info = decisions.check(&question, asking, describe).await;
    info.map_err(|bad| Failure::usage(bad.to_string()))
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
