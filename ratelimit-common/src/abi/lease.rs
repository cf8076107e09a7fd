//! Leases: what this host may spend of users' limits that hold on all hosts together.

use super::{MAX_LIMITS, user::MAX_USERS};
use crate::abi_struct;

/// Leases that the map has room for: one for each limit of each user.
pub const MAX_LEASES: usize = MAX_USERS * MAX_LIMITS;

/// The index of a lease, by the user's index and the limit's place in the user's set.
#[inline(always)]
pub const fn lease_place(user: u32, limit: u32) -> u32 {
    user * MAX_LIMITS as u32 + limit
}

abi_struct! {
    /// What may be spent of one limit, as the store granted it. Only the daemon writes it.
    pub struct Lease: 24 {
        /// The level that [`Spent::used`] may reach, in units spent since the map was made. The level never falls.
        pub ceiling: u64,
        /// When the lease ends, as a time word. What is not spent by then must not be spent any more.
        pub expires_q8: u64,
        /// The level up to which [`Spent::unmet`] is counted. More would not change what the daemon asks for.
        pub enough: u64,
    }
}

impl Lease {
    /// A lease that allows nothing.
    pub const NONE: Self = Self { ceiling: 0, expires_q8: 0, enough: 0 };
}

abi_struct! {
    /// What packets have spent of one lease. Only the packet path writes it.
    pub struct Spent: 16 {
        /// Units spent from leases since the map was made.
        pub used: u64,
        /// Units that packets needed and no lease covered, since the map was made; not counted beyond [`Lease::enough`].
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
