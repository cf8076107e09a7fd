//! The destinations that divide ports between services.

use aya::maps::{LpmTrie, MapData, lpm_trie::Key};
use ratelimit_common::abi::destination::{DestinationKey, MAX_DESTINATIONS};

use super::KernelMaps;
use crate::{compile::Desired, dataplane::DataplaneError};

/// The kernel takes tries with this flag only (BPF_F_NO_PREALLOC).
const NO_PREALLOC: u32 = 1;

impl KernelMaps {
    /// Writes a policy's destinations into a table of their own: nobody reads it before the policy that refers to it is in force, and a
    /// failure leaves nothing to undo. A policy without any never asks.
    pub(super) fn write_destinations(&mut self, desired: &Desired) -> Result<(), DataplaneError> {
        if desired.destinations.is_empty() {
            return Ok(());
        }
        let mut table = LpmTrie::<MapData, DestinationKey, u32>::create(MAX_DESTINATIONS, NO_PREALLOC)
            .map_err(DataplaneError::map("make a map for destinations"))?;
        for one in &desired.destinations {
            table
                .insert(&Key::new(one.bits, one.key), one.service, 0)
                .map_err(DataplaneError::map("write the destinations of services"))?;
        }
        self.destinations
            .set(desired.policy.tables, &table, 0)
            .map_err(DataplaneError::map("put the destinations of services in place"))
    }
}
