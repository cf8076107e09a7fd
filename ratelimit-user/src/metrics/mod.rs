//! Metrics for Prometheus, from a snapshot of the counters.

mod attacks;
mod cluster;
mod histogram;
mod requests;
mod top;

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};
use ratelimit_common::abi::Mode;

use crate::{
    control::protocol::{HeadroomStatus, Status, StatusWarning},
    requests::status::RequestsStatus,
    stats::{Columns, ReasonCount, Snapshot, attack_state::AttackState, view::StatsView},
};

/// The verdict label of frames that passed only because their service or the policy is on trial.
const WOULD_DROP: &str = "would_drop";
/// The verdict label of frames that passed with another DSCP class.
const MARKED: &str = "marked";
/// The verdict label of frames that were dropped and whose sender was told.
const REJECTED: &str = "rejected";

/// Renders the text format, with series of the largest sources of a view if one is given. Each call makes a new registry, because the kernel keeps the counts.
pub fn render(
    status: &Status,
    snapshot: &Snapshot,
    top: Option<(&StatsView, usize)>,
) -> Result<String, prometheus::Error> {
    let registry = Registry::new();
    packets(&registry, snapshot)?;
    gauges(&registry, status)?;
    if let Some(cluster) = &status.cluster {
        cluster::register(&registry, cluster)?;
    }
    attacks::register(&registry, &status.attacks)?;
    if let Some((view, most)) = top {
        top::register(&registry, view, most)?;
    }
    requests::register(&registry, &status.requests)?;
    counters(&registry, status)?;
    TextEncoder::new().encode_to_string(&registry.gather())
}

/// Renders the metrics of a host that decides about requests and guards no interface.
pub fn render_requests(status: &RequestsStatus) -> Result<String, prometheus::Error> {
    let registry = Registry::new();
    requests::register(&registry, status)?;
    TextEncoder::new().encode_to_string(&registry.gather())
}

fn packets(registry: &Registry, snapshot: &Snapshot) -> Result<(), prometheus::Error> {
    let labels = ["verdict", "reason", "service"];
    let packets = IntCounterVec::new(
        Opts::new("ratelimit_packets_total", "Frames by verdict, reason and service."),
        &labels,
    )?;
    let bytes = IntCounterVec::new(
        Opts::new(
            "ratelimit_bytes_total",
            "Bytes of frames by verdict, reason and service, from the Ethernet header on.",
        ),
        &labels,
    )?;
    let show = |count: &ReasonCount, verdict: &str, service: &str| {
        let values = [verdict, count.reason.as_str(), service];
        packets.with_label_values(&values).inc_by(count.packets);
        bytes.with_label_values(&values).inc_by(count.bytes);
    };
    // Every reason has a series from the start, without a service.
    snapshot
        .columns
        .reasons
        .iter()
        .for_each(|count| show(&ReasonCount { packets: 0, bytes: 0, ..count.clone() }, &count.verdict, ""));
    for service in snapshot.services.iter().chain(&snapshot.former_services) {
        let Columns { reasons, would_drop, marked, rejected } = &service.columns;
        reasons.iter().for_each(|count| show(count, &count.verdict, &service.service));
        for (counts, verdict) in [(would_drop, WOULD_DROP), (marked, MARKED), (rejected, REJECTED)] {
            counts.iter().for_each(|count| show(count, verdict, &service.service));
        }
    }
    registry.register(Box::new(packets))?;
    registry.register(Box::new(bytes))
}

