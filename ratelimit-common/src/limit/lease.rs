//! Spending leases.
//!
//! A lease is a level that the sum of everything spent may reach, and a time after which nothing more may be spent. There is no
//! refill here: a host may spend what it was given. Both numbers only grow, so a lease can be extended while packets spend it:
//! a CPU that reads the old level spends less than it might, never more.

use super::gcra::ahead_q8;
use crate::abi::Lease;

/// The new sum after `amount` more units are spent; `None` if the lease does not cover them.
#[inline(always)]
pub const fn take(used: u64, lease: &Lease, now_q8: u64, amount: u64) -> Option<u64> {
    if ahead_q8(lease.expires_q8, now_q8) == 0 {
        return None;
    }
    let after = used.wrapping_add(amount);
    if after > lease.ceiling { None } else { Some(after) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1 << 40;

    #[test]
    fn a_lease_is_spent_to_its_last_unit_and_not_a_moment_longer_than_it_lasts() {
        let lease = Lease { ceiling: 10, expires_q8: NOW + 1, enough: 0 };
        for (used, now, amount, expected) in [
            (0, NOW, 10, Some(10)),
            (0, NOW, 11, None),
            (9, NOW, 1, Some(10)),
            (10, NOW, 1, None),
            (12, NOW, 1, None),
            (0, NOW + 1, 1, None),
            (0, NOW + (1 << 50), 1, None),
        ] {
            assert_eq!(take(used, &lease, now, amount), expected, "{used} {now} {amount}");
        }
    }

    #[test]
    fn no_lease_covers_nothing() {
        assert_eq!(take(0, &Lease::NONE, NOW, 1), None);
    }
}
