//! Looks at servers that answer: whether they still take writes, and whether they keep what they are told.
//!
//! Requests find out by themselves that a store is full, but only requests that ask it, and most are decided without the store. What a server does when
//! its memory is full can be changed while it runs. Nobody waits for what happens here.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use super::{Met, Worker, search::CONNECTING};
use crate::{
    log,
    store::{
        backend::Backend,
        deadline::Deadline,
        redis::{ServerFacts, StoreError},
    },
};

/// How often servers are looked at.
const PERIOD: Duration = Duration::from_secs(5);

impl<B: Backend> Worker<B> {
    pub(super) async fn look_at_servers(self: Arc<Self>) {
        let mut times = interval(PERIOD);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            self.look_at_them().await;
        }
    }

    async fn look_at_them(&self) {
        // A search looks at all servers, too.
        let is_searching =
            |state: &super::WorkerState<B>| state.search.is_running || state.search_due().is_some();
        let Some(link) =
            Some(self.state()).filter(|state| !is_searching(state)).and_then(|it| it.link.clone())
        else {
            return;
        };
        let patience = self.known.round_trip().connecting().max(CONNECTING);
        let facts = link.facts(Deadline::after(patience)).await;
        let probed = self.probed(&link).await;
        let mut state = self.state();
        if !state.link.as_ref().is_some_and(|now| Arc::ptr_eq(now, &link)) {
            return;
        }
        if let Ok(facts) = facts
            && facts.len() == link.servers().len()
        {
            self.note_facts(&facts);
            state.search.met = Met { number: state.search.met.number, servers: facts.into() };
        }
        for (server, error) in probed {
            // Requests find out whether a server is late or gone: one answer says little.
            if error.as_ref().is_some_and(StoreError::refuses_writes) {
                state.servers.heard(&server, error);
            }
        }
        drop(state);
        self.wanted.notify_one();
    }

    /// Logs once of each server that it forgets what was spent when its memory is full, and once that no server does so any more.
    pub(super) fn note_facts(&self, facts: &[ServerFacts]) {
        let warnings: Vec<String> = facts.iter().filter_map(ServerFacts::eviction_warning).collect();
        let mut known = self.known.warnings();
        for warning in warnings.iter().filter(|warning| !known.contains(warning)) {
            log::warning(warning);
        }
        if warnings.is_empty() && !known.is_empty() {
            log::info("the store keeps what users have spent, also when its memory is full");
        }
        *known = warnings;
    }
}
