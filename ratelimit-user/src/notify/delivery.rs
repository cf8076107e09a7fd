//! Sends the messages that wait for one notifier, one after the other. A message that fails is sent again later.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    command,
    pace::{SendingPace, backoff},
    posting::Post,
    queue::Queue,
    undelivered::Undelivered,
    webhook,
};
use crate::{
    log,
    policy::{Notifier, NotifyWay},
};

/// The times and the burst that delivery keeps to.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryTimes {
    /// How long one attempt may take.
    pub attempt: Duration,
    /// The pause after the first failure; later ones are longer.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// A message that has not arrived after this time is given up.
    pub give_up_after: Duration,
    /// Messages that may go out at once.
    pub burst: u32,
    /// The pause between messages after the burst.
    pub every: Duration,
}

impl Default for DeliveryTimes {
    fn default() -> Self {
        Self {
            attempt: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            give_up_after: Duration::from_secs(900),
            burst: 10,
            every: Duration::from_secs(5),
        }
    }
}

/// Sends the messages of a queue for as long as the daemon runs or the task lives.
pub(super) async fn deliver(
    notifier: Notifier,
    queue: Arc<Queue>,
    times: DeliveryTimes,
    post: Arc<dyn Post>,
) {
    let begun = Instant::now();
    let mut pace = SendingPace::new(times.burst, times.every);
    loop {
        let body = queue.next().await;
        tokio::time::sleep(pace.wait(begun.elapsed())).await;
        send(&notifier, &queue, &body, times, &*post).await;
    }
}

async fn send(notifier: &Notifier, queue: &Queue, body: &Arc<[u8]>, times: DeliveryTimes, post: &dyn Post) {
    let (name, begun) = (&notifier.name, Instant::now());
    for failures in 1.. {
        let why = match attempt(notifier, body, times, post).await {
            Ok(()) => {
                if queue.sent() {
                    log::info(format!("notify {name} works again"));
                }
                return;
            }
            Err(why) => why,
        };
        let Undelivered { why, is_final } = why;
        if is_final {
            queue.failed(&why);
            queue.gave_up();
            log::error(format!("notify {name}: a message is given up, later ones are not: {why}"));
            return;
        }
        if queue.failed(&why) {
            log::warning(format!("notify {name}: {why}; it is tried again"));
        }
        let pause = backoff(failures, times.first_pause, times.longest_pause);
        if begun.elapsed() + pause > times.give_up_after {
            queue.gave_up();
            log::error(format!("notify {name}: a message is given up after {failures} attempts: {why}"));
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

async fn attempt(
    notifier: &Notifier,
    body: &Arc<[u8]>,
    times: DeliveryTimes,
    post: &dyn Post,
) -> Result<(), Undelivered> {
    match &notifier.way {
        NotifyWay::Webhook { url, secret_file, ca_file } => {
            let ready = webhook::prepare(url, secret_file.as_deref(), ca_file.as_deref(), body);
            let late = format!("{url}: its files were not read within {} s", times.attempt.as_secs_f64());
            let posting =
                tokio::time::timeout(times.attempt, ready).await.unwrap_or_else(|_| Err(late.into()))?;
            post.post(posting, times.attempt).await
        }
        NotifyWay::Command(words) => Ok(command::run(words, body, times.attempt).await?),
    }
}
