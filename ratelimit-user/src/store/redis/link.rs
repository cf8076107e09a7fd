//! The link to a store: opened, used, and mended when something says so.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ::redis::Value;
use futures_util::{StreamExt as _, future::join_all, stream::FuturesUnordered};

use super::{
    connection::Connection,
    dial::{Dialer, Whom},
    facts::{self, ServerFacts},
    flight,
    routes::{Nodes, Routes, StoreRoute, is_open},
    script::Call,
    sentinel,
    sentinel_watch::SentinelWatch,
    slots::SlotMap,
    store_error::StoreError,
};
use crate::{
    policy::address::{Endpoint, StoreAddress, StorePlace},
    store::{
        backend::{Backend, TakeAnswer},
        deadline::Deadline,
    },
};

/// A link to a store. After an error that `needs_reconnect`, the owner calls `mend`, or has a `successor` made.
pub struct RedisLink {
    address: StoreAddress,
    dialer: Arc<Dialer>,
    routes: Mutex<Routes>,
    /// The connections to Sentinels, which the successors of this link share.
    watch: Arc<SentinelWatch>,
}

impl RedisLink {
    /// Connects: to the server, to the master that Sentinels name, or to every master of the cluster.
    pub async fn open(address: &StoreAddress, timeout: Duration) -> Result<Self, StoreError> {
        <Self as Backend>::open(address, Deadline::after(timeout)).await
    }

    /// Connects again, and looks again which server is the master. In a cluster, connections that work are kept, and nodes that cannot be reached are no
    /// error as long as others can: calls for them fail at once until the next `mend`. After an error the link is as it was.
    pub async fn mend(&mut self, timeout: Duration) -> Result<(), StoreError> {
        *self = self.successor(&[], Deadline::after(timeout)).await?;
        Ok(())
    }

