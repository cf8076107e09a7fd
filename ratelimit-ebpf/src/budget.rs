//! Per-CPU budgets: bounds on inserts, socket lookups, replies and drop events, which a spoofed flood would otherwise make one CPU do without end.

use ratelimit_common::{
    abi::{Limit, Policy, SourceKey},
    limit::{
        gcra::{self, GcraOutcome, SHARED_ROOM_Q8},
        prefilter,
    },
};

use crate::{
    packet::{Address, Family},
    tables::{CpuBudget, Tables},
};

/// Packets that the memory of known clients learns from one by one: 20 000 each second.
const LESSONS: Limit = Limit {
    cost_fp: 50_000 << gcra::TIME_FRAC_BITS,
    tolerance_q8: 100_000_000 << gcra::TIME_FRAC_BITS,
    ..Limit::UNUSED
};

/// Challenges of one CPU: a million each second.
const CHALLENGES: Limit = Limit {
    cost_fp: 1_000 << gcra::TIME_FRAC_BITS,
    tolerance_q8: 10_000_000 << gcra::TIME_FRAC_BITS,
    ..Limit::UNUSED
};

/// Challenges that the hosts of one network get, an IPv4 /24 or an IPv6 /48: 200 each second. So forged queries do not turn this host on another one. Of a flood
/// from all of IPv4, three million queries each second, each of the 65 536 cells gets 46.
const CHALLENGES_OF_NETWORK: Limit = Limit {
    cost_fp: 5_000_000 << gcra::TIME_FRAC_BITS,
    tolerance_q8: 1_000_000_000 << gcra::TIME_FRAC_BITS,
    ..Limit::UNUSED
};

/// Whether this CPU's budget has room for one more entry of a new source. Takes nothing.
#[inline(always)]
pub(crate) fn admits_newcomer<T: Tables>(tables: &T, policy: &Policy, now_q8: u64) -> bool {
    has(tables, policy, CpuBudget::Newcomers, now_q8)
}

/// Whether a budget has at least one left. Takes nothing.
#[inline(always)]
pub(crate) fn has<T: Tables>(tables: &T, policy: &Policy, budget: CpuBudget, now_q8: u64) -> bool {
    let Some(word) = tables.budget(budget) else { return false };
    let limit = limit(policy, budget);
    matches!(gcra::take(tables.load(word), limit, now_q8, limit.cost_fp), GcraOutcome::Conforms { .. })
}

/// Takes one from a budget, if there is one left. The words are this CPU's own, so plain stores suffice.
#[inline(always)]
pub(crate) fn take<T: Tables>(tables: &T, policy: &Policy, budget: CpuBudget, now_q8: u64) -> bool {
    let Some(word) = tables.budget(budget) else { return false };
    take_from(tables, word, limit(policy, budget), now_q8)
}

/// Takes one from the budget of socket lookups. A source that was asked a moment ago has only the first half of the budget: the other half is for sources
/// that were not asked.
#[inline(always)]
pub(crate) fn take_proof<T: Tables>(tables: &T, policy: &Policy, asked: bool, now_q8: u64) -> bool {
    let Some(word) = tables.budget(CpuBudget::Proofs) else { return false };
    let limit = policy.prefilter.proofs;
    let limit = Limit { tolerance_q8: limit.tolerance_q8 >> (asked as u32), ..limit };
    take_from(tables, word, &limit, now_q8)
}

/// Takes one from the budgets of challenges: that of the addressee's network, which all CPUs share, and that of this CPU.
#[inline(always)]
pub(crate) fn take_challenge<T: Tables>(
    tables: &T,
    policy: &Policy,
    addressee: &Address,
    now_q8: u64,
) -> bool {
    let network = match addressee.family {
        Family::V4 => SourceKey::from_v4(addressee.v4_word() & u32::from_be(0xffff_ff00)),
        Family::V6 => SourceKey { hi: addressee.key.hi & u64::from_be(0xffff_ffff_ffff_0000), lo: 0 },
    };
    let cell = prefilter::cell_index(prefilter::hash(network, policy.prefilter.secret));
    let Some(word) = tables.challenged(cell) else { return false };
    take_from(tables, word, &CHALLENGES_OF_NETWORK, now_q8)
        && take(tables, policy, CpuBudget::Challenges, now_q8)
}

#[inline(always)]
fn take_from<T: Tables>(tables: &T, word: T::Word, limit: &Limit, now_q8: u64) -> bool {
    let seen = tables.load(word);
    match gcra::take(seen, limit, now_q8, limit.cost_fp) {
        GcraOutcome::Conforms { tat_q8 } => {
            tables.store(word, tat_q8);
            true
        }
        GcraOutcome::Refused => {
            let most_q8 = limit.tolerance_q8 + SHARED_ROOM_Q8;
            let settled_q8 = gcra::settled_q8(seen, most_q8, limit.tolerance_q8, now_q8);
            if settled_q8 != seen {
                tables.store(word, settled_q8);
            }
            false
        }
    }
}

#[inline(always)]
const fn limit(policy: &Policy, budget: CpuBudget) -> &Limit {
    match budget {
        CpuBudget::Newcomers => &policy.prefilter.new_sources,
        CpuBudget::Proofs => &policy.prefilter.proofs,
        CpuBudget::Rejections => &policy.prefilter.rejections,
        CpuBudget::Reports => &policy.prefilter.reports,
        CpuBudget::Lessons => &LESSONS,
        CpuBudget::Challenges => &CHALLENGES,
    }
}
