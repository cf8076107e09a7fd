//! Answers that are held until it is the request's turn. Its place is given back if the caller does not wait for it.

use std::{sync::Arc, time::Duration};

use super::{super::desk::Desk, forwarded::Origin, question::Question};

/// Waits for the turn of a request that has been charged.
pub(super) async fn until_its_turn(desk: &Arc<Desk>, question: &Question<'_>, origin: Origin, wait_us: u64) {
    let mut place = Place { desk: Arc::clone(desk), held: Some((question.clone().into_owned(), origin)) };
    tokio::time::sleep(Duration::from_micros(wait_us)).await;
    place.held = None;
}

/// A place in a queue. The server drops the future that waits when the connection ends, and this with it.
struct Place {
    desk: Arc<Desk>,
    held: Option<(Question<'static>, Origin)>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((question, origin)) = self.held.take() else { return };
        // At the end of the process there is no runtime any more, and nothing to give back to.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let desk = Arc::clone(&self.desk);
        runtime.spawn(async move {
            let parts = question.parts();
            desk.give_back(&question.request(origin, &parts)).await;
        });
    }
}
