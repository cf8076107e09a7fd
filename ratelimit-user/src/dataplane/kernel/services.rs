//! Forgets the counts of services at their indices before other services get these indices.

use ratelimit_common::abi::{SynState, TotalState, WindowState};

use super::KernelMaps;
use crate::dataplane::{DataplaneError, table::forget};

impl KernelMaps {
    /// Forgets everything spent at the indices of services: by each source, of their totals, and of their SYNs that were not answered with cookies.
    ///
    /// Called before the policy with the new services comes into force. If the policy in force still has a service at such an index, because no other index was free,
    /// packets for the old service until the switch count for the new one: for milliseconds, or half a second if the table is large and full. After the switch the
    /// packets of both could not be told apart.
    pub(super) fn begin_services(&mut self, services: &[u32]) -> Result<(), DataplaneError> {
        if services.is_empty() {
            return Ok(());
        }
        self.table.forget_services(services)?;
        for windows in [&self.windows, &self.kept_windows] {
            forget(windows, WindowState::FRESH, services)
                .map_err(DataplaneError::io("forget what sources have used of the windows of a service"))?;
        }
        self.empty_shares(services)?;
        for index in services {
            self.totals
                .set(*index, TotalState::FULL, 0)
                .map_err(DataplaneError::map("give a service its totals"))?;
            self.syns
                .set(*index, SynState { tat_q8: 0, cookies_until_q8: 0 }, 0)
                .map_err(DataplaneError::map("forget the SYNs of a service"))?;
        }
        Ok(())
    }
}
