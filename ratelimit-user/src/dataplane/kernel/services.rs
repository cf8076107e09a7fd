//! What is known of services at their indices, when others come there.

use ratelimit_common::abi::{SynState, TotalState, WindowState};

use super::KernelMaps;
use crate::dataplane::{DataplaneError, table::forget};

impl KernelMaps {
    /// Forgets what was spent at the indices of services: by each source, of their totals, and of the SYNs that are not answered with cookies.
    ///
    /// Before the policy that has the newcomers. Where the policy in force still has a service at such an index, because every other index is taken too, packets that
    /// come for it until the switch are counted for the newcomer: for milliseconds, or half a second where the table is large and full. Afterwards nobody could tell
    /// them from the newcomer's own.
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
                .set(*index, TotalState { tat_q8: [0; 2] }, 0)
                .map_err(DataplaneError::map("give a service its totals"))?;
            self.syns
                .set(*index, SynState { tat_q8: 0, cookies_until_q8: 0 }, 0)
                .map_err(DataplaneError::map("forget the SYNs of a service"))?;
        }
        Ok(())
    }
}
