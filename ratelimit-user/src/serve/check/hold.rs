//! Answers that are held until the turn of the request. If the caller does not wait, its turn goes to the next caller.

use std::{sync::Arc, time::Duration};

use crate::requests::{Request, decision_service::DecisionService};

/// Waits for the turn of a request that has been charged. The server drops the future that waits when the connection ends, and the turn with it.
pub(super) async fn until_its_turn(decisions: &Arc<DecisionService>, request: &Request<'_>, wait_us: u64) {
    let turn = decisions.turn(request, wait_us);
    tokio::time::sleep(Duration::from_micros(wait_us)).await;
    if let Some(turn) = turn {
        turn.serve();
    }
}
