//! `[cluster]`: its keys, their meaning, and warnings about limits of users across hosts.

use std::{ops::Range, time::Duration};

use ratelimit_common::{
    abi::Meter,
    limit::rate::{FULL_FRAME, Rate},
};

use super::{
    problem::Problems,
    table::policy_table,
    users::{PlanTable, UserSection},
    value::{At, KeyLookup, Strings, integer, string},
};
use crate::policy::{
    ClusterPolicy, ClusterWords, Policy, Users, WithoutStore,
    address::{Password, StoreAddress, StorePlace},
    is_leased,
};

const EXAMPLE: &str = "write redis = \"redis://127.0.0.1:6379\"";

policy_table! {
    /// The table `[cluster]`.
    ClusterTable {
        at,
        "redis" => redis: KeyLookup<At<String>> = string,
        "password_file" => password_file: Option<At<String>> = string,
        "name" => name: Option<At<String>> = string,
        "host" => host: Option<At<String>> = string,
        "hosts" => hosts: Option<At<i64>> = integer,
        "reserve" => reserve: Option<At<String>> = string,
        "tick" => tick: Option<At<String>> = string,
        "lease" => lease: Option<At<String>> = string,
        "without_store" => without_store: Option<At<String>> = string,
    }
}

/// The tables of plans and users.
type UserTables<'d> = (&'d [PlanTable], &'d [UserSection]);

/// The cluster, or none; `None` if the table is invalid.
pub(super) fn resolve(
    table: &KeyLookup<ClusterTable>,
    problems: &mut Problems<'_>,
) -> Option<Option<ClusterPolicy>> {
    let table = match table {
        KeyLookup::Absent => return Some(None),
        KeyLookup::Unreadable => return None,
        KeyLookup::Read(table) => table,
    };
    let redis = redis(table, problems);
    // Without a valid address, the rest of the table is still checked.
    let nowhere =
        StoreAddress { place: StorePlace::Cluster(Vec::new()), login: None, database: 0, tls: None };
    match ClusterPolicy::on(redis.clone().unwrap_or(nowhere)).with(&words(table)) {
        Ok(cluster) => redis.is_some().then_some(Some(cluster)),
        Err(errors) => {
            for (key, error) in errors {
                problems.error(place(table, key), error);
            }
            None
        }
    }
}

fn redis(table: &ClusterTable, problems: &mut Problems<'_>) -> Option<StoreAddress> {
    match &table.redis {
        // The sentences of the error show no password; the text of the address would.
        KeyLookup::Read((text, at)) => {
            let file = table.password_file.as_ref().map(|(file, _)| Password::InFile(file.into()));
            if let Some((file, at)) = &table.password_file
                && file.is_empty()
            {
                problems.error(at, "password_file is empty; name a file");
            }
            let address = StoreAddress::parse_with(text, file);
            address.map_err(|error| problems.error(at, format!("redis: {error}"))).ok()
        }
        KeyLookup::Unreadable => None,
        KeyLookup::Absent => {
            problems
                .missing(&table.at, format!("[cluster] has no redis: nothing could be shared; {EXAMPLE}"));
            None
        }
    }
}

fn words(table: &ClusterTable) -> ClusterWords {
    fn value<T: Clone>(at: &Option<At<T>>) -> Option<T> {
        at.as_ref().map(|(value, _)| value.clone())
    }
    ClusterWords {
        name: value(&table.name),
        host: value(&table.host),
        hosts: value(&table.hosts),
        reserve: value(&table.reserve),
        tick: value(&table.tick),
        lease: value(&table.lease),
        without_store: value(&table.without_store),
    }
}

