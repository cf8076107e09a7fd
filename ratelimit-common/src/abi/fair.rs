//! What sources of crowded prefixes have had of their fair shares, and who was asked for a connection.

use crate::abi_struct;

abi_struct! {
    /// The words of all sources that the prefilter's hash puts here; see `limit::fair` for what they mean. All zero is a fresh one.
    pub struct FairCell: 16 {
        /// What was had beyond a fair share, and when that was reckoned.
        pub share: u64,
        /// Which source was last asked for a connection, and until when it is asked again only while lookups are plenty.
        pub asked: u64,
    }
}
