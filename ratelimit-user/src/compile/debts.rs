//! Carries over what users and totals have spent when one of their limits becomes slower, gets a bigger burst, or counts another meter.
//!
//! Words are times, so a change of price changes how many packets a debt is: half an hour of 5000 packets/hour are 2500, and of 500 packets/hour they are 250. A limit
//! that becomes slower would take the difference for unspent. A bucket that was further ahead than a small burst allows was cut to "exactly empty", so a bigger
//! burst would take the part that was cut for unspent. Each user has one word for each limit, and totals have a few, so their words are read when the policy
//! changes; sources are too many for that.
//!
//! ```text
//! 500 packets/hour, all spent  ->  5000 packets/hour, one packet refused  ->  500 packets/hour again
//! word 3600 s ahead                word 360 s ahead: exactly empty            word 360 s ahead, 3600 s are owed
//!
//! burst 500, all spent         ->  burst 50, one packet refused           ->  burst 500 again
//! word 3600 s ahead                word 360 s ahead: exactly empty            word 360 s ahead, 3600 s are owed: 360 s, and the difference of the bursts
//! ```
//!
//! | change | what counts as spent |
//! |---|---|
//! | slower | as many packets or bytes as before, at the new price |
//! | bigger burst, not quicker | the difference of the bursts too, less what would have filled up of it since the bucket was full: what is left stays what it was |
//! | packets instead of bytes, or the other way round | the same part of the burst |
//! | quicker | as much time as before, and at most the burst: an operator who raises a limit expects an effect at once |

use ratelimit_common::{
    abi::{
        self, Bucket, Limit, LimitSet, TotalState,
        limit::{COUNTS_BYTES, HELD, NO_METER, SOFT},
        service::MAX_TOTALS,
    },
    limit::gcra::{MAX_TOLERANCE_Q8, ahead_q8},
};

use super::{desired::Desired, total};

impl Desired {
    /// Makes users owe what they have spent under limits that are now slower, have a bigger burst or count another meter. `before` gives the limits in force of a
    /// user, and `bucket` its words.
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
            let Some(old) = before(*index).filter(|old| is_carried(old, set)) else { continue };
            let Some(bucket) = bucket(*index) else { continue };
            let Some(standing) = carried(&old, set, &bucket, now_q8) else { continue };
            (set.owed_since_q8, set.owed_q8) = if standing > 0 {
                (now_q8, standing as u64)
            } else {
                // Nothing is owed, but the time is remembered: an even bigger burst has to fill from this time on, not from the time in the word.
                (now_q8.wrapping_sub(standing.unsigned_abs() as u64 + 1), 1)
            };
        }
    }

    /// The words of the totals of a service, or of the host, moved ahead where this policy needs that before it is enforced. `held_q8` is
    /// what CPUs hold of each limit unspent; nobody will spend it any more.
    pub fn carried_total(
        &self,
        before: &abi::Policy,
        index: u32,
        mut state: TotalState,
        held_q8: [u64; MAX_TOTALS],
        now_q8: u64,
    ) -> TotalState {
        // What another service at this place had spent is not carried over.
        if self.new_services.binary_search(&index).is_ok() {
            return state;
        }
        // The total itself is exact; the reserve only divides it.
        state.reserve_tat_q8 = TotalState::FULL.reserve_tat_q8;
        let (old, new) = (total::of(before, index), total::of(&self.policy, index));
        for ((word, held_q8), (was, is)) in state.tat_q8.iter_mut().zip(held_q8).zip(old.iter().zip(new)) {
            let standing = standing(*word, now_q8);
            let spent = FULL_FOR_LONG.max(standing - AheadQ8::from(held_q8));
            if let Some(next) = after(&was.limit, &is.limit, spent).filter(|next| *next > standing) {
                *word = now_q8.wrapping_add(next as u64);
            }
        }
        state
    }

    /// A copy of this policy in which the user at a place owes nothing; `None` if the user owes nothing already.
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

/// The words of a total under a policy that has come into force, moved back where they are beyond what it lets anybody take. A total that has become quicker keeps as many packets
/// or bytes spent as it had, and at least so many that untracked sources find it empty; any other is exactly empty.
pub fn settled_total(
    before: &abi::Policy,
    policy: &abi::Policy,
    index: u32,
    mut state: TotalState,
    now_q8: u64,
) -> TotalState {
    let (old, new) = (total::of(before, index), total::of(policy, index));
    for (word, (was, is)) in state.tat_q8.iter_mut().zip(old.iter().zip(new)) {
        let ahead = AheadQ8::from(ahead_q8(*word, now_q8));
        let next = AheadQ8::from(is.untracked_tolerance_q8).max(spent_now(&was.limit, &is.limit, ahead));
        // A place without a limit keeps its word, because the limit may come back.
        if is.limit.tolerance_q8 > 0 && next < ahead {
            *word = now_q8.wrapping_add(next as u64);
        }
    }
    state
}

