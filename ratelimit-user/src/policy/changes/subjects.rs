//! A whole policy as subjects with fields; the limits of sources are compared elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster::CLUSTER;
use crate::policy::{
    NONE, Policy, User,
    fields::{Fields, followed, restarted},
};

/// Every subject by its name; of the users, only the given ones.
pub(super) fn subjects(policy: &Policy, users: &BTreeMap<String, &User>) -> BTreeMap<String, Fields> {
    let mut subjects = BTreeMap::from([
        ("source".to_owned(), of_source(policy)),
        ("host".to_owned(), policy.host().fields()),
        ("interfaces".to_owned(), of_interfaces(policy)),
        ("listen".to_owned(), policy.listen().fields()),
        ("attacks".to_owned(), policy.attacks().fields()),
        ("requests".to_owned(), policy.requests().fields()),
        ("mode".to_owned(), followed([("", mode(policy).to_owned())])),
    ]);
    let services = policy.services().iter();
    subjects.extend(services.map(|service| (format!("service {}", service.name()), service.fields())));
    let plans = policy.users().plans();
    subjects.extend(plans.map(|plan| (format!("plan {}", plan.name()), plan.fields())));
    subjects.extend(users.iter().map(|(subject, user)| (subject.clone(), user.fields())));
    let apis = policy.requests().apis.iter();
    subjects.extend(apis.map(|api| (format!("api {}", api.name), api.fields())));
    let notifiers = policy.notifiers().iter();
    subjects.extend(notifiers.map(|notifier| (format!("notify {}", notifier.name), notifier.fields())));
    subjects.extend(policy.cluster().map(|cluster| (CLUSTER.to_owned(), cluster.fields())));
    subjects
}

/// The keys of `[source]`, which several parts of the policy hold.
fn of_source(policy: &Policy) -> Fields {
    let mut fields = policy.source().fields();
    fields.extend(policy.prefilter().fields());
    fields.extend(policy.aggregation().fields());
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
