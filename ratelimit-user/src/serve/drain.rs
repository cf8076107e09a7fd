//! The end of service: no new connections, answers to what was asked, and an end to every connection within seconds.
//!
//! Answers over HTTP say that their connection ends, gRPC tells callers to ask elsewhere, and RESP closes behind an answer. Connections without a question
//! end half a second later, so that callers who use theirs have heard of it.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::places::ConnectionPlaces;

/// How long connections without a question stay open.
const IDLE: Duration = Duration::from_millis(500);
/// The time between two looks for connections without a question.
const LOOK: Duration = Duration::from_millis(20);
/// How long the end of service takes at most.
pub(crate) const MOST: Duration = Duration::from_secs(5);

/// Ends the service of some listeners.
#[derive(Debug)]
pub struct Drain {
    /// Every listener and every connection subscribes, so its receivers are gone when they are.
    begun: watch::Sender<bool>,
    places: Vec<Arc<ConnectionPlaces>>,
}

/// A connection's view of the end of service.
#[derive(Clone, Debug)]
pub struct Draining(watch::Receiver<bool>);

impl Drain {
    /// Makes the end of service for connections that have these places.
    pub(super) fn new(places: Vec<Arc<ConnectionPlaces>>) -> Self {
        Self { begun: watch::Sender::new(false), places }
    }

    /// Returns the view of a listener, which its connections clone.
    pub(super) fn subscribe(&self) -> Draining {
        Draining(self.begun.subscribe())
    }

    /// Ends the service. Returns when every connection has ended, or after five seconds.
    pub async fn run(&self) {
        let begun = Instant::now();
        self.begun.send_replace(true);
        while timeout(LOOK, self.begun.closed()).await.is_err() && begun.elapsed() < MOST {
            if begun.elapsed() >= IDLE {
                self.places.iter().for_each(|places| places.evict_idle());
            }
        }
    }
}

impl Draining {
    /// Whether the end of service has begun. Costs the read of one number.
    pub fn has_begun(&self) -> bool {
        self.0.has_changed().unwrap_or(false)
    }

    /// Waits until the end of service begins.
    pub async fn begun(&self) {
        let mut begun = self.0.clone();
        if begun.changed().await.is_err() {
            // The service cannot end any more, except with the process.
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn an_end_without_connections_comes_at_once() {
        let drain = Drain::new(Vec::new());
        let draining = drain.subscribe();
        assert!(!draining.has_begun() && draining.begun().now_or_never().is_none());
        let mut end = Box::pin(drain.run());
        assert_eq!(end.as_mut().now_or_never(), None, "there is a connection");
        assert!(draining.clone().has_begun() && draining.begun().now_or_never().is_some());
        drop(draining);
        assert_eq!(end.as_mut().now_or_never(), Some(()));
    }

    #[test]
    fn an_end_that_cannot_come_is_waited_for() {
        let draining = Drain::new(Vec::new()).subscribe();
        assert!(!draining.has_begun() && draining.begun().now_or_never().is_none());
    }
}
