//! The link to a store: opened, used, and mended when something says so.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use ::redis::Value;
use futures_util::{StreamExt as _, future::join_all, stream::FuturesUnordered};

use super::{
    Call, Facts, StoreError,
    connection::Connection,
    deadline::Deadline,
    dial::{Dialer, Whom},
    facts, flight, sentinel,
    slots::SlotMap,
};
use crate::policy::address::{Endpoint, Place, StoreAddress};

/// Connections by socket; an error where there is none.
pub(super) type Nodes = BTreeMap<Endpoint, Result<Connection, StoreError>>;

/// A link to a store. It does nothing by itself: no reconnecting, no repeating. Whoever gets an error that `needs_reconnect` calls `mend`.
pub struct Link {
    address: StoreAddress,
    dialer: Arc<Dialer>,
    nodes: Nodes,
    route: Route,
}

/// Where calls go.
pub(super) enum Route {
    One(Endpoint),
    Slots(SlotMap),
}

impl Link {
    /// Connects: to the server, to the master that Sentinels name, or to every master of the cluster.
    pub async fn open(address: &StoreAddress, timeout: Duration) -> Result<Self, StoreError> {
        let dialer = Arc::new(Dialer::new(address)?);
        let (nodes, route) = connect(address, &dialer, Nodes::new(), Deadline::after(timeout)).await?;
        Ok(Self { address: address.clone(), dialer, nodes, route })
    }

    /// Connects again, and looks again who is master. In a cluster connections that work are kept, and nodes that cannot be reached are no
    /// error as long as others can: calls for them fail at once until the next `mend`. On error everything is as it was.
    pub async fn mend(&mut self, timeout: Duration) -> Result<(), StoreError> {
        let until = Deadline::after(timeout);
        (self.nodes, self.route) = connect(&self.address, &self.dialer, self.kept(), until).await?;
        Ok(())
    }

    /// What `mend` would make of it, for whoever has to go on using it meanwhile.
    pub fn successor(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Self, StoreError>> + Send + 'static {
        let (address, dialer, kept) = (self.address.clone(), Arc::clone(&self.dialer), self.kept());
        async move {
            let (nodes, route) = connect(&address, &dialer, kept, Deadline::after(timeout)).await?;
            Ok(Self { address, dialer, nodes, route })
        }
    }

    /// Connections that work.
    fn kept(&self) -> Nodes {
        let kept = self.nodes.iter().filter(|(_, node)| node.as_ref().is_ok_and(|node| !node.is_closed()));
        kept.map(|(endpoint, node)| (endpoint.clone(), node.clone())).collect()
    }

    /// The servers that calls go to, and why not where there is no connection.
    pub fn servers(&self) -> impl Iterator<Item = (&Endpoint, Option<&StoreError>)> {
        self.nodes.iter().map(|(endpoint, node)| (endpoint, node.as_ref().err()))
    }

    /// The server that a call goes to, if there is one.
    pub fn server_of(&self, call: &Call<'_>) -> Option<Endpoint> {
        flight::target(&self.route, call).ok()
    }

    /// Whether a connection has ended since it was last used.
    pub fn has_ended(&self) -> bool {
        self.nodes.values().flatten().any(Connection::is_closed)
    }

    /// Calls for a server fail at once with this, until the next `mend`.
    pub fn give_up(&mut self, server: &Endpoint, error: StoreError) {
        self.nodes.insert(server.clone(), Err(error));
    }

    /// Calls for any server to which there is no connection fail at once with this, until the next `mend`.
    pub fn give_up_ended(&mut self, error: &StoreError) {
        for node in self.nodes.values_mut().filter(|node| !node.as_ref().is_ok_and(|node| !node.is_closed()))
        {
            *node = Err(error.clone());
        }
    }

    /// Runs the calls and returns one answer for each, in their order, not later than after `deadline`. One pipeline per server, all servers
    /// at once; a call that fails does not hide the answers of others. A call is sent again only if the server says that it has not run it. One
    /// that timed out or whose connection was lost may have run, or may run later.
    pub async fn run(&mut self, calls: &[Call<'_>], deadline: Duration) -> Vec<Result<Value, StoreError>> {
        flight::run(calls, &self.dialer, &mut self.nodes, &mut self.route, deadline).await
    }

    /// What the servers say of themselves: one, or every master of a cluster that is connected. One below 6.2 is an error.
    pub async fn facts(&mut self, deadline: Duration) -> Result<Vec<Facts>, StoreError> {
        let until = Deadline::after(deadline);
        let asked = self.nodes.values().map(|node| async move {
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

    /// Whether keys of one call must share a slot.
    pub fn is_cluster(&self) -> bool {
        matches!(self.route, Route::Slots(_))
    }

    /// The address it was opened with.
    pub fn address(&self) -> &StoreAddress {
        &self.address
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("address", &self.address)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

async fn connect(
    address: &StoreAddress,
    dialer: &Dialer,
    kept: Nodes,
    until: Deadline,
) -> Result<(Nodes, Route), StoreError> {
    let one = |endpoint: Endpoint, connection| {
        (Nodes::from([(endpoint.clone(), Ok(connection))]), Route::One(endpoint))
    };
    match &address.place {
        Place::Single(endpoint) => Ok(one(endpoint.clone(), dialer.dial(endpoint, Whom::Data, until).await?)),
        Place::Sentinel { sentinels, master } => {
            let (endpoint, connection) = sentinel::master(dialer, sentinels, master, until).await?;
            Ok(one(endpoint, connection))
        }
        Place::Cluster(seeds) => cluster(dialer, seeds, kept, until).await,
    }
}

/// The map of slots from the first node that has one, then a connection to every master in it.
async fn cluster(
    dialer: &Dialer,
    seeds: &[Endpoint],
    mut kept: Nodes,
    until: Deadline,
) -> Result<(Nodes, Route), StoreError> {
    let mut candidates: Vec<&Endpoint> = seeds.iter().chain(kept.keys()).collect();
    candidates.sort();
    candidates.dedup();
    // Connections of their own: one that has died without a word must not cost the time for asking.
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
        _ => Ok((nodes, Route::Slots(map))),
    }
}

/// The error that calls for a node get as long as there is no connection to it: they did not wait themselves.
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
