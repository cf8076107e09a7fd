//! Checks of the store: whether it can be reached, and whether it keeps what is written to it.

use super::{
    finding::HostFinding,
    readings::{ServerReadings, StoreReadings, Wishes},
};
use crate::store::redis::Persistence;

pub(super) fn examine(store: Option<&StoreReadings>, wishes: &Wishes) -> Vec<HostFinding> {
    let Some(store) = store else { return Vec::new() };
    match &store.servers {
        Err(why) => vec![HostFinding::fail(
            "store",
            format!("{} does not answer: {why}", store.address),
            "start it, or correct [cluster] redis; until then limits hold on each host by itself, as without_store says",
        )],
        Ok(servers) => servers.iter().map(|of| server(of, wishes)).collect(),
    }
}

fn server(server: &ServerReadings, wishes: &Wishes) -> HostFinding {
    let ServerReadings { at, version, is_master, maxmemory, maxmemory_policy, persistence } = server;
    let writes = match persistence {
        Persistence::Log => "writes down each change (appendonly yes)",
        Persistence::Snapshots => {
            "writes everything down at save points; a restart loses what came after the last one"
        }
        Persistence::Nothing => "writes nothing down",
        Persistence::Unknown => {
            "does not tell this user whether it has save points, and has no log (appendonly no)"
        }
    };
    let keeps = "redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf";
    if !is_master {
        return HostFinding::fail(
            "store",
            format!("{at} is a replica and takes no writes"),
            "name the master, or Sentinels with redis+sentinel://",
        );
    }
    match (maxmemory_policy.as_str(), maxmemory) {
        ("noeviction", _) if *persistence == Persistence::Nothing && wishes.counts_for_long => {
            HostFinding::warn(
                "store",
                format!(
                    "{at}: {writes}: when it starts again users can spend again what they have spent, and the policy has limits of requests over more than an hour"
                ),
                "redis-cli CONFIG SET appendonly yes, and in redis.conf",
            )
        }
        ("noeviction", _) => HostFinding::ok(
            "store",
            format!("{at}: version {version}, keeps what it is told (noeviction), {writes}"),
        ),
        (policy, 0) => HostFinding::warn(
            "store",
            format!(
                "{at}: maxmemory-policy is {policy}; nothing is forgotten while maxmemory is 0, and users can spend again what they have spent once somebody sets it"
            ),
            keeps,
        ),
        (policy, _) => HostFinding::fail(
            "store",
            format!(
                "{at}: maxmemory-policy is {policy}: when its memory is full it forgets what users have spent, and they can spend it again"
            ),
            keeps,
        ),
    }
}
