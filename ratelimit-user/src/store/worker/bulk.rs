//! Jobs that no request waits for: leases of packets, blocks, members. Each is calls with a deadline and a place for the answers.
//!
//! Jobs share the connections of requests, and a server answers one connection in the order of its questions. So a job is sent in pieces, few of
//! which are on their way at a time: a question of a request waits behind those, and not behind the whole job.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesOrdered};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::Worker;
use crate::store::{
    backend::Backend,
    deadline::Deadline,
    redis::{Call, ServerFacts, StoreError, Value},
};

/// Keys in one piece, three for each record, unless a single call has more: about 4 ms of a server's time, or of all masters together in a Redis Cluster.
const PIECE: usize = 750;
/// Keys of one record, at least.
const KEYS_OF_RECORD: usize = 3;
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
        let answers = in_pieces(&*link, calls, most, Deadline::after(deadline)).await;
        let errors = || answers.iter().filter_map(|answer| answer.as_ref().err());
        if errors().next().is_none() && !calls.is_empty() {
            let keys: usize = calls.iter().map(|call| call.keys.len()).sum();
            self.known.round_trip().took(began.elapsed(), keys / KEYS_OF_RECORD);
        }
        if errors().count() == answers.len() && errors().any(StoreError::is_late) {
            self.known.round_trip().missed();
        } else if errors().any(StoreError::is_overloaded) {
            self.known.round_trip().busy();
        }
        if errors().any(StoreError::needs_reconnect) {
            self.want_search();
        }
        answers
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
