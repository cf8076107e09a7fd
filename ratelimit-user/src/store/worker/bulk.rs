//! Jobs that no request waits for: leases of packets, blocks, members. Each is calls with a deadline and a place for the answers.
//!
//! Jobs share the connections of requests, and a server answers one connection in the order of its questions. So a job is sent in pieces, few of
//! which are on their way at a time: a question of a request waits behind those, and not behind the whole job.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesOrdered};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::Worker;
use crate::{
    policy::address::Endpoint,
    store::{
        backend::Backend,
        deadline::Deadline,
        redis::{Call, ServerFacts, StoreError, Value},
    },
};

/// Keys in one piece, unless a single call has more. In a Redis Cluster each record has two, and a piece takes all masters together about 4 ms.
const PIECE: usize = 500;
/// Keys under way: the piece that the server works at, and the next. A call with more is under way alone.
const UNDER_WAY: usize = 2 * PIECE;

/// A job for the store, which no request waits for.
pub(super) enum Job {
    Run {
        calls: Vec<Call<'static>>,
        deadline: Duration,
        answer: oneshot::Sender<Vec<Result<Value, StoreError>>>,
    },
    Meet {
        answer: oneshot::Sender<Result<Met, StoreError>>,
    },
}

/// Servers that were connected to.
#[derive(Clone, Debug, Default)]
pub struct Met {
    /// A number that changes when any server was connected to anew.
    pub number: u64,
    /// What the servers say of themselves.
    pub servers: Arc<[ServerFacts]>,
}

impl<B: Backend> Worker<B> {
    /// Does jobs, as many at a time as there are. The task that has sent a job may have stopped waiting.
    pub(super) async fn do_jobs(self: Arc<Self>, mut queue: mpsc::Receiver<Job>) {
        while let Some(job) = queue.recv().await {
            let worker = Arc::clone(&self);
            tokio::spawn(async move {
                match job {
                    Job::Run { calls, deadline, answer } => {
                        _ = answer.send(worker.run(&calls, deadline).await);
                    }
                    Job::Meet { answer } => _ = answer.send(worker.meet().await),
                }
            });
        }
    }

