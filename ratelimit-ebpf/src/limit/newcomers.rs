//! What this CPU may still do for strangers: inserts and socket lookups are what a spoofed flood would make it do.

use ratelimit_common::{
    abi::{Limit, Policy},
    limit::gcra::{self, Outcome},
};

use crate::tables::{Allowance, Tables};

/// Whether one more newcomer may be entered into a table.
#[inline(always)]
pub(super) fn admitted<T: Tables>(tables: &T, policy: &Policy, now_q8: u64) -> bool {
    match tables.allowance(Allowance::Newcomers) {
        Some(word) => {
            matches!(ask(tables, policy, Allowance::Newcomers, word, now_q8), Outcome::Conforms { .. })
        }
        None => false,
    }
}

/// Takes one from an allowance, if there is one left. The words are this CPU's own, so plain stores do.
#[inline(always)]
pub fn take<T: Tables>(tables: &T, policy: &Policy, what: Allowance, now_q8: u64) -> bool {
    let Some(word) = tables.allowance(what) else { return false };
    let outcome = ask(tables, policy, what, word, now_q8);
    settle(tables, word, outcome)
}

/// Takes one proof, and for a source that was asked for one a moment ago only of the first half: the other half is for those who were not.
#[inline(always)]
pub(super) fn take_proof<T: Tables>(tables: &T, policy: &Policy, asked: bool, now_q8: u64) -> bool {
    let Some(word) = tables.allowance(Allowance::Proofs) else { return false };
    let budget = policy.gate.proofs;
    let budget = Limit { tolerance_q8: budget.tolerance_q8 >> (asked as u32), ..budget };
    let outcome = gcra::take(tables.load(word), &budget, now_q8, budget.cost_fp);
    settle(tables, word, outcome)
}

#[inline(always)]
fn settle<T: Tables>(tables: &T, word: T::Word, outcome: Outcome) -> bool {
    if let Outcome::Conforms { tat_q8 } | Outcome::Overdrawn { tat_q8 } = outcome {
        tables.store(word, tat_q8);
    }
    matches!(outcome, Outcome::Conforms { .. })
}

#[inline(always)]
fn ask<T: Tables>(tables: &T, policy: &Policy, what: Allowance, word: T::Word, now_q8: u64) -> Outcome {
    let budget = match what {
        Allowance::Newcomers => &policy.gate.new_sources,
        Allowance::Proofs => &policy.gate.proofs,
        Allowance::Rejections => &policy.gate.rejections,
        Allowance::Reports => &policy.gate.reports,
    };
    gcra::take(tables.load(word), budget, now_q8, budget.cost_fp)
}
