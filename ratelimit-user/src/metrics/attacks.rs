//! Metrics of attacks and of notifiers.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::control::protocol::AttacksStatus;

pub(super) fn register(registry: &Registry, status: &AttacksStatus) -> Result<(), prometheus::Error> {
    for (name, help, value) in [
        ("ratelimit_attacks_active", "Attacks that go on.", status.active.len() as u64),
        (
            "ratelimit_attacks_contained",
            "Attacks that go on and are contained.",
            status.active.iter().filter(|attack| attack.now.contained).count() as u64,
        ),
        ("ratelimit_attack_last_number", "Number of the last attack, across restarts.", status.last_number),
        ("ratelimit_attacks_kept", "Reports of attacks that are kept.", status.kept),
    ] {
        let gauge = IntGauge::new(name, help)?;
        gauge.set(value as i64);
        registry.register(Box::new(gauge))?;
    }
    let begun = IntCounter::new("ratelimit_attacks_total", "Attacks that began since the daemon started.")?;
    begun.inc_by(status.begun);
    registry.register(Box::new(begun))?;
    let active = IntGaugeVec::new(
        Opts::new("ratelimit_attack_active", "1 for each attack that goes on, by what is attacked and kind."),
        &["target", "name", "kind"],
    )?;
    for attack in &status.active {
        active.with_label_values(&[attack.target.kind(), attack.target.name(), attack.kind.name()]).set(1);
    }
    registry.register(Box::new(active))?;
    notifications(registry, status)
}

fn notifications(registry: &Registry, status: &AttacksStatus) -> Result<(), prometheus::Error> {
    let sent = IntCounterVec::new(
        Opts::new(
            "ratelimit_notifications_total",
            "Messages about attacks by notifier and outcome: sent or lost.",
        ),
        &["notifier", "outcome"],
    )?;
    let failures = IntCounterVec::new(
        Opts::new(
            "ratelimit_notification_failures_total",
            "Attempts to send a message about an attack that failed.",
        ),
        &["notifier"],
    )?;
    for notifier in &status.notifiers {
        sent.with_label_values(&[notifier.name.as_str(), "sent"]).inc_by(notifier.sent);
        sent.with_label_values(&[notifier.name.as_str(), "lost"]).inc_by(notifier.lost);
        failures.with_label_values(&[notifier.name.as_str()]).inc_by(notifier.failures);
    }
    registry.register(Box::new(sent))?;
    registry.register(Box::new(failures))
}
