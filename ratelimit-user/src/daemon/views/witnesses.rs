//! Feeds the detector of attacks: counters once a second, and samples of packets while there is an attack or one is about to begin.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ratelimit_common::abi::{Event, Reason, Verdict, counter::Fate};
use tokio::{
    sync::broadcast::error::RecvError,
    time::{MissedTickBehavior, timeout},
};

use super::shared::beside;
use crate::{
    attacks::{OriginPort, REFUSED, SampledPart, Tallied, Witness},
    clock,
    daemon::{
        host::{Host, HostCell},
        traffic::EpochSamples,
    },
    dataplane::probe,
    log,
    stats::{Snapshot, history::CountersThen, sampled::Sampled},
};

/// How soon sampling begins after the first second of an attack, and ends after its last one.
const GLANCE: Duration = Duration::from_millis(200);
/// How often known clients are saved.
const SAVED_EVERY: Duration = Duration::from_secs(3600);

/// Looks once a second whether an attack begins or ends, until the daemon ends.
pub(in crate::daemon) async fn follow_attacks(cell: Arc<HostCell>) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        let front = cell.host().requests.front.clone();
        front.refresh().await;
        let (meters, decisions, new_sources) = {
            let host = cell.host();
            (host.meters(), host.requests.status().decisions, host.event(Event::Promoted))
        };
        let decisions: Vec<_> =
            decisions.into_iter().map(|count| (count.api, count.outcome, count.decisions)).collect();
        let look = beside(move || {
            let counted = meters.counted()?;
            // The look ends here: what follows may wait for a CPU or a lock.
            let read = Instant::now();
            let then = counters_then(&Snapshot::of(&counted), &decisions);
            Ok((Tallied::new(&counted, &decisions).with_new_sources(new_sources?), then, read))
        });
        match look.await {
            Ok((tallied, then, read)) => {
                let mut host = cell.host();
                host.history.observe(then);
                host.observe_attacks(tallied, read);
            }
            Err(failure) => log::warning(format!("attacks were not looked for: {failure}")),
        }
    }
}

/// Fills the filter of known clients once a minute, and saves them once an hour, until the daemon ends.
pub(in crate::daemon) async fn follow_clients(cell: Arc<HostCell>) {
    let mut minute = tokio::time::interval(Duration::from_secs(60));
    minute.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut saved = Instant::now();
    loop {
        minute.tick().await;
        let clients = cell.host().clients();
        if let Err(failure) = beside(move || Ok(clients.refresh(probe::now_ns())?)).await {
            log::warning(format!("the filter of known clients was not filled: {failure}"));
        }
        if saved.elapsed() >= SAVED_EVERY {
            saved = Instant::now();
            let save = cell.host().saving_clients();
            // The keeper has said what failed.
            let _said = beside(move || Ok(save())).await;
        }
    }
}

/// The sums of the counters now. Decisions are (API, outcome, count).
fn counters_then(snapshot: &Snapshot, decisions: &[(String, String, u64)]) -> CountersThen {
    let all = decisions.iter();
    CountersThen {
        unix_ms: clock::unix_ms(),
        packets: snapshot.totals(),
        decided: all.clone().map(|(_, _, count)| count).sum(),
        refused: all.filter(|(_, outcome, _)| outcome == REFUSED).map(|(_, _, count)| count).sum(),
    }
}

/// Hands samples to the detector of attacks, until the daemon ends.
pub(in crate::daemon) async fn follow_samples(host: Arc<HostCell>) {
    loop {
        tokio::time::sleep(GLANCE).await;
        if !host.host().attacks.is_alert() {
            continue;
        }
        let traffic = Arc::clone(&host.host().traffic);
        let mut epochs = traffic.epochs(&host);
        loop {
            match timeout(GLANCE, epochs.recv()).await {
                Ok(Ok(epoch)) => take_in(&mut host.host(), &epoch),
                // A reader that is late goes on with the next epoch; its counts lack the epochs that it missed.
                Ok(Err(RecvError::Lagged(_))) | Err(_) => {}
                Ok(Err(RecvError::Closed)) => return,
            }
            if !host.host().attacks.is_alert() {
                break;
            }
        }
    }
}

fn take_in(host: &mut Host, epoch: &EpochSamples) {
    let mut parts: BTreeMap<(u32, bool), Vec<Witness>> = BTreeMap::new();
    let around = host.in_force.policy().source();
    for sample in &epoch.samples {
        let Some(source) = sample.source else { continue };
        let has_passed = has_passed(sample);
        if !has_passed && !is_refused(sample) {
            continue;
        }
        parts.entry((sample.service, has_passed)).or_default().push(Witness {
            source: around.around(source),
            port: sample.port,
            origin: OriginPort { is_udp: sample.is_udp, port: sample.source_port },
            weight: sample.weight,
        });
    }
    let taken = epoch.samples.len().max(1) as f64;
    let scale = (taken + epoch.lost as f64) / taken;
    for ((number, has_passed), witnesses) in parts {
        let service = host.enforced.desired.names.services.of_number(number).map(str::to_owned);
        host.attacks.see_samples(SampledPart { service, has_passed, witnesses, scale });
    }
}

/// Whether the packet of a sample passed within every limit, as in the counters.
fn has_passed(sample: &Sampled) -> bool {
    sample.reason.verdict() == Verdict::Pass && sample.fate == Fate::Decided
}

/// Whether a sample counts for an attack, as in the counters: its packet was refused by a limit, whatever its fate, or is a SYN that was answered with a
/// cookie. Packets of blocked sources do not count.
fn is_refused(sample: &Sampled) -> bool {
    let is_answered = sample.reason == Reason::CookieSent;
    (sample.reason.verdict() == Verdict::Drop || is_answered) && sample.reason != Reason::Blocked
}
