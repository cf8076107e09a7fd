//! Inquiries of requests: inquiries that come while a batch is under way go with the next batch, which begins soon if that batch takes long. Everybody is
//! answered when their own calls are, whatever becomes of the others. No request waits longer than a deadline, and none waits at all for servers that
//! count as away ([`super::servers`]).

use std::{
    collections::{BTreeMap, btree_map},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

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
        redis::{Call, StoreError, Value},
    },
};

/// Messages of requests in one batch: a call for each server or slot.
const BATCH: usize = 1_000;
/// How long after a batch the next one begins, although the one before has no answer yet.
const NEXT_BATCH: Duration = Duration::from_millis(2);
/// The most batches that are under way: as many as begin while a server is waited for until the deadline.
const BATCHES: usize = 25;

/// One answer for each inquiry: a part of a cluster may be away.
pub(super) type Answers = Vec<Result<Told, Unavailable>>;

/// Inquiries that go to the store together, and where their answers go.
pub(super) struct Inquiries {
    pub(super) inquiries: Arc<[Inquiry]>,
    pub(super) answer: Option<oneshot::Sender<Answers>>,
}

/// The answers to the inquiries of one message, as they come.
struct PartialAnswers {
    answers: Answers,
    missing: usize,
    answer: Option<oneshot::Sender<Answers>>,
}

impl PartialAnswers {
    /// Takes the answer to one inquiry. The last one sends all.
    fn take(&mut self, nth: usize, answer: Result<Told, Unavailable>) {
        self.answers[nth] = answer;
        self.missing -= 1;
        if self.missing == 0 {
            self.send();
        }
    }

    fn send(&mut self) {
        if let Some(answer) = self.answer.take() {
            // The caller may have stopped waiting.
            let _gone = answer.send(std::mem::take(&mut self.answers));
        }
    }
}

impl<B: Backend> Worker<B> {
    /// Serves inquiries until nobody has a handle of the store any more. A batch that takes long does not hold back the next.
    pub(super) async fn serve_requests(&self, mut queue: mpsc::Receiver<Inquiries>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut under_way = FuturesUnordered::new();
        let mut next = Instant::now();
        loop {
            let due = self.known.resets().due();
            let has_room = under_way.len() < BATCHES;
            let may_begin = under_way.is_empty() || (has_room && Instant::now() >= next);
            let has_work = tokio::select! {
                Some(()) = under_way.next(), if !under_way.is_empty() => false,
                () = at(Some(next)), if has_room && !may_begin => false,
                count = queue.recv_many(&mut batch, BATCH), if may_begin => if count == 0 { break } else { true },
                () = at(due), if may_begin && due.is_some() => true,
                () = self.known.reset_wanted.notified(), if may_begin => true,
            };
            if has_work {
                under_way.push(self.serve(std::mem::take(&mut batch)));
                next = Instant::now() + NEXT_BATCH;
            }
            self.report();
            if self.state().has_work() {
                self.wanted.notify_one();
            }
        }
        while under_way.next().await.is_some() {}
    }

    async fn serve(&self, batch: Vec<Inquiries>) {
        self.reconnect().await;
        self.forget().await;
        self.ask(batch).await;
        self.reconnect().await;
    }

    /// Connects again where a connection has just been lost. Most were only idle for too long; those that cannot be had again at once are looked
    /// for while others are asked.
    async fn reconnect(&self) {
        // Another batch is at it.
        let Ok(_alone) = self.reconnecting.try_lock() else { return };
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

    /// Asks the store, and gives everybody who has asked the answers when all of them are there.
    async fn ask(&self, batch: Vec<Inquiries>) {
        let partial_answers = |Inquiries { inquiries, answer }: Inquiries| {
            let (answers, missing) = (vec![Err(Unavailable); inquiries.len()], inquiries.len());
            (inquiries, PartialAnswers { answers, missing, answer })
        };
        let (asked, mut partial): (Vec<Arc<[Inquiry]>>, Vec<PartialAnswers>) =
            batch.into_iter().map(partial_answers).unzip();
        self.ask_all(&asked, &mut partial).await;
        // What the store was not asked has no answer.
        partial.iter_mut().for_each(PartialAnswers::send);
    }

    async fn ask_all(&self, asked: &[Arc<[Inquiry]>], partial: &mut [PartialAnswers]) {
        let of_asker = |(partial_answers, inquiries): (usize, &Arc<[Inquiry]>)| {
            (0..inquiries.len()).map(move |nth| (partial_answers, nth))
        };
        let of: Vec<(usize, usize)> = asked.iter().enumerate().flat_map(of_asker).collect();
        let inquiries: Vec<&Inquiry> = asked.iter().flat_map(|inquiries| inquiries.iter()).collect();
        let Some(link) = self.link() else { return };
        if inquiries.is_empty() || self.state().servers.condition().answering == 0 {
            return;
        }
        self.known.asked.fetch_add(inquiries.len() as u64, Ordering::Relaxed);
        let Probe { host, recent_us, is_sharded, .. } = &self.probe;
        let calls = inquiry::calls(host, *recent_us, &inquiries, *is_sharded, self.clock.now_us());
        // A server that was late too often, or takes no writes, is left to the search; its connection stays, for callers that can wait longer.
        let (left, calls): (Vec<_>, Vec<_>) = calls.into_iter().partition(|(_, call)| {
            link.server_of(call).is_some_and(|server| self.state().servers.is_left_alone(&server))
        });
        for (partial_answers, nth) in left.iter().flat_map(|(places, _)| places).map(|at| of[*at]) {
            partial[partial_answers].take(nth, Err(Unavailable));
        }
        let (places, calls): (Vec<Vec<usize>>, Vec<Call<'_>>) = calls.into_iter().unzip();
        let mut heard: BTreeMap<Endpoint, Option<StoreError>> = BTreeMap::new();
        let mut is_wanted = false;
        let mut take = |at: usize, value: Result<Value, StoreError>| {
            let places = &places[at];
            let told = value.and_then(|value| inquiry::answers(&value, places.len()));
            for (nth, at) in places.iter().enumerate() {
                let (partial_answers, of_asker) = of[*at];
                partial[partial_answers]
                    .take(of_asker, told.as_ref().map_or(Err(Unavailable), |told| Ok(told[nth])));
            }
            let error = told.err();
            is_wanted |= error.as_ref().is_some_and(|error| error.needs_reconnect() && !error.is_late());
            let Some(server) = link.server_of(&calls[at]) else { return };
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
        };
        let sent = Instant::now();
        link.run_each(&calls, Deadline::after(self.deadline), &mut take).await;
        let mut state = self.state();
        state.search.is_wanted |= is_wanted;
        for (server, error) in heard {
            state.servers.heard_of_batch(&server, error, sent, Instant::now());
        }
    }
}
