//! What this CPU may still do for strangers: inserts and socket lookups are what a spoofed flood would make it do.

use ratelimit_common::{
    abi::Policy,
    limit::gcra::{self, Outcome},
};

use crate::tables::{Allowance, Tables};

/// Whether one more newcomer may be entered into a table.
#[inline(always)]
pub(super) fn admitted<T: Tables>(tables: &T, policy: &Policy, now_q8: u64) -> bool {
    let Some(word) = tables.allowance(Allowance::Newcomers) else { return false };
    let budget = &policy.gate.new_sources;
    match gcra::take(tables.load(word), budget, now_q8, budget.cost_fp) {
        Outcome::Conforms { .. } => true,
        Outcome::Overdrawn { tat_q8 } => {
            tables.store(word, tat_q8);
            false
        }
        Outcome::Refused => false,
    }
}

/// Takes one from an allowance, if there is one left. The words are this CPU's own, so plain stores do.
#[inline(always)]
pub(super) fn take<T: Tables>(tables: &T, policy: &Policy, what: Allowance, now_q8: u64) -> bool {
    let Some(word) = tables.allowance(what) else { return false };
    let budget = match what {
        Allowance::Newcomers => &policy.gate.new_sources,
        Allowance::Proofs => &policy.gate.proofs,
    };
    match gcra::take(tables.load(word), budget, now_q8, budget.cost_fp) {
        Outcome::Conforms { tat_q8 } => {
            tables.store(word, tat_q8);
            true
        }
        Outcome::Overdrawn { tat_q8 } => {
            tables.store(word, tat_q8);
            false
        }
        Outcome::Refused => false,
    }
}
