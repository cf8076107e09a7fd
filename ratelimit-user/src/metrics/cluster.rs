//! Metrics of this host in its cluster.

use prometheus::{Gauge, IntCounter, IntGauge, Registry};

use crate::control::protocol::ClusterStatus;

pub(super) fn register(registry: &Registry, status: &ClusterStatus) -> Result<(), prometheus::Error> {
    for (name, help, value) in [
        ("ratelimit_store_up", "1 if the store answered when last asked.", u64::from(status.store_up)),
        ("ratelimit_lease_limits", "Limits that hold on all hosts together.", status.limits),
        ("ratelimit_lease_held", "Shared limits that this host holds a lease of.", status.leases),
        ("ratelimit_lease_units", "Units that this host holds.", status.lease_units),
        (
            "ratelimit_cluster_bound",
            "How many times a limit all hosts together can admit at most; 1 is the limit itself.",
            u64::from(status.bound_times_limit),
        ),
        (
            "ratelimit_lease_limits_disputed",
            "Limits of which another host has another rate or burst in its policy; the smallest is in force.",
            status.limits_disputed,
        ),
        (
            "ratelimit_cluster_heard",
            "1 if the store hears what this host says about blocks; 0 if another host has its name.",
            u64::from(status.is_heard),
        ),
    ] {
        let gauge = IntGauge::new(name, help)?;
        gauge.set(value as i64);
        registry.register(Box::new(gauge))?;
    }
    let trip = Gauge::new("ratelimit_lease_round_trip_seconds", "Round trip of the last lease batch.")?;
    trip.set(status.round_trip_us as f64 / 1e6);
    registry.register(Box::new(trip))?;
    for (name, help, value) in [
        ("ratelimit_lease_exchanges_total", "Lease batches that the store answered.", status.exchanges),
        ("ratelimit_lease_lines_total", "Limits in lease batches that the store answered.", status.lines),
        ("ratelimit_lease_failures_total", "Lease batches without a good answer.", status.failures),
        (
            "ratelimit_store_given_up_total",
            "How often the store was given up after failures.",
            status.given_up,
        ),
        (
            "ratelimit_store_clock_steps_total",
            "How often the store's clock was set back.",
            status.clock_steps,
        ),
    ] {
        let counter = IntCounter::new(name, help)?;
        counter.inc_by(value);
        registry.register(Box::new(counter))?;
    }
    Ok(())
}
