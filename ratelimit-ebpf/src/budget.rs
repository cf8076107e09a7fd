//! Per-CPU budgets: bounds on inserts, socket lookups, replies and drop events, which a spoofed flood would otherwise make one CPU do without end.

use ratelimit_common::{
    abi::{Limit, Policy},
    limit::gcra::{self, GcraOutcome},
};

use crate::tables::{CpuBudget, Tables};

/// Whether this CPU's budget has room for one more entry of a new source. Takes nothing.
#[inline(always)]
pub(crate) fn admits_newcomer<T: Tables>(tables: &T, policy: &Policy, now_q8: u64) -> bool {
    has(tables, policy, CpuBudget::Newcomers, now_q8)
}

/// Whether a budget has at least one left. Takes nothing.
#[inline(always)]
pub(crate) fn has<T: Tables>(tables: &T, policy: &Policy, budget: CpuBudget, now_q8: u64) -> bool {
    match tables.budget(budget) {
        Some(word) => matches!(ask(tables, policy, budget, word, now_q8), GcraOutcome::Conforms { .. }),
        None => false,
    }
}

/// Takes one from a budget, if there is one left. The words are this CPU's own, so plain stores suffice.
#[inline(always)]
pub(crate) fn take<T: Tables>(tables: &T, policy: &Policy, budget: CpuBudget, now_q8: u64) -> bool {
    let Some(word) = tables.budget(budget) else { return false };
    let outcome = ask(tables, policy, budget, word, now_q8);
    settle(tables, word, outcome)
}

/// Takes one from the budget of socket lookups. A source that was asked a moment ago has only the first half of the budget: the other half is for sources
/// that were not asked.
#[inline(always)]
pub(crate) fn take_proof<T: Tables>(tables: &T, policy: &Policy, asked: bool, now_q8: u64) -> bool {
    let Some(word) = tables.budget(CpuBudget::Proofs) else { return false };
    let limit = policy.prefilter.proofs;
    let limit = Limit { tolerance_q8: limit.tolerance_q8 >> (asked as u32), ..limit };
    let outcome = gcra::take(tables.load(word), &limit, now_q8, limit.cost_fp);
    settle(tables, word, outcome)
}

#[inline(always)]
fn settle<T: Tables>(tables: &T, word: T::Word, outcome: GcraOutcome) -> bool {
    if let GcraOutcome::Conforms { tat_q8 } | GcraOutcome::Overdrawn { tat_q8 } = outcome {
        tables.store(word, tat_q8);
    }
    matches!(outcome, GcraOutcome::Conforms { .. })
}

#[inline(always)]
fn ask<T: Tables>(tables: &T, policy: &Policy, budget: CpuBudget, word: T::Word, now_q8: u64) -> GcraOutcome {
    let limit = match budget {
        CpuBudget::Newcomers => &policy.prefilter.new_sources,
        CpuBudget::Proofs => &policy.prefilter.proofs,
        CpuBudget::Rejections => &policy.prefilter.rejections,
        CpuBudget::Reports => &policy.prefilter.reports,
    };
    gcra::take(tables.load(word), limit, now_q8, limit.cost_fp)
}
