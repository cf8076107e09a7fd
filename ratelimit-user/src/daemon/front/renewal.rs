//! Sends lease batches of the daemon to the store, in the front process.

use std::time::Duration;

use crate::{
    cluster::gossip,
    daemon::line::message::{FrontAnswers, GossipText, StoreValue},
    store::{
        exchange::{Grant, Line, Timing},
        lease_batch::{self, Keys},
        redis::{Call, StoreError},
        worker::Store,
    },
};

/// The store worker, with the keys and the name of this host for lease batches.
#[derive(Debug)]
pub(super) struct LeaseRenewal {
    pub(super) store: Store,
    pub(super) keys: Keys,
    /// The name of this start of this host in the store.
    pub(super) id: String,
}

impl LeaseRenewal {
    /// Waits for a connection to a server, and returns the facts about the servers.
    pub(super) async fn meet(&self) -> FrontAnswers {
        let met = self.store.meet().await.map(|met| (met.number, met.servers.to_vec()));
        FrontAnswers::Met { met, round_trip: self.store.round_trip() }
    }

    /// Sends lease lines and a call of gossip, and returns the answers.
    pub(super) async fn exchange(
        &self,
        lines: &[Line],
        gossip: Option<GossipText>,
        timing: &Timing,
        deadline: Duration,
    ) -> FrontAnswers {
        let (places, mut calls): (Vec<Vec<usize>>, Vec<Call<'static>>) =
            lease_batch::calls(&self.keys, &self.id, timing, lines, self.store.is_sharded())
                .into_iter()
                .unzip();
        let speaks = gossip.is_some();
        calls.extend(gossip.map(|GossipText { keys, args }| gossip::call_of(keys, args)));
        let mut values = self.store.run(calls, deadline).await;
        let gossip = speaks.then(|| values.pop()).flatten().map(|answer| answer.map(StoreValue::from));
        let mut grants: Vec<Option<Result<Grant, StoreError>>> = vec![None; lines.len()];
        for (places, value) in places.iter().zip(values) {
            let granted = value.and_then(|value| lease_batch::grants(&value, places.len()));
            for (nth, at) in places.iter().enumerate() {
                grants[*at] = Some(granted.as_ref().map(|granted| granted[nth]).map_err(Clone::clone));
            }
        }
        let missing =
            || Err(StoreError::Nonsense { at: "the store".into(), why: "a call has no answer".into() });
        let grants = grants.into_iter().map(|grant| grant.unwrap_or_else(missing)).collect();
        FrontAnswers::Exchanged { grants, gossip, round_trip: self.store.round_trip() }
    }

    /// Resets store records.
    pub(super) async fn reset(&self, keys: &[String], deadline: Duration) -> FrontAnswers {
        let calls = keys.iter().map(|key| lease_batch::reset(key)).collect();
        let answers = self.store.run(calls, deadline).await;
        FrontAnswers::WasReset(answers.into_iter().map(|answer| answer.map(drop)).collect())
    }
}
