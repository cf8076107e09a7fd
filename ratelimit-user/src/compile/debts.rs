//! What users have spent, when a limit of theirs becomes slower.
//!
//! Words are times, so a change of price changes how many packets a debt is: half an hour of 5000 packets/hour are 2500, and of 500 packets/hour they are 250. A limit
//! that becomes slower would take the difference for unspent. For a user the policy says what counts as spent, as `succession` does for sources
//! whose words are lost: as many packets as before, at the new price. There is a word for each user, which is read when the policy is compiled; sources are too many
//! for that.
//!
//! ```text
//! 500 packets/hour, all spent  ->  5000 packets/hour, one packet refused  ->  500 packets/hour again
//! word 3600 s ahead                word 360 s ahead: exactly empty            word 360 s ahead, 3600 s are owed
//! ```

use ratelimit_common::{
    abi::{
        Bucket, Limit, LimitSet,
        policy::{COUNTS_BYTES, HELD, NO_METER, SOFT},
    },
    limit::gcra::{Start, ahead_q8},
};

use super::desired::Desired;

impl Desired {
    /// Has users owe what they have spent under limits that are slower now. `before` are the limits that a user is held to, and `bucket` its words.
    pub fn carry_debts(
        &mut self,
        before: impl Fn(u32) -> Option<LimitSet>,
        bucket: impl Fn(u32) -> Option<Bucket>,
        now_q8: u64,
    ) {
        for (index, set) in &mut self.users {
            if self.new_users.binary_search(index).is_ok() {
                continue;
            }
            let Some(old) = before(*index).filter(|old| is_slower(old, set)) else { continue };
            let Some(bucket) = bucket(*index) else { continue };
            let debt_q8 = debt_q8(&old, set, &bucket, now_q8);
            let owed_q8 = ahead_q8(set.owed_since_q8.wrapping_add(set.owed_q8), now_q8);
            if debt_q8 > if set.owed_q8 == 0 { 0 } else { owed_q8 } {
                (set.owed_since_q8, set.owed_q8) = (now_q8, debt_q8);
            }
        }
    }

    /// This policy as it is when the user at a place is forgiven its debt; `None` if the user owes nothing.
    pub fn forgiving(&self, index: u32) -> Option<Self> {
        self.user_set(index).filter(|set| set.owed_q8 != 0)?;
        let mut next = self.clone();
        for (_, set) in next.users.iter_mut().filter(|(other, _)| *other == index) {
            (set.owed_since_q8, set.owed_q8) = (0, 0);
        }
        next.begin_again();
        next.use_other_tables();
        Some(next)
    }
}

/// Whether a limit of a set is slower than the one at its place before.
fn is_slower(old: &LimitSet, new: &LimitSet) -> bool {
    pairs(old, new).next().is_some()
}

/// The most that is spent of a limit that is slower now, in its own time.
fn debt_q8(old: &LimitSet, new: &LimitSet, bucket: &Bucket, now_q8: u64) -> u64 {
    let debt = |(place, was, is): (usize, &Limit, &Limit)| {
        let spent = Start::of(old, was, now_q8).spent_q8(ahead_q8(bucket.tat_q8[place], now_q8));
        // What is further ahead was spent under a limit that was slower still, and counts as an empty bucket.
        let spent = u128::from(spent.min(was.tolerance_q8));
        let owed = (spent * price(is, was)).div_ceil(price(was, is).max(1));
        u64::try_from(owed).unwrap_or(u64::MAX).min(is.tolerance_q8)
    };
    pairs(old, new).map(debt).max().unwrap_or(0)
}

/// Limits that are slower than those at their places before, with those.
fn pairs<'s>(old: &'s LimitSet, new: &'s LimitSet) -> impl Iterator<Item = (usize, &'s Limit, &'s Limit)> {
    let both = old.limits.iter().zip(&new.limits).enumerate();
    both.map(|(place, (was, is))| (place, was, is)).filter(|(_, was, is)| {
        is.meter != NO_METER && was.meter == is.meter && price(is, was) > price(was, is)
    })
}

/// The price of one limit with as many fraction bits as both together have, to be compared with the other's.
fn price(one: &Limit, other: &Limit) -> u128 {
    let bits = other.frac_bits & !(COUNTS_BYTES | SOFT | HELD);
    u128::from(one.cost_fp) << (bits & 63)
}