    async fn run(&self, calls: &[Call<'static>], deadline: Duration) -> Vec<Result<Value, StoreError>> {
        let Some(link) = self.link() else { return vec![Err(self.problem()); calls.len()] };
        let began = Instant::now();
        // Requests have no answer from a store that is so far away, and a job would take one round trip for each of its pieces.
        let is_far = self.known.round_trip().usual() >= self.deadline;
        let most = if is_far { usize::MAX } else { UNDER_WAY };
        let mut answers = Vec::with_capacity(calls.len());
        let (mut places, mut sent) = (Vec::new(), Vec::new());
        for (place, call) in calls.iter().enumerate() {
            match self.late(&*link, call).filter(|_| !is_far) {
                Some(error) => answers.push((place, Err(error))),
                None => {
                    places.push(place);
                    sent.push(call.clone());
                }
            }
        }
        let of_sent = in_pieces(&*link, &sent, most, Deadline::after(deadline)).await;
        self.judge(&*link, &sent, &of_sent, began);
        answers.extend(places.into_iter().zip(of_sent));
        answers.sort_unstable_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Returns the error of a server that is late while others answer. Nothing is sent there, so that the others' leases do not wait for it; the search
    /// finds out when it is back.
    fn late(&self, link: &B, call: &Call<'_>) -> Option<StoreError> {
        let server = link.server_of(call)?;
        let state = self.state();
        let is_one_of_several = state.servers.condition().answering > 0;
        state.servers.late(&server).filter(|_| is_one_of_several).cloned()
    }

    /// Learns from the answers to calls how long answers take, whether the store is too busy, which servers are late while others answer, and whether
    /// connections are of use.
    fn judge(&self, link: &B, calls: &[Call<'static>], answers: &[Result<Value, StoreError>], sent: Instant) {
        let errors = || answers.iter().filter_map(|answer| answer.as_ref().err());
        if errors().next().is_none() && !calls.is_empty() {
            // One key of each call is beside the records.
            let records: usize = calls.iter().map(|call| call.keys.len().saturating_sub(1)).sum();
            self.known.round_trip().took(sent.elapsed(), records);
        }
        if errors().count() == answers.len() && errors().any(StoreError::is_late) {
            self.known.round_trip().missed();
        } else if errors().any(StoreError::is_overloaded) {
            self.known.round_trip().busy();
        }
        if errors().any(StoreError::needs_reconnect) {
            self.want_search();
        }
        let mut late: BTreeMap<Endpoint, Option<StoreError>> = BTreeMap::new();
        for (call, answer) in calls.iter().zip(answers) {
            let Some(server) = link.server_of(call) else { continue };
            let error = answer.as_ref().err().filter(|error| error.is_late()).cloned();
            let known = late.entry(server).or_insert_with(|| error.clone());
            *known = known.take().filter(|_| error.is_some());
        }
        if late.values().any(Option::is_none) {
            let mut state = self.state();
            for (server, error) in late.into_iter().filter(|(_, error)| error.is_some()) {
                state.servers.heard_of_batch(&server, error, sent, Instant::now());
            }
        }
    }

    /// Waits for a connection while one is being made, or it is time to make one.
    async fn meet(&self) -> Result<Met, StoreError> {
        let searched = self.searched.notified();
        {
            let mut state = self.state();
            if state.is_connected() {
                return Ok(state.search.met.clone());
            }
            state.search.is_wanted = true;
            self.wanted.notify_one();
            if !state.search.is_running && state.search_due().is_none_or(|due| due > Instant::now()) {
                drop(state);
                return Err(self.problem());
            }
        }
        searched.await;
        let met =
            Some(self.state()).filter(|state| state.is_connected()).map(|state| state.search.met.clone());
        met.ok_or_else(|| self.problem())
    }

    /// Returns why there is no connection.
    fn problem(&self) -> StoreError {
        let state = self.state();
        let of_link = || state.link.as_ref()?.servers().into_iter().find_map(|(_, problem)| problem);
        let unknown = || StoreError::Unreachable {
            at: self.address.to_string(),
            why: "it was not looked for yet".into(),
        };
        state.search.problem.clone().or_else(of_link).unwrap_or_else(unknown)
    }
}

/// Runs calls with at most `most` keys under way, and returns one answer for each, in their order.
async fn in_pieces<B: Backend>(
    link: &B,
    calls: &[Call<'static>],
    most: usize,
    until: Deadline,
) -> Vec<Result<Value, StoreError>> {
    let mut answers = Vec::with_capacity(calls.len());
    let mut under_way = FuturesOrdered::new();
    let mut sizes = VecDeque::new();
    for piece in pieces(calls, PIECE) {
        let size: usize = piece.iter().map(|call| call.keys.len()).sum();
        while !sizes.is_empty() && sizes.iter().sum::<usize>().saturating_add(size) > most {
            answers.extend(under_way.next().await.unwrap_or_default());
            sizes.pop_front();
        }
        if until.is_over() {
            break;
        }
        under_way.push_back(link.run(piece, until));
        sizes.push_back(size);
    }
    while let Some(of_piece) = under_way.next().await {
        answers.extend(of_piece);
    }
    // Calls that there was no time for are as late as the others.
    let at = |call| link.server_of(call).map_or_else(|| "the store".to_owned(), |server| server.to_string());
    let unsent = &calls[answers.len().min(calls.len())..];
    answers.extend(unsent.iter().map(|call| Err(until.missed(&at(call)))));
    answers
}

/// Splits calls into groups with at most `keys` keys, or with one call if that has more.
fn pieces<'c>(calls: &'c [Call<'static>], keys: usize) -> Vec<&'c [Call<'static>]> {
    let (mut pieces, mut start, mut count) = (Vec::new(), 0, 0);
    for (at, call) in calls.iter().enumerate() {
        if count + call.keys.len() > keys && at > start {
            pieces.push(&calls[start..at]);
            (start, count) = (at, 0);
        }
        count += call.keys.len();
    }
    if start < calls.len() {
        pieces.push(&calls[start..]);
    }
    pieces
}
