//! What was counted: one entry per service, reason and CPU.

use super::{
    reason::{REASON_COUNT, Reason},
    service::MAX_SERVICES,
};
use crate::abi_struct;

abi_struct! {
    /// Frames that ended with one reason on one CPU. Only that CPU writes it, so plain additions do.
    pub struct Counter: 16 {
        /// Frames.
        pub packets: u64,
        /// Bytes of those frames, from the Ethernet header on.
        pub bytes: u64,
    }
}

/// Places of one service among the counters: reasons as they are, then reasons that would have held.
pub const REASON_SLOTS: u32 = 32;
/// Places of one service among the counters.
pub const SERVICE_SLOTS: u32 = REASON_SLOTS * 2;
/// Counters of all services; the first are those of packets for none.
pub const COUNTER_SLOTS: u32 = SERVICE_SLOTS * (MAX_SERVICES as u32 + 1);
const _: () = assert!(REASON_COUNT <= REASON_SLOTS as usize, "more reasons than places");

/// The counter of a reason. `service` is as in the table of ports: 0, or one more than an index.
#[inline(always)]
pub const fn slot(service: u32, reason: Reason, waived: bool) -> u32 {
    service * SERVICE_SLOTS + waived as u32 * REASON_SLOTS + reason as u32
}
