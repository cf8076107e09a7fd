//! Leases: what this host may spend of limits that hold for a user on all hosts together.

use super::{MAX_LIMITS, user::MAX_USERS};
use crate::abi_struct;

/// Leases that there can be: one for each limit of each user.
pub const MAX_LEASES: usize = MAX_USERS * MAX_LIMITS;

/// Where the lease of a user's limit is, by the user's index and the limit's place in its set.
#[inline(always)]
pub const fn lease_place(user: u32, limit: u32) -> u32 {
    user * MAX_LIMITS as u32 + limit
}

abi_struct! {
    /// What may be spent, as the daemon has it from the store. Only the daemon writes it.
    pub struct Lease: 24 {
        /// Units that may have been spent in all, ever: a level for [`Spent::used`], which never goes back.
        pub ceiling: u64,
        /// Until when, as a time word. What has not been spent then is not ours any more.
        pub expires_q8: u64,
        /// How far [`Spent::unmet`] is worth counting. More than that would not change what the daemon asks for.
        pub enough: u64,
    }
}

impl Lease {
    /// Nothing may be spent.
    pub const NONE: Self = Self { ceiling: 0, expires_q8: 0, enough: 0 };
}

abi_struct! {
    /// What packets have spent. Only the packet path writes it.
    pub struct Spent: 16 {
        /// Units spent from leases, ever.
        pub used: u64,
        /// Units asked for that no lease covered, ever; not counted beyond [`Lease::enough`].
        pub unmet: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_of_each_user_has_a_place_of_its_own() {
        let places =
            [(0, 0), (0, 3), (1, 0), (MAX_USERS as u32 - 1, 3)].map(|(user, limit)| lease_place(user, limit));
        assert_eq!(places, [0, 3, 4, MAX_LEASES as u32 - 1]);
    }
}
