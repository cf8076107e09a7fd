//! Renews leases in the background, many at a time.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{leases::RequestLeases, renewal::Renewal};
use crate::{
    clock::Clock,
    store::{
        inquiry::{Inquiry, LINES},
        worker::Store,
    },
};

/// The most leases that wait to be renewed. One more is renewed later, or when somebody has to wait for it.
const QUEUE: usize = 10_000;
/// How long renewals are gathered: a call of the store with many of them costs it far less than many calls, and nobody waits.
const GATHER: Duration = Duration::from_millis(10);

/// The queue of the task that renews leases.
#[derive(Debug)]
pub(super) struct Renewals {
    queue: mpsc::Sender<Renewal>,
    leases: Arc<RequestLeases>,
}

impl Renewals {
    /// Starts the task, on the thread of the store worker.
    pub(super) fn begin(store: &Store, leases: &Arc<RequestLeases>, clock: Clock) -> Self {
        let (queue, due) = mpsc::channel(QUEUE);
        store.runtime().spawn(run(store.clone(), Arc::clone(leases), clock, due));
        Self { queue, leases: Arc::clone(leases) }
    }

    /// Queues a lease for renewal. The renewal fails if the queue is full.
    pub(super) fn push(&self, renewal: Renewal) {
        if let Err(refused) = self.queue.try_send(renewal) {
            refused.into_inner().failed(&self.leases);
        }
    }
}

/// Renews leases until the queue is closed.
async fn run(store: Store, leases: Arc<RequestLeases>, clock: Clock, mut queue: mpsc::Receiver<Renewal>) {
    let mut due = Vec::with_capacity(LINES);
    while queue.recv_many(&mut due, LINES).await > 0 {
        let inquiries: Arc<[Inquiry]> = due.iter().map(|renewal| renewal.inquiry.clone()).collect();
        let told = store.ask(inquiries, store.patience()).await.unwrap_or_default();
        let now_us = clock.now_us();
        for (nth, renewal) in due.iter().enumerate() {
            match told.get(nth) {
                Some(Ok(told)) => renewal.answered(told, &leases, now_us),
                _ => renewal.failed(&leases),
            }
        }
        if due.len() < LINES {
            tokio::time::sleep(GATHER).await;
        }
        due.clear();
    }
}
