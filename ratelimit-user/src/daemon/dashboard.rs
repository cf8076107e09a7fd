//! What the dashboard is shown of this host, and what is ordered there.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::{Mutex, mpsc};

use super::{packet_rates::PacketRates, service::Daemon, status::status};
use crate::{
    cluster::members::Member,
    control::{
        protocol::{Order, Reply, Status},
        server::{Answer as _, Caller},
    },
    failure::Failure,
    stats::Snapshot,
    web::{
        decisions::DecisionHistory,
        desk::{Desk, Handed},
        picture::{MAX_HOSTS, Picture},
    },
};

/// The table of sources is counted at most this often: with a million of them it takes a while.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// And at most this part of the time.
const COUNT_SHARE: u32 = 20;

/// What was seen when the last picture was taken.
#[derive(Debug, Default)]
struct Before {
    at: Option<Instant>,
    decisions: DecisionHistory,
    counters: Option<Snapshot>,
    /// The status with its table counted, when that began and how long it took.
    counted: Option<(Status, Instant, Duration)>,
}

/// Takes a picture a second while somebody looks.
pub(super) async fn show(daemon: Arc<Daemon>, desk: Desk) {
    let before = Mutex::new(Before::default());
    let take = async |is_first: bool| {
        let mut before = before.lock().await;
        if is_first {
            // Rates over the time in which nobody looked would say nothing.
            *before = Before { counted: before.counted.take(), ..Before::default() };
        }
        take(&daemon, &mut before).await.ok().flatten()
    };
    desk.show(take).await;
}

async fn take(daemon: &Daemon, before: &mut Before) -> Result<Option<Bytes>, Failure> {
    let now = Instant::now();
    let status = current_status(daemon, &mut before.counted, now).await?;
    let counters = daemon.snapshot().await?;
    let span = before.at.replace(now).map_or(Duration::ZERO, |at| now - at);
    let packets = before
        .counters
        .replace(counters.clone())
        .map(|earlier| PacketRates::between(&earlier, &counters, span));
    let hosts = if status.cluster.is_some() { hosts(daemon).await } else { Vec::new() };
    let decisions = before.decisions.rates(status.requests.clone(), span);
    let picture = Picture {
        packets,
        status: Some(&status),
        hosts: &hosts,
        decisions: &decisions,
        uptime_seconds: status.uptime_seconds,
        warnings: &status.warnings,
    };
    Ok(picture.event())
}

/// The status, with the table as it was last counted, which takes a while.
async fn current_status(
    daemon: &Daemon,
    counted: &mut Option<(Status, Instant, Duration)>,
    now: Instant,
) -> Result<Status, Failure> {
    let is_due = |(_, begun, took): &(Status, Instant, Duration)| {
        now.duration_since(*begun) >= COUNT_EVERY.max(*took * COUNT_SHARE)
    };
    if counted.as_ref().is_none_or(is_due) {
        let status = daemon.status().await?;
        *counted = Some((status.clone(), now, now.elapsed()));
        return Ok(status);
    }
    let status = status(&daemon.host());
    Ok(match counted {
        Some((earlier, ..)) => status.with_table_of(earlier),
        None => status,
    })
}

async fn hosts(daemon: &Daemon) -> Vec<Member> {
    match daemon.answer(Order::Cluster, Caller::Dashboard { from: None }).await {
        Reply::Cluster { mut hosts, .. } => {
            hosts.truncate(MAX_HOSTS);
            hosts
        }
        _ => Vec::new(),
    }
}

/// Carries out what is asked and ordered in the dashboard, one at a time. After each there is as long a pause as it took, so that all of
/// them together cost half of a CPU at most.
pub(super) async fn take_orders(daemon: Arc<Daemon>, mut orders: mpsc::Receiver<Handed>) {
    while let Some(Handed { order, from, reply }) = orders.recv().await {
        let begun = Instant::now();
        // Who has hung up meanwhile gets no answer; the order counts.
        let _unread = reply.send(daemon.answer(order, Caller::Dashboard { from }).await);
        tokio::time::sleep(begun.elapsed()).await;
    }
}
