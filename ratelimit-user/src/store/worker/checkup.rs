//! Looks at servers that answer: whether they still take writes, whether they keep what they are told, and whether their clocks were set.
//!
//! Requests find out by themselves that a store is full, but only requests that ask it, and most are decided without the store. What a server does when
//! its memory is full can be changed while it runs. Nobody waits for what happens here.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Met, Worker, search::CONNECTING};
use crate::{
    log,
    store::{
        backend::Backend,
        clock::{self, StoreClock},
        deadline::Deadline,
        redis::{ServerFacts, StoreError},
    },
};

/// How often servers are looked at.
const PERIOD: Duration = Duration::from_secs(5);

/// For how long a step of a clock is told to those who ask whether this host is ready.
const TOLD: Duration = Duration::from_secs(60);

/// The clocks of the servers.
#[derive(Debug)]
pub(super) struct ServerClocks {
    since: Instant,
    by_run: BTreeMap<String, StoreClock>,
    /// How often a clock was set back.
    pub(super) steps: u64,
    /// The last step of a clock, as a sentence, and when it was noticed.
    last: Option<(String, Instant)>,
}

impl ServerClocks {
    pub(super) fn new(since: Instant) -> Self {
        Self { since, by_run: BTreeMap::new(), steps: 0, last: None }
    }

    /// Takes the time that each server tells. Returns a sentence for each clock that was set.
    fn take(&mut self, facts: &[ServerFacts], now: Instant) -> Vec<String> {
        let here_ns = now.duration_since(self.since).as_nanos() as u64;
        // Only servers that are there are remembered.
        let mut before = std::mem::take(&mut self.by_run);
        let mut said = Vec::new();
        for server in facts.iter().filter(|server| server.time_us > 0) {
            let mut clock = before.remove(&server.run_id).unwrap_or_default();
            let step_ms = clock.hear(&server.run_id, server.time_us / 1_000, here_ns, here_ns);
            self.by_run.insert(server.run_id.clone(), clock);
            if step_ms != 0 {
                self.steps += u64::from(step_ms < 0);
                said.push(format!("{}: {}", server.at, clock::said(step_ms)));
            }
        }
        if let Some(sentence) = said.last() {
            self.last = Some((sentence.clone(), now));
        }
        said
    }

    /// Returns the last step of a clock, if it was a short time ago.
    pub(super) fn last_step(&self, now: Instant) -> Option<String> {
        let (sentence, at) = self.last.as_ref()?;
        (now.duration_since(*at) < TOLD).then(|| sentence.clone())
    }
}

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

    /// Logs once of each server that it forgets what was spent, when its memory is full or when it starts again, and once that no server does so any more; and
    /// each step of a clock.
    pub(super) fn note_facts(&self, facts: &[ServerFacts]) {
        for step in self.known.clocks().take(facts, Instant::now()) {
            log::warning(step);
        }
        let must_last = self.known.must_last.load(Ordering::Relaxed);
        let warning = |server: &ServerFacts| {
            server.eviction_warning().or_else(|| server.persistence_warning().filter(|_| must_last))
        };
        let warnings: Vec<String> = facts.iter().filter_map(warning).collect();
        let mut known = self.known.warnings();
        for warning in warnings.iter().filter(|warning| !known.contains(warning)) {
            log::warning(warning);
        }
        if warnings.is_empty() && !known.is_empty() {
            log::info("the store keeps what users have spent");
        }
        *known = warnings;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::{Persistence, Role};

    fn server(run_id: &str, time_s: u64) -> ServerFacts {
        ServerFacts {
            at: format!("{run_id}:1"),
            version: (7, 0, 0),
            run_id: run_id.into(),
            role: Role::Master,
            time_us: time_s * 1_000_000,
            maxmemory: 0,
            maxmemory_policy: "noeviction".into(),
            persistence: Persistence::Log,
        }
    }

    #[test]
    fn a_clock_set_back_is_told_of_its_server() {
        let began = Instant::now();
        let mut clocks = ServerClocks::new(began);
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(clocks.take(&[server("a", 1_000), server("b", 5_000)], at(0)).is_empty());
        let said = clocks.take(&[server("a", 975), server("b", 5_005)], at(5));
        assert!(
            said.len() == 1 && said[0].starts_with("a:1: the store's clock went back by 30.0 s"),
            "{said:?}"
        );
        assert_eq!((clocks.steps, clocks.last_step(at(6))), (1, said.first().cloned()));
        // Another process at that address has another clock, and a server may not tell its time.
        assert!(clocks.take(&[server("c", 1), server("b", 0)], at(10)).is_empty());
        assert_eq!((clocks.steps, clocks.last_step(at(66))), (1, None));
        let ahead = clocks.take(&[server("c", 3_606)], at(15));
        assert!(ahead[0].contains("went ahead of this host's by 3600.0 s") && clocks.steps == 1, "{ahead:?}");
    }
}
