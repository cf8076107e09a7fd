//! The daemon's way to the store: the front process talks to the servers.

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

/// How much longer than the deadline of the store the front process may take. A front that is stopped must not hold up the leases of packets.
const GRACE: Duration = Duration::from_millis(250);
/// How long the search for servers may take before the front process counts as stuck. Connecting has deadlines of its own.
const SEARCH: Duration = Duration::from_secs(20);

/// One answer for each line of a lease batch, and the answer to the call of gossip.
pub(in crate::daemon) type Answered = (Vec<Result<Grant, StoreError>>, Option<Result<Value, StoreError>>);

/// The way to the store.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct FrontStore {
    front: Front,
    is_sharded: bool,
}

impl FrontStore {
    /// Makes the way to the store that a front process talks to.
    pub(in crate::daemon) fn of(front: Front, is_sharded: bool) -> Self {
        Self { front, is_sharded }
    }

    /// Whether the store is a Redis Cluster, in which all keys of one call must share a slot.
    pub(in crate::daemon) fn is_sharded(&self) -> bool {
        self.is_sharded
    }

    /// Returns the round trip of the store, as it was last measured.
    pub(in crate::daemon) fn round_trip(&self) -> RoundTrip {
        self.front.round_trip()
    }

    /// Waits until there is a connection to any server, and returns the facts about the servers.
    pub(in crate::daemon) async fn meet(&self) -> Result<Met, StoreError> {
        match self.front.ask(HostAsks::Meet, SEARCH).await {
            Some(FrontAnswers::Met { met, round_trip }) => {
                self.front.measured(round_trip);
                met.map(|(number, servers)| Met { number, servers: servers.into() })
            }
            _ => Err(gone()),
        }
    }

    /// Sends lease lines and a call of gossip, and returns the answers.
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

    /// Resets store records, and returns one answer for each.
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
