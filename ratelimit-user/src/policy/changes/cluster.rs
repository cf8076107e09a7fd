//! The cluster in words.

use super::{Fields, restarted};
use crate::policy::{ClusterPolicy, Policy};

/// The table's name, and the subject's.
pub(super) const CLUSTER: &str = "cluster";

/// A running daemon keeps the store that it has, and what it has agreed with other hosts.
pub(super) fn of_cluster(cluster: &ClusterPolicy) -> Fields {
    let permille = cluster.reserve().permille();
    let reserve = match permille % 10 {
        0 => format!("{}%", permille / 10),
        tenths => format!("{}.{tenths}%", permille / 10),
    };
    let host = cluster.host().map_or_else(|| "as the system calls it".to_owned(), ToOwned::to_owned);
    restarted([
        ("redis", cluster.redis().to_string()),
        ("name", cluster.name().to_owned()),
        ("host", host),
        ("hosts", cluster.hosts().to_string()),
        ("reserve", reserve),
        ("tick", format!("{} ms", cluster.tick().as_millis())),
        ("lease", format!("{} ms", cluster.lease().as_millis())),
        ("without_store", cluster.without_store().name().to_owned()),
    ])
}

/// Whether the stores of two policies differ in what is never shown.
pub(super) fn other_secret(before: &Policy, after: &Policy) -> bool {
    let stores = before.cluster().zip(after.cluster()).map(|(old, new)| (old.redis(), new.redis()));
    stores.is_some_and(|(old, new)| old != new && old.to_string() == new.to_string())
}
