//! Looks for servers that are away. A connection says little, so each server is asked what inquiries ask, and has to answer as soon.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Condition, Met, Worker};
use crate::{
    meter::{Meter, RequestBucket},
    policy::address::Endpoint,
    store::{
        ask::{Ask, CountedLimit},
        backend::Backend,
        deadline::Deadline,
        inquiry::{self, Inquiry},
        record::FORM,
        redis::{Call, ServerFacts, StoreError},
    },
};

/// The least time that making a connection may take: nobody waits for it.
pub(super) const CONNECTING: Duration = Duration::from_millis(500);
/// How often a store is looked for if none of its servers answers.
const PROBE: Duration = Duration::from_millis(100);
/// How often a store is looked for if some of its servers do not answer: looking takes time from those that do.
const PROBE_PARTS: Duration = Duration::from_millis(500);
/// How often a store is looked for whose problem somebody has to set right first.
const PROBE_WRONG: Duration = Duration::from_secs(1);
/// Keys that are tried to find one for each server of a Redis Cluster.
const MOST_KEYS: u32 = 20_000;
/// Microseconds that a key lives that was written to see whether the store takes writes.
const LIFE_US: u64 = 1_000_000;
/// Units that hosts can spend of such a key in its life. No question about it is ever refused, so each of them writes.
const UNITS: u64 = 1_000_000;

/// The name of this host in the store, and the beginning of its keys.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// The name of the cluster, which keys in the store begin with.
    pub(super) name: String,
    /// The name of this start of this host in the store.
    pub(super) host: String,
    /// Microseconds for which the store remembers what hosts wanted.
    pub(super) recent_us: u64,
    /// Whether keys of one call must share a slot.
    pub(super) is_sharded: bool,
}

/// What a search has found.
struct FoundStore<B> {
    link: B,
    /// Each server that there is a connection to, and why it is of no use, if it is not.
    probed: Vec<(Endpoint, Option<StoreError>)>,
    facts: Vec<ServerFacts>,
    /// How long it took all servers to tell about themselves; none if some did not.
    trip: Option<Duration>,
}

/// The state of the search.
#[derive(Debug, Default)]
pub(super) struct SearchState {
    pub(super) is_running: bool,
    /// Whether somebody has said that the link leads to the wrong place.
    pub(super) is_wanted: bool,
    /// Whether the server that the link leads to is not the store any more, although it may answer.
    pub(super) is_left: bool,
    /// When a search has last ended, and why it found nothing.
    ended: Option<Instant>,
    pub(super) problem: Option<StoreError>,
    pub(super) met: Met,
}

impl<B: Backend> super::WorkerState<B> {
    /// Whether there is a connection to any server.
    pub(super) fn is_connected(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.servers().iter().any(|(_, problem)| problem.is_none()))
    }

    /// When to look for servers that are away; none if all are there, or a search is running.
    pub(super) fn search_due(&self) -> Option<Instant> {
        let Condition { answering, away, problem, .. } = self.servers.condition();
        let SearchState { is_running, is_wanted, ended, .. } = self.search;
        if is_running || !(is_wanted || away > 0 || self.link.is_none()) {
            return None;
        }
        let is_wrong = |problem: &StoreError| !problem.is_transient();
        let pause = match self.search.problem.as_ref().or(problem.as_ref()) {
            Some(problem) if is_wrong(problem) && (answering == 0 || !self.is_connected()) => PROBE_WRONG,
            _ if answering > 0 && !is_wanted => PROBE_PARTS,
            _ => PROBE,
        };
        Some(ended.map_or_else(Instant::now, |ended| ended + pause))
    }

    /// Whether the search has something to do, now or later.
    pub(super) fn has_work(&self) -> bool {
        self.notices.is_behind() || self.search_due().is_some()
    }
}

impl<B: Backend> Worker<B> {
    pub(super) async fn look_after_servers(self: Arc<Self>) {
        loop {
            self.report();
            let (due, behind) = {
                let state = self.state();
                let behind = state.notices.is_behind().then(|| state.notices.next()).flatten();
                (state.search_due(), behind.map(Instant::from_std))
            };
            tokio::select! {
                () = at(due), if due.is_some() => self.search().await,
                () = at(behind), if behind.is_some() => {}
                () = self.wanted.notified() => {}
            }
        }
    }

    /// Starts a search, because a connection is of no use, or leads to the wrong place.
    pub(super) fn want_search(&self) {
        self.state().search.is_wanted = true;
        self.wanted.notify_one();
    }

