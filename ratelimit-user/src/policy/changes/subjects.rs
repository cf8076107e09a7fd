//! A whole policy as subjects with fields, but for the limits of sources.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Fields,
    cluster::{CLUSTER, of_cluster},
    followed,
    host::of_host,
    listen::of_listen,
    notify::{of_attacks, of_notifier},
    requests::{of_api, of_requests},
    restarted,
    services::of_service,
    users::{of_plan, of_user},
};
use crate::policy::{AggregationFamily, NONE, Policy, User};

/// Every subject by its name; of users those that are given.
pub(super) fn subjects(policy: &Policy, users: &BTreeMap<String, &User>) -> BTreeMap<String, Fields> {
    let mut subjects = BTreeMap::from([
        ("source".to_owned(), of_source(policy)),
        ("host".to_owned(), of_host(policy.host())),
        ("interfaces".to_owned(), of_interfaces(policy)),
        ("listen".to_owned(), of_listen(policy.listen())),
        ("attacks".to_owned(), of_attacks(policy.attacks())),
        ("requests".to_owned(), of_requests(policy.requests())),
        ("mode".to_owned(), followed([("", mode(policy).to_owned())])),
    ]);
    let services = policy.services().iter();
    subjects.extend(services.map(|service| (format!("service {}", service.name()), of_service(service))));
    let plans = policy.users().plans();
    subjects.extend(plans.map(|plan| (format!("plan {}", plan.name()), of_plan(plan))));
    subjects.extend(users.iter().map(|(subject, user)| (subject.clone(), of_user(user))));
    let apis = policy.requests().apis.iter();
    subjects.extend(apis.map(|api| (format!("api {}", api.name), of_api(api))));
    let notifiers = policy.notifiers().iter();
    subjects.extend(notifiers.map(|notifier| (format!("notify {}", notifier.name), of_notifier(notifier))));
    subjects.extend(policy.cluster().map(|cluster| (CLUSTER.to_owned(), of_cluster(cluster))));
    subjects
}

fn of_source(policy: &Policy) -> Fields {
    let source = policy.source();
    let mut fields = followed([
        ("ipv4_prefix", source.ipv4_prefix().to_string()),
        ("ipv6_prefix", source.ipv6_prefix().to_string()),
        ("gate", policy.prefilter().enabled().to_string()),
        ("ladder ipv4", prefix_levels(policy, AggregationFamily::V4)),
        ("ladder ipv6", prefix_levels(policy, AggregationFamily::V6)),
        ("new_sources_per_cpu", policy.prefilter().new_sources_per_cpu().to_string()),
    ]);
    fields.extend(restarted([("table_entries", source.table_entries().to_string())]));
    fields
}

fn of_interfaces(policy: &Policy) -> Fields {
    let names: BTreeSet<String> = policy.interfaces().iter().map(ToString::to_string).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    restarted([("", if names.is_empty() { NONE.to_owned() } else { names })])
}

fn mode(policy: &Policy) -> &'static str {
    policy.mode().name()
}

fn prefix_levels(policy: &Policy, family: AggregationFamily) -> String {
    let prefix_levels: Vec<String> =
        policy.aggregation().prefix_levels(family).iter().map(ToString::to_string).collect();
    if prefix_levels.is_empty() { NONE.to_owned() } else { prefix_levels.join(", ") }
}
