//! One set of limits replaces another: what a change of policy loses sight of counts as spent.
//!
//! Words stay where they are when a policy takes the place of another. Some of them then say less than what was spent: **a change may refuse
//! more for a moment, and never admits more**.
//!
//! | change | what is lost sight of | what is done |
//! |---|---|---|
//! | a cell gives out less than before, or there is no prefilter any more | up to G of a source that its cell vouched for | G counts as spent |
//! | there was no prefilter, or nothing was limited | entries, because no cell knows of them | every cell counts as tracked until all of them are full |
//! | other prefixes are one source | everything: the names of sources are other ones | all counts as spent |
//! | the maps are of another layout | everything that is not copied | all counts as spent |
//! | a limit gets a margin | the bucket of the margin was not charged | the margin begins when its bucket would have filled |

use ratelimit_common::{
    abi::{
        Limit, LimitSet,
        limit::{HELD, NO_METER, SOFT},
    },
    limit::gcra::{MAX_TOLERANCE_Q8, ahead_q8},
};

use crate::policy::Reserve;

/// What a set depends on besides its limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetTerms {
    /// The lag of the clock, which is taken out of every tolerance.
    pub(super) lag_q8: u64,
    /// CPUs that may charge a bucket at the same time.
    pub(super) cpus: u32,
    /// Whether light sources share prefilter cells instead of having entries.
    pub(super) prefilter: bool,
    /// Whether the host has headroom, so that elastic limits give their margins.
    pub(super) headroom: bool,
    /// What this host may spend without a lease, if limits hold on all hosts together.
    pub(super) reserve: Option<Reserve>,
    /// When the policy replaces another; 0 for the first policy.
    pub(super) now_q8: u64,
    /// Whether the end of a paid debt is remembered, because words are carried over: see `debts`.
    pub(super) remembers_debts: bool,
    /// Whether the policy's prefix lengths make other sources than those of the policy before.
    pub(super) other_sources: bool,
}

/// The set that replaces `before`, if `before` had limits.
pub(super) fn after(before: &LimitSet, set: LimitSet, terms: SetTerms) -> LimitSet {
    let SetTerms { now_q8, .. } = terms;
    let (owed_since_q8, owed_q8) = owed(before, &set, terms);
    LimitSet {
        owed_since_q8,
        owed_q8,
        tracked_until_q8: latest(now_q8, before.tracked_until_q8, prefilter_begins(before, &set, now_q8)),
        margins_from_q8: latest(now_q8, before.margins_from_q8, margin_begins(before, &set, now_q8)),
        ..set
    }
}

/// The set at a place without limits before, or with another service: entries of an even earlier policy may be left.
pub(super) fn afresh(set: LimitSet, terms: SetTerms) -> LimitSet {
    if set.prefilter_tolerance_q8 == 0 || terms.now_q8 == 0 {
        return set;
    }
    LimitSet { tracked_until_q8: moment(terms.now_q8, set.longest_tolerance_q8), ..set }
}

/// The set if everything that was spent before is unknown, and so counts as spent.
pub(super) fn spent(set: LimitSet, now_q8: u64) -> LimitSet {
    LimitSet { owed_since_q8: now_q8, owed_q8: set.longest_tolerance_q8, ..set }
}

/// What counts as spent, and since when. A debt of an earlier change stays.
fn owed(before: &LimitSet, set: &LimitSet, terms: SetTerms) -> (u64, u64) {
    let lost_q8 = if terms.other_sources {
        set.longest_tolerance_q8
    } else if before.prefilter_tolerance_q8 > set.prefilter_tolerance_q8 {
        before.prefilter_tolerance_q8
    } else {
        0
    };
    let still_q8 = match before.owed_q8 {
        0 => 0,
        owed => ahead_q8(before.owed_since_q8.wrapping_add(owed), terms.now_q8),
    };
    // A new loss counts from now on: the debt of a long limit says nothing about a short one.
    match (lost_q8, still_q8) {
        (0, 0) if !terms.remembers_debts || filled_long_ago(before, terms.now_q8) => (0, 0),
        (0, _) => (before.owed_since_q8, before.owed_q8),
        _ => (terms.now_q8, lost_q8.max(still_q8)),
    }
}

/// Whether a debt has been paid for longer than any bucket takes to fill.
fn filled_long_ago(before: &LimitSet, now_q8: u64) -> bool {
    let filled_q8 = before.owed_since_q8.wrapping_add(before.owed_q8);
    before.owed_q8 == 0 || now_q8.wrapping_sub(filled_q8) > MAX_TOLERANCE_Q8
}

/// Until when entries from before the prefilter may owe something; 0 if there are none.
fn prefilter_begins(before: &LimitSet, set: &LimitSet, now_q8: u64) -> u64 {
    if before.prefilter_tolerance_q8 == 0 && set.prefilter_tolerance_q8 != 0 {
        moment(now_q8, before.longest_tolerance_q8.max(set.longest_tolerance_q8))
    } else {
        0
    }
}

/// When margins with new buckets begin; 0 if there are none. The bucket of a margin is not new if a soft limit of this price was there before.
fn margin_begins(before: &LimitSet, set: &LimitSet, now_q8: u64) -> u64 {
    let price = |limit: &Limit| (limit.meter, limit.cost_fp, limit.frac_bits & !(SOFT | HELD));
    let had = |limit: &Limit| before.limits.iter().any(|old| old.is_soft() && price(old) == price(limit));
    let new = |limit: &&Limit| limit.is_soft() && !had(limit);
    let slowest =
        set.limits.iter().filter(|limit| limit.meter != NO_METER).filter(new).map(|limit| limit.meter);
    let tolerances = slowest.flat_map(|meter| set.limits.iter().filter(move |limit| limit.meter == meter));
    tolerances.map(|limit| limit.tolerance_q8).max().map_or(0, |longest_q8| moment(now_q8, longest_q8))
}

/// The moment `ahead_q8` after now. Never 0, which stands for no moment.
fn moment(now_q8: u64, ahead_q8: u64) -> u64 {
    now_q8.wrapping_add(ahead_q8).max(1)
}

/// The later of two moments in the future; 0 if neither is.
fn latest(now_q8: u64, one_q8: u64, other_q8: u64) -> u64 {
    let left = |moment_q8: u64| if moment_q8 == 0 { 0 } else { ahead_q8(moment_q8, now_q8) };
    match left(one_q8).max(left(other_q8)) {
        0 => 0,
        most if most == left(one_q8) => one_q8,
        _ => other_q8,
    }
}