fn gauges(registry: &Registry, status: &Status) -> Result<(), prometheus::Error> {
    for (name, help, value) in [
        ("ratelimit_table_entries", "Tracked sources.", status.table_entries),
        ("ratelimit_table_capacity", "Sources the table has room for.", status.table_capacity),
        ("ratelimit_gate_hot_cells", "Prefilter cells that have a tracked source.", status.tracked_cells),
        (
            "ratelimit_known_clients",
            "Sources that were served while no total was spent.",
            status.known_clients,
        ),
        (
            "ratelimit_known_average_packets",
            "What known clients are served on average, in packets each second.",
            status.known_packets_per_second,
        ),
        (
            "ratelimit_posture",
            "Attack state: 0 normal, 1 elevated, 2 flood.",
            attack_state_number(&status.attack_state),
        ),
        (
            "ratelimit_headroom",
            "1 while the host has headroom and elastic limits give their margin.",
            u64::from(status.headroom.headroom == HeadroomStatus::YES),
        ),
        (
            "ratelimit_monitoring",
            "1 while mode is monitor and nothing is dropped, only counted.",
            u64::from(status.mode == Mode::Monitor.name()),
        ),
        (
            "ratelimit_services_on_trial",
            "Services whose limits drop nothing.",
            status.services_on_trial.len() as u64,
        ),
        (
            "ratelimit_protected",
            "1 while there are guarded interfaces and the program runs on all of them.",
            u64::from(status.protected),
        ),
        ("ratelimit_warnings", "Warnings that status shows.", status.warnings.len() as u64),
        (
            "ratelimit_policy_generation",
            "Number of the policy in the kernel. It grows with every change for packets since the maps were made, by 1 or 2; changes of APIs alone leave it.",
            status.policy_generation,
        ),
    ] {
        let gauge = IntGauge::new(name, help)?;
        gauge.set(value as i64);
        registry.register(Box::new(gauge))?;
    }
    let listed = labelled(registry, "ratelimit_listed_prefixes", "Prefixes on each list.", &["list"])?;
    listed.with_label_values(&["block"]).set(status.blocked_prefixes as i64);
    listed.with_label_values(&["allow"]).set(status.allowed_prefixes as i64);
    let attached = labelled(
        registry,
        "ratelimit_attached",
        "1 for the mode in which the program runs on an interface: native, generic, detached or foreign.",
        &["interface", "mode"],
    )?;
    for interface in &status.interfaces {
        attached.with_label_values(&[interface.name.as_str(), interface.mode.as_str()]).set(1);
    }
    let warned = labelled(
        registry,
        "ratelimit_warning",
        "Warnings of each kind, those of the cluster and of interfaces included.",
        &["kind"],
    )?;
    for kind in StatusWarning::KINDS {
        let count = status.warning_details.iter().filter(|warning| warning.kind == kind).count();
        warned.with_label_values(&[kind]).set(count as i64);
    }
    let build =
        labelled(registry, "ratelimit_build_info", "Version of the daemon, always 1.", &["version", "abi"])?;
    build.with_label_values(&[status.build.as_str(), status.abi.to_string().as_str()]).set(1);
    Ok(())
}

fn counters(registry: &Registry, status: &Status) -> Result<(), prometheus::Error> {
    for (name, help, value) in [
        (
            "ratelimit_prefix_promotions_total",
            "Prefixes around sources that got a bucket of their own.",
            status.prefix_promotions,
        ),
        ("ratelimit_drop_reports_lost_total", "Drop events that found no room.", status.drop_reports_lost),
        ("ratelimit_table_promotions_total", "Sources that got an entry in the table.", status.promotions),
        ("ratelimit_table_evictions_total", "Sources that the table had to forget.", status.evictions),
        (
            "ratelimit_known_admitted_packets_total",
            "Packets of known clients that had a part of a spent total before others.",
            status.known_packets.admitted,
        ),
        (
            "ratelimit_known_refused_packets_total",
            "Packets of known clients that were refused by a spent total.",
            status.known_packets.refused,
        ),
        ("ratelimit_posture_changes_total", "Changes of the attack state.", status.attack_state_changes),
        (
            "ratelimit_headroom_changes_total",
            "Times that headroom was lost or came back.",
            status.headroom.headroom_changes,
        ),
    ] {
        let counter = IntCounter::new(name, help)?;
        counter.inc_by(value);
        registry.register(Box::new(counter))?;
    }
    Ok(())
}

fn attack_state_number(name: &str) -> u64 {
    [AttackState::Normal, AttackState::Elevated, AttackState::Flood]
        .iter()
        .position(|attack_state| attack_state.name() == name)
        .unwrap_or(0) as u64
}

fn labelled(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntGaugeVec, prometheus::Error> {
    let gauge = IntGaugeVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}
