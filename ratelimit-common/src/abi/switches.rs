//! Switches that the daemon sets while packets come in.

use crate::{abi_struct, limit::prefilter::LONGEST_NEGATIVE_ENTRY_Q8};

abi_struct! {
    /// The switches. Only the daemon writes them. An update of a map copies its fields in no order that one may rely on, so the lane is opened by an update of its own: see
    /// [`Switches::opening_no_earlier`].
    pub struct Switches: 48 {
        /// Changes of lists keep the express lane closed, for IPv4 and for IPv6, until this monotonic time: see [`lane_opens_ns`]. [`NEVER_NS`]: for good.
        pub lane_from_ns: [u64; 2],
        /// 1 if the list of IPv4, or of IPv6, has entries: looking up an empty trie costs as much as a short one.
        pub listed: [u32; 2],
        /// 1 while the express lane's copy of the policy is the policy in force.
        pub express: u32,
        /// 1 if the lane may repeat the refusals of a total by that total alone: no limit counts bytes, and no limit is shared by users.
        pub totals: u32,
        /// When the express lane opens to IPv4 and to IPv6: packets read only this. [`Switches::opening`] computes it from the fields above.
        pub opens_ns: [u64; 2],
    }
}

impl Switches {
    /// The switches of a program without a policy.
    pub const CLOSED: Self =
        Self { lane_from_ns: [0; 2], listed: [0; 2], express: 0, totals: 0, opens_ns: [NEVER_NS; 2] };

    /// The switches with `opens_ns` filled in: the lane is open when both the policy and the lists allow it.
    #[must_use]
    pub const fn opening(self) -> Self {
        let opens_ns = if self.express == 0 { [NEVER_NS; 2] } else { self.lane_from_ns };
        Self { opens_ns, ..self }
    }

    /// The switches while the lane opens no earlier than it did before: everything else is written with this.
    #[must_use]
    pub fn opening_no_earlier(self, before: &Self) -> Self {
        let later = |family: usize| self.opens_ns[family].max(before.opens_ns[family]);
        Self { opens_ns: [later(0), later(1)], ..self }
    }
}

/// A time that never comes: the express lane stays closed.
pub const NEVER_NS: u64 = u64::MAX;

/// When the express lane opens again to a family whose list was changed at `changed_ns`.
///
/// The lane knows a source by what the limiter remembers of it, and does not look into the lists. By that time, everything that the limiter remembered
/// before the change has run out; twice as long, because clocks differ by a tick or two.
pub const fn lane_opens_ns(changed_ns: u64) -> u64 {
    changed_ns.saturating_add(2 * (LONGEST_NEGATIVE_ENTRY_Q8 >> crate::limit::gcra::TIME_FRAC_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lane_is_open_from_when_lists_let_it_while_the_policy_does() {
        let closed = Switches { lane_from_ns: [7, NEVER_NS], ..Switches::CLOSED };
        assert_eq!(closed.opening().opens_ns, [NEVER_NS; 2], "no policy");
        let open = Switches { express: 1, ..closed }.opening();
        assert_eq!(open.opens_ns, [7, NEVER_NS]);
        assert_eq!(Switches { express: 0, ..open }.opening().opens_ns, [NEVER_NS; 2], "closed again");
    }

    #[test]
    fn everything_else_is_written_before_the_lane_opens() {
        let closed = Switches { lane_from_ns: [7, 9], listed: [1, 0], ..Switches::CLOSED }.opening();
        let open = Switches { express: 1, totals: 1, listed: [0, 0], ..closed }.opening();
        assert_eq!(open.opening_no_earlier(&closed), Switches { opens_ns: [NEVER_NS; 2], ..open });
        assert_eq!(closed.opening_no_earlier(&open), closed, "it closes at once");
    }

    #[test]
    fn the_lane_opens_when_all_that_was_remembered_before_a_change_is_over() {
        let longest_ns = LONGEST_NEGATIVE_ENTRY_Q8 >> 8;
        assert_eq!(lane_opens_ns(1_000), 1_000 + 2 * longest_ns);
        assert_eq!(lane_opens_ns(NEVER_NS - 1), NEVER_NS);
    }
}
