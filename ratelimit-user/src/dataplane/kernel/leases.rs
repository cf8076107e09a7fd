//! What this host may spend of users' limits that hold on all hosts together, and what it has spent.

use std::{collections::HashMap, os::fd::AsFd as _};

use aya::maps::IterableMap as _;
use ratelimit_common::abi::{Lease, Spent, lease::MAX_LEASES};

use super::KernelMaps;
use crate::dataplane::{DataplaneError, batch};

/// With more places than this, the whole map is read at once.
const FEW: usize = 256;
const NOTHING: Spent = Spent { used: 0, unmet: 0 };

/// What has been spent, by place.
#[derive(Clone, Debug)]
pub enum AllSpent {
    /// What was spent of single places.
    Some(HashMap<u32, Spent>),
    /// What was spent of every place, in order.
    All(Vec<Spent>),
}

impl AllSpent {
    /// What has been spent at a place.
    pub fn of(&self, place: u32) -> Spent {
        let found = match self {
            Self::Some(some) => some.get(&place),
            Self::All(all) => all.get(place as usize),
        };
        found.copied().unwrap_or(NOTHING)
    }
}

impl KernelMaps {
    /// What has been spent of the limit at a place.
    pub fn spent(&self, place: u32) -> Result<Spent, DataplaneError> {
        self.spent.get(&place, 0).map_err(DataplaneError::map("read what users have spent"))
    }

    /// What has been spent at these places.
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

    /// What may be spent of it.
    pub fn lease(&self, place: u32) -> Result<Lease, DataplaneError> {
        self.leases.get(&place, 0).map_err(DataplaneError::map("read the leases of users"))
    }

    /// Has other amounts spent from now on.
    pub fn set_lease(&mut self, place: u32, lease: Lease) -> Result<(), DataplaneError> {
        self.leases.set(place, lease, 0).map_err(DataplaneError::map("give a user its lease"))
    }
}
