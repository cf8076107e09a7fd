//! Pictures of this host for the dashboard, and orders that come from there.

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
    dataplane::probe,
    failure::Failure,
    stats::{feed::Views, flow::ServiceFlow, talkers::Talker, view::StatsView},
    web::{
        decisions::DecisionHistory,
        gallery::Camera,
        order_queues::Handed,
        picture::{MAX_ATTACKS, MAX_HOSTS, Picture},
    },
};

/// How often the table of sources is counted at most: counting a million entries takes a while.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// Counting the table of sources takes at most one part in this many of the time: a twentieth.
const COUNT_SHARE: u32 = 20;
/// How long a picture waits for a view, which is made once a second.
const VIEW_PATIENCE: Duration = Duration::from_millis(1_500);
/// The number of talkers of each kind in a picture: those that send most, and those of which most is dropped.
const MAX_TALKERS: usize = 20;
/// The number of services in a picture, the busiest ones.
const MAX_SERVICES: usize = 64;

/// Makes the pictures that the dashboard shows.
#[derive(Debug)]
pub(in crate::daemon) struct HostCamera {
    daemon: Arc<Daemon>,
    views: Views,
    /// When the last picture was taken.
    before: Option<Instant>,
    host: String,
    decisions: DecisionHistory,
    /// The last status with its table counted, when the count began, and how long it took.
    counted: Option<(Status, Instant, Duration)>,
}

impl Camera for HostCamera {
    async fn take(&mut self) -> Option<Bytes> {
        // The first picture does not wait for a view, because the status can be shown at once.
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
            host: &self.host,
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
    /// Makes a camera, which begins to look at the traffic.
    pub(in crate::daemon) fn new(daemon: &Arc<Daemon>) -> Self {
        let named = daemon.host().policy().cluster().and_then(|cluster| cluster.host().map(str::to_owned));
        let host = named.unwrap_or_else(probe::host_name);
        Self {
            daemon: Arc::clone(daemon),
            views: daemon.views(),
            before: None,
            host,
            decisions: DecisionHistory::default(),
            counted: None,
        }
    }

    /// Returns the status, with the table counted now or, if that was a moment ago, as it was last counted.
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

/// Cuts a view to what a page has room for.
fn cut(mut view: StatsView) -> StatsView {
    for talkers in [&mut view.sources, &mut view.prefixes, &mut view.users] {
        *talkers = largest(std::mem::take(talkers));
    }
    let busy = |service: &ServiceFlow| {
        [service.passed, service.replied, service.dropped]
            .iter()
            .map(|flow| flow.packets_per_second)
            .sum::<f64>()
    };
    view.services.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
    view.services.truncate(MAX_SERVICES);
    view
}

/// Returns the talkers that send most and those of which most is dropped, in their order.
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

/// Carries out orders and questions of the dashboard, one of each at a time. After each follows a pause as long as it took, so that questions cost
/// at most half of a CPU.
pub(in crate::daemon) async fn take_orders(
    daemon: Arc<Daemon>,
    [orders, questions]: [mpsc::Receiver<Handed>; 2],
) {
    tokio::join!(take(&daemon, orders), take(&daemon, questions));
}

async fn take(daemon: &Daemon, mut handed: mpsc::Receiver<Handed>) {
    while let Some(Handed { order, from, reply, .. }) = handed.recv().await {
        let begun = Instant::now();
        // A browser that has hung up gets no answer, but its order is carried out.
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
            known: false,
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
