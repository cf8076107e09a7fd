//! Reads the store as a daemon would, once and with short timeouts.

use std::time::Duration;

use crate::{
    doctor::readings::{Perhaps, ServerReadings, StoreReadings},
    policy::address::StoreAddress,
    store::{
        AddressedStore,
        redis::{Role, ServerFacts},
    },
};

/// The timeout for connecting, and for each answer.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn read(address: &StoreAddress) -> StoreReadings {
    StoreReadings { address: address.to_string(), servers: servers(address) }
}

fn servers(address: &StoreAddress) -> Perhaps<Vec<ServerReadings>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let asked = async {
        let link = AddressedStore::open(address, PATIENCE).await?;
        link.facts(PATIENCE).await
    };
    let facts = runtime.block_on(asked).map_err(|error| error.to_string())?;
    Ok(facts.iter().map(server).collect())
}

fn server(facts: &ServerFacts) -> ServerReadings {
    let (major, minor, patch) = facts.version;
    ServerReadings {
        at: facts.at.clone(),
        version: format!("{major}.{minor}.{patch}"),
        is_master: facts.role == Role::Master,
        maxmemory: facts.maxmemory,
        maxmemory_policy: facts.maxmemory_policy.clone(),
        persistence: facts.persistence,
    }
}