    /// Runs the calls and returns one answer for each, in their order, not later than after `deadline`.
    pub async fn run(&self, calls: &[Call<'_>], deadline: Duration) -> Vec<Result<Value, StoreError>> {
        Backend::run(self, calls, Deadline::after(deadline)).await
    }

    /// Returns what the servers tell about themselves: one, or every master of a cluster that is connected. A server below 6.2 is an error.
    pub async fn facts(&self, deadline: Duration) -> Result<Vec<ServerFacts>, StoreError> {
        Backend::facts(self, Deadline::after(deadline)).await
    }

    /// Whether keys of one call must share a slot.
    pub fn is_cluster(&self) -> bool {
        Self::is_sharded(&self.address)
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for RedisLink {
    type Address = StoreAddress;

    fn is_sharded(address: &StoreAddress) -> bool {
        matches!(address.place, StorePlace::Cluster(_))
    }

    async fn open(address: &StoreAddress, until: Deadline) -> Result<Self, StoreError> {
        let dialer = Arc::new(Dialer::new(address)?);
        let routes = connect(address, &dialer, Nodes::new(), until).await?;
        Ok(Self { address: address.clone(), dialer, routes: Mutex::new(routes), watch: Arc::default() })
    }

    async fn successor(&self, suspects: &[Endpoint], until: Deadline) -> Result<Self, StoreError> {
        let mut kept = self.routes().nodes.clone();
        kept.retain(|endpoint, node| is_open(node) && !suspects.contains(endpoint));
        let routes = connect(&self.address, &self.dialer, kept, until).await?;
        Ok(Self {
            address: self.address.clone(),
            dialer: Arc::clone(&self.dialer),
            routes: Mutex::new(routes),
            watch: Arc::clone(&self.watch),
        })
    }

    fn servers(&self) -> Vec<(Endpoint, Option<StoreError>)> {
        let routes = self.routes();
        let server = |(endpoint, node): (&Endpoint, &Result<Connection, StoreError>)| {
            let ended = || StoreError::Lost { at: endpoint.to_string(), why: "it was closed".into() };
            let problem = match node {
                Err(error) => Some(error.clone()),
                Ok(connection) => connection.is_closed().then(ended),
            };
            (endpoint.clone(), problem)
        };
        routes.nodes.iter().map(server).collect()
    }

    fn server_of(&self, call: &Call<'_>) -> Option<Endpoint> {
        self.routes().route.target(call).ok()
    }

    /// Sends one pipeline to each server, to all servers at once.
    async fn run_each(&self, calls: &[Call<'_>], until: Deadline, take: TakeAnswer<'_>) {
        flight::run(calls, &self.dialer, &self.routes, until, take).await;
    }

    /// Asks only Sentinels: servers of a Redis Cluster tell of moves themselves, with every call that is for another server.
    async fn has_moved(&self, until: Deadline) -> bool {
        let StorePlace::Sentinel { sentinels, master } = &self.address.place else { return false };
        let ours = |named: &Endpoint| self.routes().nodes.contains_key(named);
        self.watch.names_another(&self.dialer, sentinels, master, ours, until).await
    }

    async fn facts(&self, until: Deadline) -> Result<Vec<ServerFacts>, StoreError> {
        let nodes = self.routes().nodes.clone();
        let asked = nodes.values().map(|node| async move {
            let connection = node.as_ref().map_err(Clone::clone)?;
            until.hold(connection.at(), facts::facts(connection)).await
        });
        let all = join_all(asked).await;
        // Some nodes of a cluster may be away.
        let is_away = |answer: &Result<_, StoreError>| answer.as_ref().is_err_and(StoreError::is_transient);
        match all.iter().all(is_away) {
            true => all.into_iter().collect(),
            false => all.into_iter().filter(|answer| !is_away(answer)).collect(),
        }
    }
}

impl fmt::Debug for RedisLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn connect(
    address: &StoreAddress,
    dialer: &Dialer,
    kept: Nodes,
    until: Deadline,
) -> Result<Routes, StoreError> {
    let one = |endpoint: Endpoint, connection| Routes {
        nodes: Nodes::from([(endpoint.clone(), Ok(connection))]),
        route: StoreRoute::One(endpoint),
    };
    match &address.place {
        StorePlace::Single(endpoint) => {
            Ok(one(endpoint.clone(), dialer.dial(endpoint, Whom::Data, until).await?))
        }
        StorePlace::Sentinel { sentinels, master } => {
            let (endpoint, connection) = sentinel::master(dialer, sentinels, master, until).await?;
            Ok(one(endpoint, connection))
        }
        StorePlace::Cluster(seeds) => cluster(dialer, seeds, kept, until).await,
    }
}

/// Reads the map of slots from the first node that has one, then connects to every master in it.
async fn cluster(
    dialer: &Dialer,
    seeds: &[Endpoint],
    mut kept: Nodes,
    until: Deadline,
) -> Result<Routes, StoreError> {
    let mut candidates: Vec<&Endpoint> = seeds.iter().chain(kept.keys()).collect();
    candidates.sort();
    candidates.dedup();
    // These connections are new: an old one that has died without a word would cost the time for asking.
    let mut asked: FuturesUnordered<_> =
        candidates.into_iter().map(|endpoint| slot_map(dialer, endpoint, until)).collect();
    let mut failure = None;
    let (map, endpoint, fresh) = loop {
        match asked.next().await {
            Some(Ok(found)) => break found,
            Some(Err(error)) => {
                failure.get_or_insert(error);
            }
            None => {
                let none = || StoreError::Unreachable { at: "no node".into(), why: "none is named".into() };
                return Err(failure.unwrap_or_else(none));
            }
        }
    };
    drop(asked);
    kept.insert(endpoint, Ok(fresh));
    let masters = map.masters();
    let nodes = join_all(masters.into_iter().map(|master| {
        let known = kept.remove(&master);
        async move {
            match known {
                Some(connection) => (master, connection),
                None => {
                    let connection = dialer.dial(&master, Whom::Data, until).await;
                    (master, connection.map_err(absent))
                }
            }
        }
    }));
    let nodes: Nodes = nodes.await.into_iter().collect();
    match nodes.values().find_map(|node| node.as_ref().err()) {
        Some(error) if nodes.values().all(Result::is_err) => Err(error.clone()),
        _ => Ok(Routes { nodes, route: StoreRoute::Slots(map) }),
    }
}

/// Makes the error that calls for a node get as long as there is no connection to it. These calls did not wait, so it is no timeout.
fn absent(error: StoreError) -> StoreError {
    match error {
        StoreError::TimedOut { ref at, .. } => {
            StoreError::Unreachable { at: at.clone(), why: error.to_string() }
        }
        other => other,
    }
}

async fn slot_map(
    dialer: &Dialer,
    endpoint: &Endpoint,
    until: Deadline,
) -> Result<(SlotMap, Endpoint, Connection), StoreError> {
    let connection = dialer.dial(endpoint, Whom::Data, until).await?;
    let command = ::redis::cmd("CLUSTER").arg("SLOTS").to_owned();
    let answer = until.hold(connection.at(), connection.ask("CLUSTER SLOTS", &command)).await?;
    let at = endpoint.to_string();
    match SlotMap::read(&answer, endpoint) {
        None => Err(StoreError::Nonsense { at, why: "CLUSTER SLOTS is not a list of slots".into() }),
        Some(map) if map.masters().is_empty() => {
            Err(StoreError::ClusterDown { at, why: "no slot is served by any node".into() })
        }
        Some(map) => Ok((map, endpoint.clone(), connection)),
    }
}
