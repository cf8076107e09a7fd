//! What the dashboard is shown of this host, and what is ordered there.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::mpsc;

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
        desk::{Camera, Desk, Handed},
        picture::{MAX_HOSTS, Picture},
    },
};

/// The table of sources is counted at most this often: with a million of them it takes a while.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// And at most this part of the time.
const COUNT_SHARE: u32 = 20;
/// Whoever takes the pictures.
#[derive(Debug)]
struct HostCamera {
    daemon: Arc<Daemon>,
    counters: Option<Snapshot>,
    /// When the last picture was taken.
    before: Option<Instant>,
    decisions: DecisionHistory,
    /// The status with its table counted, when that began and how long it took.
    counted: Option<(Status, Instant, Duration)>,
}

/// Takes a picture a second while somebody looks.
pub(super) async fn show(daemon: Arc<Daemon>, desk: Desk) {
    let begin = || HostCamera {
        daemon: Arc::clone(&daemon),
        counters: None,
        before: None,
        decisions: DecisionHistory::default(),
        counted: None,
    };
    desk.show(begin).await;
}

impl Camera for HostCamera {
    async fn take(&mut self) -> Option<Bytes> {
        let now = Instant::now();
        let status = self.status(now).await.ok()?;
        let span = self.before.replace(now).map_or(Duration::ZERO, |before| now - before);
        let counters = self.daemon.snapshot().await.ok()?;
        let packets = self.counters.replace(counters.clone());
        let packets = packets.map(|earlier| PacketRates::between(&earlier, &counters, span));
        let hosts = if status.cluster.is_some() { hosts(&self.daemon).await } else { Vec::new() };
        let decisions = self.decisions.rates(status.requests.clone(), span);
        let picture = Picture {
            packets,
            status: Some(&status),
            hosts: &hosts,
            decisions: &decisions,
            uptime_seconds: status.uptime_seconds,
            warnings: &status.warnings,
        };
        picture.event()
    }
}

impl HostCamera {
    /// The status, with the table as it was last counted.
    async fn status(&mut self, now: Instant) -> Result<Status, Failure> {
        let is_due = |(_, begun, took): &(Status, Instant, Duration)| {
            now.duration_since(*begun) >= COUNT_EVERY.max(*took * COUNT_SHARE)
        };
        match &self.counted {
            Some(counted) if !is_due(counted) => Ok(status(&self.daemon.host()).with_table_of(&counted.0)),
            _ => {
                let status = self.daemon.status().await?;
                self.counted = Some((status.clone(), now, now.elapsed()));
                Ok(status)
            }
        }
    }
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
