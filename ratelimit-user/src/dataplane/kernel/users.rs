//! The buckets of users, and their limits.

use std::fmt;

use aya::maps::{Array, MapData, MapError};
use ratelimit_common::abi::{Bucket, LimitSet, WindowState, user::MAX_USERS, window::SET_WINDOWS};

use super::KernelMaps;
use crate::dataplane::DataplaneError;

/// The users of the policy in force. Finding their table takes a look at the whole policy in the kernel, so this is made once for many users.
pub struct UserTable<'m> {
    maps: &'m KernelMaps,
    limits: Option<&'m Array<MapData, LimitSet>>,
}

impl fmt::Debug for UserTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserTable").finish_non_exhaustive()
    }
}

impl UserTable<'_> {
    /// Reads the limits of a user, and its buckets.
    pub fn user(&self, index: u32) -> Result<(LimitSet, Bucket), DataplaneError> {
        let bucket = self.maps.user_bucket(index)?;
        let set = self.limits.map(|table| table.get(&index, 0).map_err(READ)).transpose()?;
        Ok((set.unwrap_or(LimitSet::NONE), bucket))
    }
}

impl KernelMaps {
    /// Returns the users of the policy in force.
    pub fn users_in_force(&self) -> Result<UserTable<'_>, DataplaneError> {
        Ok(UserTable { maps: self, limits: self.user_table()? })
    }

    /// Reads the buckets of a user.
    pub fn user_bucket(&self, index: u32) -> Result<Bucket, DataplaneError> {
        self.users.get(&index, 0).map_err(DataplaneError::map("read the buckets of a user"))
    }

    /// Gives a user its whole burst again: fills its buckets, and forgets the counts of its windows.
    pub fn refill_user(&mut self, index: u32) -> Result<(), DataplaneError> {
        let first = index * SET_WINDOWS as u32;
        self.begin_windows(&(first..first + SET_WINDOWS as u32).collect::<Vec<_>>())?;
        let full = Bucket::FULL;
        self.users.set(index, full, 0).map_err(DataplaneError::map("give a user its buckets"))
    }

    /// Forgets the counts of users' windows, which are numbered by user and place.
    pub(super) fn begin_windows(&mut self, windows: &[u32]) -> Result<(), DataplaneError> {
        for window in windows {
            self.user_windows
                .set(*window, WindowState::FRESH, 0)
                .map_err(DataplaneError::map("give a user its windows"))?;
        }
        Ok(())
    }

    /// Reads the limits of every user in force, by index; empty if there are no users.
    pub fn user_sets(&self) -> Result<Vec<LimitSet>, DataplaneError> {
        let Some(table) = self.user_table()? else { return Ok(Vec::new()) };
        (0..MAX_USERS as u32).map(|index| table.get(&index, 0).map_err(READ)).collect()
    }

    /// Returns the table of users' limits that the policy in force reads, if the policy has users.
    fn user_table(&self) -> Result<Option<&Array<MapData, LimitSet>>, DataplaneError> {
        let Some(policy) = self.policy().filter(|policy| policy.user_count > 0) else { return Ok(None) };
        self.user_limits.get(policy.tables).ok_or(READ(MapError::KeyNotFound)).map(Some)
    }
}

const READ: fn(MapError) -> DataplaneError =
    |source| DataplaneError::Map { action: "read the limits of users".to_owned(), source };
