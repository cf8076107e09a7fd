//! Telling others of attacks, through webhooks and commands. Nothing else in the daemon waits for a notifier.
//!
//! ```text
//!   tell -> queue of each notifier (bounded, oldest goes first) -> pace -> one attempt at a time, again later if it fails
//! ```
//!
//! All of this happens on a thread of its own. Only the caller's [`Post`] talks to the server of a webhook.

mod command;
mod delivery;
mod pace;
mod posting;
mod queue;
mod tls;
mod undelivered;
mod webhook;

#[cfg(test)]
mod tests;

use std::{io, sync::Arc, thread};

use serde::Serialize;
use tokio::{runtime::Handle, task::AbortHandle};

pub use delivery::DeliveryTimes;
pub use posting::{Post, Posted, Posting};
pub use queue::NotifierStatus;
pub use undelivered::Undelivered;
pub use webhook::FromHere;

use crate::{
    attacks::AttackReport,
    moment,
    policy::{Notifier, Occasion},
};
use queue::Queue;

/// The notifiers of the policy in force, and the messages that wait for each.
#[derive(Debug)]
pub struct Notifications {
    runtime: Handle,
    times: DeliveryTimes,
    post: Arc<dyn Post>,
    /// The name of this host, as receivers see it.
    host: String,
    told: Vec<Recipient>,
}

/// One notifier, its queue and the task that sends.
#[derive(Debug)]
struct Recipient {
    notifier: Notifier,
    queue: Arc<Queue>,
    task: AbortHandle,
}

/// The message, as JSON. Later versions may add fields, but never rename one.
#[derive(Debug, Serialize)]
struct NotificationJson<'a> {
    version: u32,
    event: &'static str,
    host: &'a str,
    at: String,
    attack: &'a AttackReport,
}

impl Notifications {
    /// Starts the thread, without any notifier yet. `post` sends messages of webhooks.
    pub fn start(host: String, times: DeliveryTimes, post: Arc<dyn Post>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let run = move || runtime.block_on(std::future::pending::<()>());
        thread::Builder::new().name("notify".to_owned()).spawn(run)?;
        Ok(Self { runtime: handle, times, post, host, told: Vec::new() })
    }

    /// Goes over to the notifiers of a policy. Notifiers that stay keep the messages that wait for them.
    pub fn follow(&mut self, notifiers: &[Notifier]) {
        if self.told.iter().map(|told| &told.notifier).eq(notifiers) {
            return;
        }
        let mut before = std::mem::take(&mut self.told);
        for notifier in notifiers {
            let kept =
                before.iter().position(|told| told.notifier == *notifier).map(|at| before.swap_remove(at));
            self.told.push(kept.unwrap_or_else(|| self.begin(notifier.clone())));
        }
        before.iter().for_each(|gone| gone.task.abort());
    }

    fn begin(&self, notifier: Notifier) -> Recipient {
        let queue = Arc::new(Queue::new(notifier.name.clone()));
        let work =
            delivery::deliver(notifier.clone(), Arc::clone(&queue), self.times, Arc::clone(&self.post));
        let task = self.runtime.spawn(work).abort_handle();
        Recipient { notifier, queue, task }
    }

    /// Queues a message for every notifier that wants this occasion. Returns at once.
    pub fn tell(&self, occasion: Occasion, report: &AttackReport, unix_ms: u64) {
        let mut wanting = self.told.iter().filter(|told| told.notifier.on.contains(&occasion)).peekable();
        if wanting.peek().is_none() {
            return;
        }
        let at = moment::utc_ms(unix_ms);
        let body =
            NotificationJson { version: 1, event: occasion.name(), host: &self.host, at, attack: report };
        // A report consists of numbers and texts, so it can always be written as JSON.
        let body: Arc<[u8]> = serde_json::to_vec(&body).unwrap_or_default().into();
        wanting.for_each(|told| told.queue.push(Arc::clone(&body)));
    }

    /// Returns the state of each notifier.
    pub fn status(&self) -> Vec<NotifierStatus> {
        self.told.iter().map(|told| told.queue.status()).collect()
    }

    /// Returns one sentence for each notifier whose last attempt failed.
    pub fn warnings(&self) -> Vec<String> {
        let failing = |status: NotifierStatus| {
            let problem = status.problem?;
            Some(format!("notify {}: {problem}; {} wait to be sent", status.name, status.waiting))
        };
        self.status().into_iter().filter_map(failing).collect()
    }
}
