//! Counters of frames: one for each service, fate, reason and CPU.

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

/// Counters of one service and fate: one for each reason, and spare ones.
pub const REASON_SLOTS: u32 = 32;
/// Counters of one service.
pub const SERVICE_SLOTS: u32 = REASON_SLOTS * Fate::ALL.len() as u32;
/// Counters of all services; the first block is for packets of no service.
pub const COUNTER_SLOTS: u32 = SERVICE_SLOTS * (MAX_SERVICES as u32 + 1);
const _: () = assert!(REASON_COUNT <= REASON_SLOTS as usize, "more reasons than places");

/// What happened to a frame that ended with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Fate {
    /// What the reason says: its verdict.
    Decided = 0,
    /// The frame passed although it would have been dropped: the policy or the service is on trial.
    Waived = 1,
    /// The frame passed with a DSCP class of less importance.
    Marked = 2,
    /// The frame was dropped, and its sender was told.
    Rejected = 3,
}

impl Fate {
    /// All fates, by discriminant.
    pub const ALL: [Self; 4] = [Self::Decided, Self::Waived, Self::Marked, Self::Rejected];
}

/// The index of a counter. `service` is a number as in the policy's table of ports: 0, or one more than an index.
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