/// How far what was spent of a limit is ahead under the one that replaces it: as many packets or bytes if the limit is quicker. At most the whole burst.
fn spent_now(was: &Limit, is: &Limit, ahead: AheadQ8) -> AheadQ8 {
    let [old, new] = [was, is].map(|limit| AheadQ8::from(limit.tolerance_q8));
    let (price_was, price_is) = (price(was, is), price(is, was));
    let spent = if was.meter == is.meter && price_is < price_was {
        div_ceil(ahead.min(old) * price_is, price_was)
    } else {
        ahead
    };
    spent.min(new)
}

/// How far the word of a bucket is ahead of now, in 1/256 ns. Negative: how long the bucket has been full.
type AheadQ8 = i128;

/// A bucket that has been full for this long is full under every limit: no tolerance is longer.
const FULL_FOR_LONG: AheadQ8 = -(MAX_TOLERANCE_Q8 as AheadQ8);

fn standing(word_q8: u64, now_q8: u64) -> AheadQ8 {
    match (word_q8, ahead_q8(word_q8, now_q8)) {
        // No packet has ever charged the bucket.
        (0, _) => FULL_FOR_LONG,
        (_, 0) => FULL_FOR_LONG.max(-AheadQ8::from(now_q8.wrapping_sub(word_q8))),
        (_, ahead_q8) => ahead_q8.into(),
    }
}

/// When a bucket counts as full by the debt of its set, whatever its word says.
fn owed(set: &LimitSet, limit: &Limit, now_q8: u64) -> AheadQ8 {
    if set.owed_q8 == 0 {
        return FULL_FOR_LONG;
    }
    standing(set.owed_since_q8.wrapping_add(set.owed_q8.min(limit.tolerance_q8)), now_q8)
}

/// Whether a limit of a set is slower than the one at its place before, has a bigger burst, or counts something else.
fn is_carried(old: &LimitSet, new: &LimitSet) -> bool {
    old.limits.iter().zip(&new.limits).any(|(was, is)| after(was, is, 0).is_some())
}

/// The furthest that a bucket of the new set must count as ahead, if that is further than its word and the new set say.
fn carried(old: &LimitSet, new: &LimitSet, bucket: &Bucket, now_q8: u64) -> Option<AheadQ8> {
    let pairs = old.limits.iter().zip(&new.limits).zip(bucket.tat_q8);
    let places = pairs.filter_map(|((was, is), word_q8)| {
        let word = standing(word_q8, now_q8);
        let next = after(was, is, word.max(owed(old, was, now_q8)))?;
        (next > word.max(owed(new, is, now_q8))).then_some(next)
    });
    places.max()
}

/// How far a bucket is ahead under the limit that replaces another; `None` if it stays where it is.
fn after(was: &Limit, is: &Limit, standing: AheadQ8) -> Option<AheadQ8> {
    if was.meter == NO_METER || is.meter == NO_METER || standing == FULL_FOR_LONG {
        return None;
    }
    let [old, new] = [was, is].map(|limit| AheadQ8::from(limit.tolerance_q8));
    // A word that is further ahead was charged under an earlier limit, and counts as an empty bucket.
    let standing = standing.min(old);
    if was.meter != is.meter {
        return Some(div_ceil(standing.max(0) * new, old));
    }
    let (price_was, price_is) = (price(was, is), price(is, was));
    let bigger = (new - old * price_is / price_was).max(0);
    if price_is < price_was || (price_is == price_was && bigger == 0) {
        return None;
    }
    Some((div_ceil(standing * price_is, price_was) + bigger).clamp(FULL_FOR_LONG, new))
}

fn div_ceil(dividend: AheadQ8, divisor: AheadQ8) -> AheadQ8 {
    -(-dividend).div_euclid(divisor.max(1))
}

/// The price of a limit, scaled so that it can be compared with the price of the other.
fn price(one: &Limit, other: &Limit) -> AheadQ8 {
    let bits = other.frac_bits & !(COUNTS_BYTES | SOFT | HELD);
    (AheadQ8::from(one.cost_fp) << (bits & 63)).max(1)
}
