//! What this host may spend of users' limits that hold on all hosts together, and what it has spent.

use ratelimit_common::abi::{Lease, Spent};

use super::Maps;
use crate::dataplane::DataplaneError;

impl Maps {
    /// What has been spent of the limit at a place.
    pub fn spent(&self, place: u32) -> Result<Spent, DataplaneError> {
        self.spent.get(&place, 0).map_err(DataplaneError::map("read what users have spent"))
    }

    /// What may be spent of it.
    pub fn lease(&self, place: u32) -> Result<Lease, DataplaneError> {
        self.leases.get(&place, 0).map_err(DataplaneError::map("read the leases of users"))
    }

    /// Has other amounts spent from now on.
    pub fn set_lease(&mut self, place: u32, lease: Lease) -> Result<(), DataplaneError> {
        self.leases.set(place, lease, 0).map_err(DataplaneError::map("give a user its lease"))
    }
}
