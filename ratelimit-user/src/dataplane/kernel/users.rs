//! The buckets of users, and the limits that they are held to.

use aya::maps::{Array, MapData, MapError};
use ratelimit_common::abi::{Bucket, LimitSet, WindowState, user::MAX_USERS, window::SET_WINDOWS};

use super::Maps;
use crate::dataplane::DataplaneError;

impl Maps {
    /// The limits of a user in force, and its buckets.
    pub fn user(&self, index: u32) -> Result<(LimitSet, Bucket), DataplaneError> {
        let bucket = self.users.get(&index, 0).map_err(DataplaneError::map("read the buckets of a user"))?;
        Ok((self.user_set(index)?.unwrap_or(LimitSet::NONE), bucket))
    }

    /// Gives a user its whole burst again.
    pub fn refill_user(&mut self, index: u32) -> Result<(), DataplaneError> {
        self.begin_windows(&[index])?;
        let full = Bucket::FULL;
        self.users.set(index, full, 0).map_err(DataplaneError::map("give a user its buckets"))
    }

    /// Forgets what users have used of their windows.
    pub(super) fn begin_windows(&mut self, users: &[u32]) -> Result<(), DataplaneError> {
        let places = users.iter().flat_map(|user| (0..SET_WINDOWS as u32).map(move |place| (user, place)));
        for (user, place) in places {
            self.user_windows
                .set(user * SET_WINDOWS as u32 + place, WindowState::FRESH, 0)
                .map_err(DataplaneError::map("give a user its windows"))?;
        }
        Ok(())
    }

    /// The limits of every user in force, by index; none before the first policy.
    pub fn user_sets(&self) -> Result<Vec<LimitSet>, DataplaneError> {
        let Some(table) = self.user_table()? else { return Ok(Vec::new()) };
        (0..MAX_USERS as u32).map(|index| table.get(&index, 0).map_err(READ)).collect()
    }

    fn user_set(&self, index: u32) -> Result<Option<LimitSet>, DataplaneError> {
        self.user_table()?.map(|table| table.get(&index, 0).map_err(READ)).transpose()
    }

    /// The table that the policy in force reads, if it has users.
    fn user_table(&self) -> Result<Option<Array<MapData, LimitSet>>, DataplaneError> {
        let Some(policy) = self.policy().filter(|policy| policy.user_count > 0) else { return Ok(None) };
        self.user_limits.get(&policy.tables, 0).map(Some).map_err(READ)
    }
}

const READ: fn(MapError) -> DataplaneError =
    |source| DataplaneError::Map { action: "read the limits of users".to_owned(), source };