fn place<'t>(table: &'t ClusterTable, key: &str) -> &'t Range<usize> {
    fn at<T>(value: &Option<At<T>>) -> Option<&Range<usize>> {
        value.as_ref().map(|(_, at)| at)
    }
    let place = match key {
        "name" => at(&table.name),
        "host" => at(&table.host),
        "hosts" => at(&table.hosts),
        "reserve" => at(&table.reserve),
        "tick" => at(&table.tick),
        // The default lease may be too short for the tick, so the error is reported at the tick.
        "lease" => at(&table.lease).or_else(|| at(&table.tick)),
        "without_store" => at(&table.without_store),
        _ => None,
    };
    place.unwrap_or(&table.at)
}

/// Reports limits of users that the store cannot count.
pub(super) fn judge(
    tables: UserTables<'_>,
    users: &Users,
    cluster: &ClusterPolicy,
    problems: &mut Problems<'_>,
) {
    each_limit(tables, users, |of, rate, at| {
        if let Err(error) = cluster.counts(rate) {
            problems.error(at, format!("{of} \"{rate}\": {error}"));
        }
    });
}

/// Warns of limits of users that hold less across hosts than they seem to.
pub(super) fn warn(tables: UserTables<'_>, policy: &Policy, problems: &mut Problems<'_>) {
    let Some(cluster) = policy.cluster() else { return };
    each_limit(tables, policy.users(), |of, rate, at| {
        if !is_leased(rate) {
            let message = format!(
                "{of} \"{rate}\" is counted by each host for itself: only a hard bucket holds on all hosts together"
            );
            return problems.warning(at, message);
        }
        let enough = enough_burst(rate, cluster.tick());
        if rate.burst < enough {
            let message = format!(
                "{of} \"{rate}\" gives less than its rate on all hosts together, which exchange every {} ms; use a burst of at \
                 least {enough}",
                cluster.tick().as_millis()
            );
            problems.warning(at, message);
        }
        if let Some(enough) = reserve_burst(rate, cluster) {
            let message = format!(
                "{of} \"{rate}\" has too small a reserve: a host that is cut off lets nothing of it pass; use a burst of at \
                 least {enough}, or fewer hosts"
            );
            problems.warning(at, message);
        }
    });
}

/// What a rate admits in two ticks: during one, the answer of the tick before is still under way. A smaller burst cannot keep up with the rate.
fn enough_burst(rate: &Rate, tick: Duration) -> u64 {
    (u128::from(rate.amount) * 2 * tick.as_nanos()).div_ceil(u128::from(rate.period.ns())) as u64
}

/// The least burst of which a host's part of the reserve is useful, if this burst is smaller.
fn reserve_burst(rate: &Rate, cluster: &ClusterPolicy) -> Option<u64> {
    let reserve = cluster.reserve();
    let permille = u128::from(reserve.permille());
    // With `without_store = "last-rate"` a host continues at its last rate and needs no reserve.
    if permille == 0 || cluster.without_store() != WithoutStore::Reserve {
        return None;
    }
    let least = if rate.meter == Meter::Bytes { FULL_FRAME } else { 1 };
    let enough = (u128::from(least) * 1_000 * u128::from(cluster.hosts())).div_ceil(permille);
    (reserve.units(rate.burst) < least).then_some(enough as u64)
}

/// Calls `look` with every limit of users and plans and its place in the file.
fn each_limit(tables: UserTables<'_>, users: &Users, mut look: impl FnMut(&str, &Rate, &Range<usize>)) {
    let mut all = |of: String, rates: &[Rate], places: Option<&Strings>| {
        let places = places.map(|limits| limits.entries.as_slice()).unwrap_or_default();
        rates.iter().zip(places).for_each(|(rate, (_, at))| look(&of, rate, at));
    };
    for (table, plan) in tables.0.iter().zip(users.plans()) {
        all(format!("plan {:?}: network", plan.name()), plan.network(), table.keys.network.as_ref());
    }
    for (table, user) in tables.1.iter().zip(users.iter()) {
        all(
            format!("user {:?}: network", user.name()),
            user.own().unwrap_or_default(),
            table.network.as_ref(),
        );
    }
}
