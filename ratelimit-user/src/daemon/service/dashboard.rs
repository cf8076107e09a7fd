//! What the dashboard is shown of this host, and what is ordered there.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::Daemon;
use crate::{
    cluster::members::Member,
    control::{
        protocol::{Order, Reply, Status},
        server::{Answer as _, Caller},
    },
    daemon::views::status::status,
    failure::Failure,
    stats::{feed::Views, flow::ServiceFlow, talkers::Talker, view::StatsView},
    web::{
        decisions::DecisionHistory,
        gallery::Camera,
        order_queues::Handed,
        picture::{MAX_ATTACKS, MAX_HOSTS, Picture},
    },
};

/// The table of sources is counted at most this often: with a million of them it takes a while.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// Counting the table of sources takes at most this part of the time: a twentieth.
const COUNT_SHARE: u32 = 20;
/// How long a picture waits for a view, which is made once a second.
const VIEW_PATIENCE: Duration = Duration::from_millis(1_500);
/// Talkers of each kind that are told of, of those that send most and of those of whom most is dropped.
const MAX_TALKERS: usize = 20;
/// Services that are told of, the busiest ones.
const MAX_SERVICES: usize = 64;

/// Makes the pictures that the dashboard shows.
#[derive(Debug)]
pub(in crate::daemon) struct HostCamera {
    daemon: Arc<Daemon>,
    views: Views,
    /// When the last picture was taken.
    before: Option<Instant>,
    decisions: DecisionHistory,
    /// The status with its table counted, when that began and how long it took.
    counted: Option<(Status, Instant, Duration)>,
}

impl Camera for HostCamera {
    async fn take(&mut self) -> Option<Bytes> {
        // The first picture does not wait: how the host is can be told at once.
        let mut view = None;
        if self.before.is_some() {
            let _late = tokio::time::timeout(VIEW_PATIENCE, self.views.changed()).await;
            view.clone_from(&*self.views.borrow_and_update());
        }
        let now = Instant::now();
        let status = self.status(now).await.ok()?;
        let span = self.before.replace(now).map_or(Duration::ZERO, |before| now - before);
        let hosts = if status.cluster.is_some() { hosts(&self.daemon).await } else { Vec::new() };
        let mut attacks = self.daemon.host().attacks.list();
        attacks.truncate(MAX_ATTACKS);
        let decisions = self.decisions.rates(status.requests.clone(), span);
        let picture = Picture {
            packets: view.map(|view| cut((*view).clone())),
            status: Some(&status),
            hosts: &hosts,
            attacks: Some(&attacks),
            decisions: &decisions,
            uptime_seconds: status.uptime_seconds,
            warnings: &status.warnings,
        };
        picture.event()
    }
}

impl HostCamera {
    /// A camera that begins to look at the traffic.
    pub(in crate::daemon) fn new(daemon: &Arc<Daemon>) -> Self {
        Self {
            daemon: Arc::clone(daemon),
            views: daemon.views(),
            before: None,
            decisions: DecisionHistory::default(),
            counted: None,
        }
    }

    /// The status, with the table as it was last counted.
    async fn status(&mut self, now: Instant) -> Result<Status, Failure> {
        let is_due = |(_, begun, took): &(Status, Instant, Duration)| {
            now.duration_since(*begun) >= COUNT_EVERY.max(*took * COUNT_SHARE)
        };
        match &self.counted {
            Some(counted) if !is_due(counted) => {
                self.daemon.front().refresh().await;
                Ok(status(&self.daemon.host()).with_table_of(&counted.0))
            }
            _ => {
                let status = self.daemon.status().await?;
                self.counted = Some((status.clone(), now, now.elapsed()));
                Ok(status)
            }
        }
    }
}

/// As much of a view as a page has room for.
fn cut(mut view: StatsView) -> StatsView {
    for talkers in [&mut view.sources, &mut view.prefixes, &mut view.users] {
        *talkers = largest(std::mem::take(talkers));
    }
    let busy = |service: &ServiceFlow| service.passed.packets_per_second + service.dropped.packets_per_second;
    view.services.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
    view.services.truncate(MAX_SERVICES);
    view
}

/// Those who send most, and those of whom most is dropped, in the order in which they were.
fn largest(talkers: Vec<Talker>) -> Vec<Talker> {
    let mut refused: Vec<u64> = talkers.iter().map(|talker| talker.dropped_packets).collect();
    refused.sort_unstable_by(|one, other| other.cmp(one));
    let enough = refused.get(MAX_TALKERS / 2).copied().unwrap_or(0);
    let kept = talkers.into_iter().enumerate();
    let kept = kept.filter(|(nth, one)| *nth < MAX_TALKERS || one.dropped_packets > enough);
    kept.map(|(_, one)| one).collect()
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

/// Carries out what is asked and what is ordered in the dashboard, one of each at a time. After each there is as long a pause as it took, so that
/// questions cost half of a CPU at most.
pub(in crate::daemon) async fn take_orders(
    daemon: Arc<Daemon>,
    [orders, questions]: [mpsc::Receiver<Handed>; 2],
) {
    tokio::join!(take(&daemon, orders), take(&daemon, questions));
}

async fn take(daemon: &Daemon, mut handed: mpsc::Receiver<Handed>) {
    while let Some(Handed { order, from, reply, .. }) = handed.recv().await {
        let begun = Instant::now();
        // A browser that has hung up meanwhile gets no answer; the order counts.
        let _unread = reply.send(daemon.answer(order, Caller::Dashboard { from }).await);
        tokio::time::sleep(begun.elapsed()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talker(name: &str, passed_packets: u64, dropped_packets: u64) -> Talker {
        Talker {
            source: Some(name.to_owned()),
            prefix: None,
            user: None,
            passed_packets,
            dropped_packets,
            replied_packets: 0,
            bytes: 0,
            packets_per_second: 0.0,
            bytes_per_second: 0.0,
            error_packets: 0,
            service: None,
            reason: None,
            port: None,
            limits: Vec::new(),
        }
    }

    #[test]
    fn a_page_has_room_for_those_who_send_most_and_for_small_ones_of_whom_most_is_dropped() {
        let mut all: Vec<Talker> =
            (0..40).map(|nth| talker(&format!("honest {nth}"), 1_000 - nth, 0)).collect();
        all.push(talker("refused", 1, 90));
        let kept = largest(all);
        assert_eq!((kept.len(), kept[0].name(), kept[MAX_TALKERS].name()), (21, "honest 0", "refused"));
        let alike: Vec<Talker> = (0..150).map(|nth| talker(&nth.to_string(), 0, 150 - nth)).collect();
        assert_eq!(largest(alike).len(), MAX_TALKERS);
        assert!(largest(Vec::new()).is_empty());
    }
}