    async fn search(&self) {
        let (before, suspects) = {
            let mut state = self.state();
            (state.search.is_wanted, state.search.is_running) = (false, true);
            (state.link.clone(), state.servers.away())
        };
        let patience = self.known.round_trip().connecting().max(CONNECTING);
        let found = self.found(before.as_deref(), &suspects, patience).await;
        self.take_in(found);
        self.searched.notify_waiters();
    }

    /// Returns a link, each server of which was asked what inquiries ask: something is written, and soon forgotten.
    async fn found(
        &self,
        before: Option<&B>,
        suspects: &[Endpoint],
        patience: Duration,
    ) -> Result<FoundStore<B>, StoreError> {
        let until = Deadline::after(patience);
        let link = match before {
            Some(before) => before.successor(suspects, until).await?,
            None => B::open(&self.address, until).await?,
        };
        // Finds versions that are too old, whatever else they do.
        let began = Instant::now();
        let facts = link.facts(Deadline::after(patience)).await?;
        let trip = (facts.len() == link.servers().len()).then(|| began.elapsed());
        Ok(FoundStore { probed: self.probed(&link).await, link, facts, trip })
    }

    /// Has each connected server write something. Returns for each server the error, if there was one.
    pub(super) async fn probed(&self, link: &B) -> Vec<(Endpoint, Option<StoreError>)> {
        let (servers, calls): (Vec<Endpoint>, Vec<Call<'_>>) = calls(link, &self.probe).into_iter().unzip();
        let answers = link.run(&calls, Deadline::after(self.deadline)).await;
        let errors =
            answers.into_iter().map(|answer| answer.and_then(|value| inquiry::answers(&value, 1)).err());
        servers.into_iter().zip(errors).collect()
    }

    fn take_in(&self, found: Result<FoundStore<B>, StoreError>) {
        let mut state = self.state();
        (state.search.is_running, state.search.ended) = (false, Some(Instant::now()));
        match found {
            Ok(FoundStore { link, probed, facts, trip }) => {
                state.servers.connected(link.servers());
                for (server, error) in probed {
                    state.servers.probed(&server, error);
                }
                state.link = Some(Arc::new(link));
                (state.search.problem, state.search.is_left) = (None, false);
                let Met { number, servers } = &state.search.met;
                let is_known =
                    |server: &ServerFacts| servers.iter().any(|other| other.is_same_server(server));
                let is_new = !facts.iter().all(is_known);
                self.note_facts(&facts);
                state.search.met = Met { number: number + u64::from(is_new), servers: facts.into() };
                if let Some(trip) = trip {
                    self.known.round_trip().took(trip, 1);
                }
            }
            Err(error) => {
                if error.is_late() {
                    self.known.round_trip().missed();
                }
                if std::mem::take(&mut state.search.is_left) {
                    // What this host counted there would not be seen by any other host.
                    state.link = None;
                    state.servers.connected([]);
                }
                // A server that comes back is connected to anew, and is looked for until then.
                state.search.met.servers = Arc::default();
                state.search.is_wanted |= !state.is_connected();
                state.search.problem = Some(error.clone());
                state.servers.not_found(error);
            }
        }
    }
}

/// Waits until a moment.
pub(super) async fn at(moment: Option<Instant>) {
    tokio::time::sleep_until(moment.unwrap_or_else(Instant::now)).await;
}

/// Makes one call for each server that there is a connection to.
fn calls(link: &impl Backend, probe: &Probe) -> Vec<(Endpoint, Call<'static>)> {
    let connected = link.servers().into_iter().filter(|(_, problem)| problem.is_none());
    let mut missing: Vec<Endpoint> = connected.map(|(server, _)| server).collect();
    let mut calls = Vec::with_capacity(missing.len());
    for n in 0..MOST_KEYS {
        if missing.is_empty() {
            break;
        }
        let Some(call) = call(n, probe) else { break };
        let Some(server) = link.server_of(&call) else { continue };
        if let Some(nth) = missing.iter().position(|other| *other == server) {
            missing.swap_remove(nth);
            calls.push((server, call));
        }
    }
    calls
}

fn call(n: u32, probe: &Probe) -> Option<Call<'static>> {
    let Probe { name, host, recent_us, is_sharded } = probe;
    let meter = Meter::Bucket(RequestBucket::new(UNITS, LIFE_US, UNITS));
    let asked = Inquiry {
        key: format!("{name}:{FORM}:{{{n}}}:probe"),
        limits: vec![CountedLimit::plain(meter)],
        // Spending writes the record. A refund does not, where nothing was spent.
        ask: Ask { spend: 1, ..Ask::default() },
    };
    inquiry::calls(host, *recent_us, &[&asked], *is_sharded, 0).pop().map(|(_, call)| call)
}
