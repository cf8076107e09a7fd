//! The queue of messages that wait to be sent to one notifier, and the state of the notifier.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// The largest number of bodies that wait; beyond it the oldest is lost.
const MOST: usize = 32;

/// A queue of bodies with one reader.
#[derive(Debug)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    filled: Notify,
}

#[derive(Debug)]
struct Inner {
    bodies: VecDeque<Arc<[u8]>>,
    status: NotifierStatus,
}

/// The state of one notifier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifierStatus {
    /// The name of the notifier.
    pub name: String,
    /// Messages that arrived.
    pub sent: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Messages that were given up, or that left the queue for want of room.
    pub lost: u64,
    /// Messages that wait.
    pub waiting: u64,
    /// Why the last attempt failed, if it did.
    pub problem: Option<String>,
}

impl Queue {
    pub(super) fn new(name: String) -> Self {
        let status = NotifierStatus { name, ..NotifierStatus::default() };
        Self { inner: Mutex::new(Inner { bodies: VecDeque::new(), status }), filled: Notify::new() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a body; if the queue is full, the oldest body is lost.
    pub(super) fn push(&self, body: Arc<[u8]>) {
        let mut inner = self.inner();
        if inner.bodies.len() >= MOST {
            inner.bodies.pop_front();
            inner.status.lost += 1;
        }
        inner.bodies.push_back(body);
        drop(inner);
        self.filled.notify_one();
    }

    /// Waits until there is a body, and takes it out of the queue.
    pub(super) async fn next(&self) -> Arc<[u8]> {
        loop {
            if let Some(body) = self.inner().bodies.pop_front() {
                return body;
            }
            self.filled.notified().await;
        }
    }

    /// Counts an attempt that failed, and returns whether the attempt before had succeeded.
    pub(super) fn failed(&self, why: &str) -> bool {
        let mut inner = self.inner();
        inner.status.failures += 1;
        inner.status.problem.replace(why.to_owned()).is_none()
    }

    /// Counts a message that arrived, and returns whether the attempt before had failed.
    pub(super) fn sent(&self) -> bool {
        let mut inner = self.inner();
        inner.status.sent += 1;
        inner.status.problem.take().is_some()
    }

    /// Counts a message that is given up.
    pub(super) fn gave_up(&self) {
        self.inner().status.lost += 1;
    }

    pub(super) fn status(&self) -> NotifierStatus {
        let inner = self.inner();
        NotifierStatus { waiting: inner.bodies.len() as u64, ..inner.status.clone() }
    }
}
