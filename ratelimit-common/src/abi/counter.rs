//! What was counted: one entry per service, reason and CPU.

use super::{
    reason::{REASON_COUNT, Reason},
    service::MAX_SERVICES,
};
use crate::abi_struct;

abi_struct! {
    /// Frames that ended with one reason on one CPU. Only that CPU writes it, so plain additions do.
    pub struct Counter: 16 {
        /// The number of frames.
        pub packets: u64,
        /// Bytes of those frames, from the Ethernet header on.
        pub bytes: u64,
    }
}

/// Places of one service and fate among the counters, one per reason.
pub const REASON_SLOTS: u32 = 32;
/// Places of one service among the counters.
pub const SERVICE_SLOTS: u32 = REASON_SLOTS * Fate::ALL.len() as u32;
/// Counters of all services; the first are those of packets for none.
pub const COUNTER_SLOTS: u32 = SERVICE_SLOTS * (MAX_SERVICES as u32 + 1);
const _: () = assert!(REASON_COUNT <= REASON_SLOTS as usize, "more reasons than places");

/// What became of a frame that ended for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Fate {
    /// What the reason says.
    Decided = 0,
    /// It passed although it would have been dropped: the policy or the service is on trial.
    Waived = 1,
    /// It passed as less important than it was.
    Marked = 2,
    /// The sender of the packet was told that it was refused.
    Rejected = 3,
}

impl Fate {
    /// All of them, by discriminant.
    pub const ALL: [Self; 4] = [Self::Decided, Self::Waived, Self::Marked, Self::Rejected];
}

/// The counter of a reason. `service` is as in the policy's ports: 0, or one more than an index.
#[inline(always)]
pub const fn slot(service: u32, reason: Reason, fate: Fate) -> u32 {
    service * SERVICE_SLOTS + fate as u32 * REASON_SLOTS + reason as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_counters_share_a_place_and_all_of_them_fit() {
        let last = slot(MAX_SERVICES as u32, Reason::ExtensionChain, Fate::Rejected);
        assert!((COUNTER_SLOTS - REASON_SLOTS..COUNTER_SLOTS).contains(&last));
        let per_fate = slot(0, Reason::Conforming, Fate::Waived);
        assert_eq!((per_fate, slot(1, Reason::Conforming, Fate::Decided)), (REASON_SLOTS, 4 * REASON_SLOTS));
        assert_eq!(COUNTER_SLOTS, 257 * 4 * 32);
    }
}
