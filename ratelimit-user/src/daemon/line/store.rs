//! The store as the daemon has it: the front process talks to it.

use std::time::Duration;

use super::{
    front::Front,
    message::{FrontAnswers, GossipText, HostAsks},
};
use crate::store::{
    exchange::{Grant, Line, Timing},
    redis::{Call, StoreError, Value},
    round_trip::RoundTrip,
    worker::Met,
};

/// How much longer than the store the front process may take. One that is stopped must not hold up what packets spend.
const GRACE: Duration = Duration::from_millis(250);
/// How long the search for servers may take before the front process counts as stuck: connecting has deadlines of its own.
const SEARCH: Duration = Duration::from_secs(20);

/// One answer for each line of a lease batch, and one to what was said about blocks and hosts.
pub(in crate::daemon) type Answered = (Vec<Result<Grant, StoreError>>, Option<Result<Value, StoreError>>);

/// The way to the store.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct FrontStore {
    front: Front,
    is_sharded: bool,
}

impl FrontStore {
    /// The store that this front process talks to.
    pub(in crate::daemon) fn of(front: Front, is_sharded: bool) -> Self {
        Self { front, is_sharded }
    }

    /// Whether keys of one call must share a slot.
    pub(in crate::daemon) fn is_sharded(&self) -> bool {
        self.is_sharded
    }

    /// How long the store takes to answer, as it was last measured.
    pub(in crate::daemon) fn round_trip(&self) -> RoundTrip {
        self.front.round_trip()
    }

    /// Waits until there is a connection to any server, and tells of the servers.
    pub(in crate::daemon) async fn meet(&self) -> Result<Met, StoreError> {
        match self.front.ask(HostAsks::Meet, SEARCH).await {
            Some(FrontAnswers::Met { met, round_trip }) => {
                self.front.measured(round_trip);
                met.map(|(number, servers)| Met { number, servers: servers.into() })
            }
            _ => Err(gone()),
        }
    }

    /// Renews leases, and says something about blocks and hosts.
    pub(in crate::daemon) async fn exchange(
        &self,
        lines: &[Line],
        gossip: Option<&Call<'static>>,
        timing: Timing,
        deadline: Duration,
    ) -> Answered {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let gossip_text = gossip.map(|call| GossipText {
            keys: call.keys.iter().map(text).collect(),
            args: call.args.iter().map(text).collect(),
        });
        let question = HostAsks::Exchange { lines: lines.to_vec(), gossip: gossip_text, timing, deadline };
        match self.front.ask(question, deadline + GRACE).await {
            Some(FrontAnswers::Exchanged { mut grants, gossip, round_trip }) => {
                self.front.measured(round_trip);
                grants.resize_with(lines.len(), || Err(gone()));
                (grants, gossip.map(|answer| answer.map(Value::from)))
            }
            _ => (vec![Err(gone()); lines.len()], gossip.map(|_| Err(gone()))),
        }
    }

    /// Opens store records anew. One answer for each.
    pub(in crate::daemon) async fn reset(&self, keys: Vec<String>) -> Vec<Result<(), StoreError>> {
        let (count, deadline) = (keys.len(), self.round_trip().deadline());
        let mut answers = match self.front.ask(HostAsks::Reset { keys, deadline }, deadline + GRACE).await {
            Some(FrontAnswers::WasReset(answers)) => answers,
            _ => Vec::new(),
        };
        answers.resize_with(count, || Err(gone()));
        answers
    }
}

fn gone() -> StoreError {
    StoreError::Lost {
        at: "the store".into(),
        why: "the process that talks to the store does not answer".into(),
    }
}
