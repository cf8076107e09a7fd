//! Reads counters, tables, views of the traffic and metrics without the lock of the host, so that leases, drop events and operators do not wait for them.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use ratelimit_common::abi::Event;

use super::Daemon;
use crate::{
    control::protocol::{EarlierStats, StatsReply, Status},
    daemon::{
        orders::users,
        views::{shared::beside, status::status},
    },
    dataplane::{clients::KnownClients, probe, table::TableUse},
    failure::{ExitCode, Failure},
    metrics,
    stats::{Snapshot, feed::Views, view::StatsView},
};

/// How long the traffic is looked at after the last scrape: scrapers ask at least once in two minutes.
const SCRAPE_GRACE: Duration = Duration::from_secs(150);
/// How long a caller waits for a view, which is made once a second.
const VIEW_PATIENCE: Duration = Duration::from_secs(5);

impl Daemon {
    /// Reads all counters.
    pub(in crate::daemon) async fn snapshot(&self) -> Result<Snapshot, Failure> {
        let look = self.stats.look(|| {
            let meters = self.host().meters();
            beside(move || Ok(Snapshot::of(&meters.counted()?)))
        });
        look.await
    }

    /// Returns the counters, the counters of the previous `stats`, and the users.
    pub(in crate::daemon) async fn counters(&self) -> Result<StatsReply, Failure> {
        let snapshot = self.snapshot().await?;
        let now = Instant::now();
        let users = users::users_with_buckets(&self.host(), probe::now_ns())?;
        let last = self
            .last_counters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace((now, snapshot.clone()));
        let before = last.map(|(then, snapshot)| EarlierStats {
            ms_ago: u64::try_from(now.saturating_duration_since(then).as_millis()).unwrap_or(u64::MAX),
            snapshot,
        });
        Ok(StatsReply { snapshot, before, users })
    }

    /// Returns a feed of views, one a second from now on.
    pub(in crate::daemon) fn views(&self) -> Views {
        let traffic = Arc::clone(&self.host().traffic);
        traffic.feed(self.cell()).look()
    }

    /// Returns the last view of the traffic, for series of the largest sources, and how many series the policy wants. The first call begins to look.
    fn largest_sources(&self) -> (Option<Arc<StatsView>>, usize) {
        let most = self.host().policy().listen().metrics_top as usize;
        let mut scraped = self.scraped.lock().unwrap_or_else(PoisonError::into_inner);
        if most == 0 {
            *scraped = None;
            return (None, 0);
        }
        let views = match scraped.take() {
            Some((views, _)) => views,
            None => self.views(),
        };
        let view = views.borrow().clone();
        *scraped = Some((views, Instant::now()));
        (view, most)
    }

    /// Ends the look at the traffic for metrics when nobody has scraped for a while.
    pub(super) fn look_away(&self) {
        let mut scraped = self.scraped.lock().unwrap_or_else(PoisonError::into_inner);
        scraped.take_if(|(_, asked)| asked.elapsed() > SCRAPE_GRACE);
    }

    /// Returns the view of the next second of traffic.
    pub(in crate::daemon) async fn view(&self) -> Result<StatsView, Failure> {
        let mut views = self.views();
        let late = || Failure::new(ExitCode::Unsupported, "the counters were not read within five seconds");
        tokio::time::timeout(VIEW_PATIENCE, views.changed())
            .await
            .map_err(|_| late())?
            .map_err(|_| late())?;
        let view = views.borrow().clone();
        view.map(|view| (*view).clone()).ok_or_else(late)
    }

    /// Counts the table and known clients.
    pub(super) async fn usage(&self) -> Result<(TableUse, KnownClients), Failure> {
        let look = self.usage.look(|| {
            let host = self.host();
            let (table, clients) = (host.table(), host.clients());
            beside(move || Ok((table.usage(probe::now_ns())?, clients.refresh(probe::now_ns())?)))
        });
        look.await
    }

    /// Returns the status with the table counted, which happens without the lock of the host.
    pub(in crate::daemon) async fn status(&self) -> Result<Status, Failure> {
        self.front().refresh().await;
        let (mut status, promotions) = {
            let host = self.host();
            let mut status = status(&host);
            status.prefix_promotions = host.event(Event::PrefixPromoted)?;
            status.drop_reports_lost = host.event(Event::ReportLost)?;
            status.known_packets = host.enforced.maps.known_packets()?;
            (status, host.event(Event::Promoted)?)
        };
        let (usage, known) = self.usage().await?;
        status.known_clients = known.clients;
        status.known_packets_per_second = known.packets_per_sec.round() as u64;
        status.table_entries = usage.entries;
        status.table_capacity = usage.capacity;
        status.tracked_cells = usage.tracked_cells;
        status.promotions = promotions;
        // Entries that left the table. The table is counted after the promotions were read, so entries that came since make the result too small, not too large.
        status.evictions = promotions.saturating_sub(usage.entries);
        Ok(status)
    }
}

impl Daemon {
    /// Returns the metrics in Prometheus' text format, or a sentence about why there are none.
    pub(in crate::daemon) async fn metrics(&self) -> Result<String, String> {
        let look = self.scrape.look(|| async {
            let (status, snapshot) = (self.status().await?, self.snapshot().await?);
            let failed = |error: prometheus::Error| Failure::new(ExitCode::Unsupported, error.to_string());
            let (view, most) = self.largest_sources();
            let render =
                move || metrics::render(&status, &snapshot, view.as_deref().map(|view| (view, most)));
            beside(move || render().map_err(failed)).await
        });
        look.await.map_err(|failure| failure.message)
    }
}
