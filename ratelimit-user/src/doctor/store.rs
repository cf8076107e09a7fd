//! Checks of the store: whether it can be reached, and whether it keeps what is written to it.

use super::{
    finding::HostFinding,
    readings::{ServerReadings, StoreReadings},
};

pub(super) fn examine(store: Option<&StoreReadings>) -> Vec<HostFinding> {
    let Some(store) = store else { return Vec::new() };
    match &store.servers {
        Err(why) => vec![HostFinding::fail(
            "store",
            format!("{} does not answer: {why}", store.address),
            "start it, or correct [cluster] redis; until then limits hold on each host by itself, as without_store says",
        )],
        Ok(servers) => servers.iter().map(server).collect(),
    }
}

fn server(server: &ServerReadings) -> HostFinding {
    let ServerReadings { at, version, is_master, maxmemory, maxmemory_policy } = server;
    let keeps = "redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf";
    if !is_master {
        return HostFinding::fail(
            "store",
            format!("{at} is a replica and takes no writes"),
            "name the master, or Sentinels with redis+sentinel://",
        );
    }
    match (maxmemory_policy.as_str(), maxmemory) {
        ("noeviction", _) => {
            HostFinding::ok("store", format!("{at}: version {version}, keeps what it is told (noeviction)"))
        }
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
