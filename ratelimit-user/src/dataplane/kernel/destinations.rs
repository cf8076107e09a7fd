//! The table of destinations, which divides ports between services.

use aya::maps::{LpmTrie, MapData, lpm_trie::Key};
use ratelimit_common::abi::destination::{DestinationKey, MAX_DESTINATIONS};

use super::KernelMaps;
use crate::{compile::Desired, dataplane::DataplaneError};

/// The flag BPF_F_NO_PREALLOC, without which the kernel refuses tries.
const NO_PREALLOC: u32 = 1;

impl KernelMaps {
    /// Writes the destinations of a policy into a new table. Packets read it only once the policy that refers to it is in force, so a
    /// failure leaves nothing to undo. A policy without destinations needs no table.
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
