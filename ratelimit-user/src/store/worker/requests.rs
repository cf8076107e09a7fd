//! Inquiries of requests: inquiries that come while a batch is under way go with the next batch. No request waits longer than a deadline, and none waits
//! at all for servers that count as away ([`super::servers`]).

use std::{
    collections::{BTreeMap, btree_map},
    sync::{Arc, atomic::Ordering},
};

use tokio::sync::{mpsc, oneshot};

use super::{
    Unavailable, Worker,
    search::{Probe, at},
};
use crate::{
    policy::address::Endpoint,
    store::{
        ask::Told,
        backend::Backend,
        deadline::Deadline,
        inquiry::{self, Inquiry},
        redis::{Call, StoreError},
    },
};

/// Messages of requests in one batch: a call for each server or slot.
const BATCH: usize = 1_000;

/// One answer for each inquiry: a part of a cluster may be away.
pub(super) type Answers = Vec<Result<Told, Unavailable>>;

/// Inquiries that go to the store together, and where their answers go.
pub(super) struct Inquiries {
    pub(super) inquiries: Arc<[Inquiry]>,
    pub(super) answer: Option<oneshot::Sender<Answers>>,
}

/// Deals the answers of a batch to those who asked, each of whom has asked for a number of them.
fn dealt<Q>(answers: Answers, askers: Vec<(usize, Q)>) -> impl Iterator<Item = (Answers, Q)> {
    let mut answers = answers.into_iter();
    askers.into_iter().map(move |(count, asker)| (answers.by_ref().take(count).collect(), asker))
}

impl<B: Backend> Worker<B> {
    /// Serves inquiries until nobody has a handle of the store any more.
    pub(super) async fn serve_requests(&self, mut queue: mpsc::Receiver<Inquiries>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let due = self.known.resets().due();
            tokio::select! {
                count = queue.recv_many(&mut batch, BATCH) => if count == 0 { break },
                () = at(due), if due.is_some() => {}
                () = self.known.reset_wanted.notified() => {}
            }
            self.serve(std::mem::take(&mut batch)).await;
            self.report();
            if self.state().has_work() {
                self.wanted.notify_one();
            }
        }
    }

    async fn serve(&self, batch: Vec<Inquiries>) {
        let (mut inquiries, mut waiting) = (Vec::new(), Vec::new());
        for Inquiries { inquiries: asked, answer } in batch {
            waiting.push((asked.len(), answer));
            inquiries.push(asked);
        }
        self.reconnect().await;
        self.forget().await;
        let inquiries: Vec<&Inquiry> = inquiries.iter().flat_map(|asked| asked.iter()).collect();
        let answers = self.ask(&inquiries).await;
        for (told, answer) in dealt(answers, waiting) {
            // The caller may have stopped waiting.
            let _gone = answer.map(|answer| answer.send(told));
        }
        self.reconnect().await;
    }

    /// Connects again where a connection has just been lost. Most were only idle for too long; those that cannot be had again at once are looked
    /// for while others are asked.
    async fn reconnect(&self) {
        let Some(link) = self.link() else { return };
        let mut servers = link.servers();
        let is_news = |(server, problem): &(Endpoint, Option<StoreError>)| {
            problem.is_some() && !self.state().servers.is_away(server)
        };
        if !servers.iter().any(is_news) {
            return;
        }
        let successor = link.successor(&[], Deadline::after(self.deadline)).await;
        let mut state = self.state();
        match successor {
            Ok(successor) => {
                servers = successor.servers();
                state.link = Some(Arc::new(successor));
                // The connection may lead to another server by now: the search finds out.
                state.search.is_wanted = true;
            }
            Err(error) => {
                servers.iter_mut().filter_map(|(_, problem)| problem.as_mut()).for_each(|problem| {
                    problem.clone_from(&error);
                });
            }
        }
        state.servers.connected(servers);
    }

    /// Asks the store, and returns one answer for each inquiry.
    async fn ask(&self, inquiries: &[&Inquiry]) -> Answers {
        let mut answers = vec![Err(Unavailable); inquiries.len()];
        let Some(link) = self.link() else { return answers };
        if inquiries.is_empty() || self.state().servers.condition().answering == 0 {
            return answers;
        }
        self.known.asked.fetch_add(inquiries.len() as u64, Ordering::Relaxed);
        let Probe { host, recent_us, is_sharded, .. } = &self.probe;
        let mut calls = inquiry::calls(host, *recent_us, inquiries, *is_sharded, self.clock.now_us());
        // A server that was late too often, or takes no writes, is left to the search; its connection stays, for callers that can wait longer.
        calls.retain(|(_, call)| {
            !link.server_of(call).is_some_and(|server| self.state().servers.is_left_alone(&server))
        });
        let (places, calls): (Vec<Vec<usize>>, Vec<Call<'_>>) = calls.into_iter().unzip();
        let mut heard: BTreeMap<Endpoint, Option<StoreError>> = BTreeMap::new();
        let mut is_wanted = false;
        let values = link.run(&calls, Deadline::after(self.deadline)).await;
        for ((places, call), value) in places.iter().zip(&calls).zip(values) {
            let error = match value.and_then(|value| inquiry::answers(&value, places.len())) {
                Ok(told) => {
                    places.iter().zip(told).for_each(|(at, told)| answers[*at] = Ok(told));
                    None
                }
                Err(error) => Some(error),
            };
            is_wanted |= error.as_ref().is_some_and(|error| error.needs_reconnect() && !error.is_late());
            let Some(server) = link.server_of(call) else { continue };
            let refuses_writes =
                |error: &Option<StoreError>| error.as_ref().is_some_and(StoreError::refuses_writes);
            match heard.entry(server) {
                btree_map::Entry::Vacant(place) => _ = place.insert(error),
                // One refused write is enough to know that the server takes none. Otherwise one answer is enough to know that it answers.
                btree_map::Entry::Occupied(known) if refuses_writes(known.get()) => {}
                btree_map::Entry::Occupied(mut known) if error.is_none() || refuses_writes(&error) => {
                    *known.get_mut() = error;
                }
                btree_map::Entry::Occupied(_) => {}
            }
        }
        let mut state = self.state();
        state.search.is_wanted |= is_wanted;
        for (server, error) in heard {
            state.servers.heard(&server, error);
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_answer_shifts_no_answer_to_another_question() {
        let told = |free| {
            Ok(Told {
                spent: true,
                wait_us: 0,
                granted: 0,
                free,
                nearest: 0,
                more_us: 0,
                violated: 0,
                above: false,
                holds: 0,
                heard: 0,
            })
        };
        let answers = vec![told(1), Err(Unavailable), told(3), told(4), told(5)];
        let dealt: Vec<(Answers, &str)> = dealt(answers, vec![(1, "a"), (3, "b"), (1, "c")]).collect();
        let expected =
            [(vec![told(1)], "a"), (vec![Err(Unavailable), told(3), told(4)], "b"), (vec![told(5)], "c")];
        assert_eq!(dealt, expected);
    }
}
