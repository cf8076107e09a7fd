//! Which server a call goes to, and over which connection.

use std::collections::BTreeMap;

use super::{
    connection::Connection,
    script::Call,
    slots::{SlotMap, slot},
    store_error::StoreError,
};
use crate::policy::address::Endpoint;

/// Connections by socket, or the error that says why there is none.
pub(super) type Nodes = BTreeMap<Endpoint, Result<Connection, StoreError>>;

/// All servers of a store, as far as they are known.
pub(super) struct Routes {
    pub(super) nodes: Nodes,
    pub(super) route: StoreRoute,
}

/// Where calls go.
pub(super) enum StoreRoute {
    One(Endpoint),
    Slots(SlotMap),
}

impl StoreRoute {
    /// Returns the server that a call goes to.
    pub(super) fn target(&self, call: &Call<'_>) -> Result<Endpoint, StoreError> {
        match self {
            Self::One(endpoint) => Ok(endpoint.clone()),
            Self::Slots(map) => {
                let mut slots = call.keys.iter().map(|key| slot(key));
                let first = slots.next().unwrap_or(0);
                if slots.any(|other| other != first) {
                    return Err(StoreError::CrossSlot { script: call.script.name().to_owned() });
                }
                let nobody = || StoreError::ClusterDown {
                    at: "its map of slots".into(),
                    why: format!("slot {first} is served by no node"),
                };
                map.owner(first).cloned().ok_or_else(nobody)
            }
        }
    }
}

/// Whether there is a connection that has not ended.
pub(super) fn is_open(node: &Result<Connection, StoreError>) -> bool {
    node.as_ref().is_ok_and(|connection| !connection.is_closed())
}
