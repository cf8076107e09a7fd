//! The leases of users' limits that hold on all hosts together, and the units that this host has spent.

use std::{collections::HashMap, os::fd::AsFd as _};

use aya::maps::IterableMap as _;
use ratelimit_common::abi::{Lease, Spent, lease::MAX_LEASES};

use super::KernelMaps;
use crate::dataplane::{DataplaneError, batch};

/// The number of places up to which they are read one by one; for more, the whole map is read at once.
const FEW: usize = 256;
const NOTHING: Spent = Spent { used: 0, unmet: 0 };

/// Spent units, by place.
#[derive(Clone, Debug)]
pub enum AllSpent {
    /// Spent units of some places.
    Some(HashMap<u32, Spent>),
    /// Spent units of every place, in order.
    All(Vec<Spent>),
}

impl AllSpent {
    /// Returns the spent units at a place; none if the place was not read.
    pub fn of(&self, place: u32) -> Spent {
        let found = match self {
            Self::Some(some) => some.get(&place),
            Self::All(all) => all.get(place as usize),
        };
        found.copied().unwrap_or(NOTHING)
    }
}

impl KernelMaps {
    /// Reads the spent units at a place.
    pub fn spent(&self, place: u32) -> Result<Spent, DataplaneError> {
        self.spent.get(&place, 0).map_err(DataplaneError::map("read what users have spent"))
    }

    /// Reads the spent units at several places.
    pub fn all_spent(&self, places: &[u32]) -> Result<AllSpent, DataplaneError> {
        if places.len() <= FEW {
            let one = |place: &u32| Ok((*place, self.spent(*place)?));
            return places.iter().map(one).collect::<Result<_, DataplaneError>>().map(AllSpent::Some);
        }
        let mut all = vec![NOTHING; MAX_LEASES];
        let take = |keys: &[u32], values: &[Spent]| {
            keys.iter().zip(values).for_each(|(place, spent)| all[*place as usize] = *spent);
        };
        batch::for_each_batch(self.spent.map().fd().as_fd(), (0_u32, NOTHING), 0_u32, take)
            .map_err(DataplaneError::io("read what users have spent"))?;
        Ok(AllSpent::All(all))
    }

    /// Reads the lease at a place.
    pub fn lease(&self, place: u32) -> Result<Lease, DataplaneError> {
        self.leases.get(&place, 0).map_err(DataplaneError::map("read the leases of users"))
    }

    /// Writes the lease at a place.
    pub fn set_lease(&mut self, place: u32, lease: Lease) -> Result<(), DataplaneError> {
        self.leases.set(place, lease, 0).map_err(DataplaneError::map("give a user its lease"))
    }
}
