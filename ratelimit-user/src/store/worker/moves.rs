//! Leaves a server that is not the store any more, although it still answers.
//!
//! A master that stood still, or that its Sentinels could not reach, is replaced, and may go on taking writes until somebody tells it. Hosts that stay
//! with such a master would count in a second store. Nobody waits for what happens here.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use super::{Worker, search::CONNECTING};
use crate::{
    log,
    store::{backend::Backend, deadline::Deadline},
};

/// How often the servers are asked that know where the store is.
const PERIOD: Duration = Duration::from_secs(1);

impl<B: Backend> Worker<B> {
    pub(super) async fn look_for_moves(self: Arc<Self>) {
        let mut times = interval(PERIOD);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            let Some(link) = self.link() else { continue };
            let patience = self.known.round_trip().connecting().max(CONNECTING);
            if link.has_moved(Deadline::after(patience)).await {
                self.leave(&link);
            }
        }
    }

    /// Has the search look for the store elsewhere, unless the link has been replaced meanwhile.
    fn leave(&self, link: &Arc<B>) {
        let mut state = self.state();
        if !state.link.as_ref().is_some_and(|now| Arc::ptr_eq(now, link)) {
            return;
        }
        (state.search.is_left, state.search.is_wanted) = (true, true);
        drop(state);
        self.wanted.notify_one();
        log::warning(format!(
            "the store at {} is another server by now than the one in use, which may still answer; going there",
            self.address
        ));
    }
}
