//! The prefixes around a source. `limit::ladder` in the common crate has the reasoning.

use ratelimit_common::{
    abi::{Event, Limit, Policy, PrefixKey, Rung, SourceKey, policy::MAX_RUNGS, service::Party},
    limit::{
        gate,
        gcra::{self, Outcome},
        ladder,
    },
};

use super::{
    newcomers,
    request::Request,
    word::{self, Charging},
};
use crate::tables::{Allowance, InsertError, Tables};

/// Whether every prefix around the source would admit the packet. Writes nothing, but to settle an old debt.
#[inline(always)]
pub(super) fn admits<T: Tables>(tables: &T, policy: &Policy, request: &Request, party: Party) -> bool {
    climb(tables, policy, request, party, Step::Judge)
}

/// Charges every prefix around the source.
#[inline(always)]
pub(super) fn charge<T: Tables>(tables: &T, policy: &Policy, request: &Request, party: Party) -> bool {
    climb(tables, policy, request, party, Step::Charge)
}

/// One prefix around a source, and what it pays.
struct Prefix {
    cell: u32,
    /// Which rung, counted over both families.
    rung: u32,
    charge_q8: u64,
}

/// What is asked of every rung. Not a closure: the compiler would be free to make a function of it, for which there is no room on the stack.
#[derive(Clone, Copy)]
enum Step {
    Judge,
    Charge,
}

/// Asks every rung from the narrowest on; true if none says no.
#[inline(always)]
fn climb<T: Tables>(tables: &T, policy: &Policy, request: &Request, party: Party, step: Step) -> bool {
    let charge_q8 = request.dearest_q8();
    if policy.ladder.tolerance_q8 == 0 || charge_q8 == 0 {
        return true;
    }
    let family = request.family as u32 & 1;
    for index in 0..MAX_RUNGS {
        let rung = &policy.ladder.rungs[family as usize][index];
        if rung.multiple == 0 {
            break;
        }
        // Found anew for each question: cheaper than room for it on a stack of 512 bytes.
        let prefix =
            Prefix::around(policy, request, rung, family * MAX_RUNGS as u32 + index as u32, charge_q8);
        let admitted = match step {
            Step::Judge => prefix.admits(tables, policy, request, party),
            Step::Charge => prefix.charge(tables, policy, request, party),
        };
        if !admitted {
            return false;
        }
    }
    true
}

impl Prefix {
    #[inline(always)]
    fn around(policy: &Policy, request: &Request, rung: &Rung, number: u32, charge_q8: u64) -> Self {
        let hash = gate::hash(ladder::cut(request.key, rung.mask_hi, rung.mask_lo), policy.gate.secret);
        Self {
            cell: ladder::cell_index(number, hash),
            rung: number,
            charge_q8: ladder::share_q8(charge_q8, rung.multiple, rung.reciprocal),
        }
    }

    /// Its name in the table of prefixes. Not kept, because few need it and the stack is small.
    #[inline(always)]
    fn key(&self, policy: &Policy, request: &Request) -> PrefixKey {
        let family = request.family as usize & 1;
        let index = self.rung.wrapping_sub(family as u32 * MAX_RUNGS as u32) as usize;
        let rung = if index < MAX_RUNGS { policy.ladder.rungs[family][index] } else { Rung::UNUSED };
        let SourceKey { hi, lo } = ladder::cut(request.key, rung.mask_hi, rung.mask_lo);
        PrefixKey { hi, lo, rung: self.rung as u64 }
    }

    /// The exact bucket of the prefix, if its cell may have one behind it.
    #[inline(always)]
    fn entry<T: Tables>(
        &self,
        tables: &T,
        cell: T::RungCell,
        policy: &Policy,
        request: &Request,
    ) -> Option<T::Word> {
        let tracked = gate::is_tracked(tables.load(tables.rung_tracked_until(cell)), request.now_q8);
        if tracked { tables.prefix(&self.key(policy, request)) } else { None }
    }

    #[inline(always)]
    fn admits<T: Tables>(&self, tables: &T, policy: &Policy, request: &Request, party: Party) -> bool {
        let Some(cell) = tables.rung_cell(self.cell) else { return false };
        let restart = policy.ladder.cell_tolerance_q8;
        let now_q8 = request.now_q8;
        if let Some(word) = self.entry(tables, cell, policy, request) {
            let limit = limit(tolerance_q8(policy, party));
            return settle(
                tables,
                word,
                gcra::take_restarting(tables.load(word), &limit, now_q8, self.charge_q8, restart),
            );
        }
        let word = tables.rung_tat(cell);
        let taken = gcra::take(tables.load(word), &limit(restart), now_q8, self.charge_q8);
        settle(tables, word, taken) || party == Party::Known || newcomers::admitted(tables, policy, now_q8)
    }

    #[inline(always)]
    fn charge<T: Tables>(&self, tables: &T, policy: &Policy, request: &Request, party: Party) -> bool {
        let Some(cell) = tables.rung_cell(self.cell) else { return false };
        let restart = policy.ladder.cell_tolerance_q8;
        let whole = limit(tolerance_q8(policy, party));
        let now_q8 = request.now_q8;
        let charging = Charging::by(policy.ladder.adds, 1);
        let word = match self.entry(tables, cell, policy, request) {
            Some(word) => word,
            None => {
                let word = tables.rung_tat(cell);
                if word::charge(tables, word, &limit(restart), now_q8, self.charge_q8, 0, charging).is_ok() {
                    return true;
                }
                // First the cell: an entry behind a cell that does not know of it would be a second bucket.
                track(tables, cell, policy, now_q8);
                newcomers::take(tables, policy, Allowance::Newcomers, now_q8);
                let first = now_q8.wrapping_add(restart).wrapping_add(self.charge_q8);
                match tables.insert_prefix(&self.key(policy, request), first) {
                    Ok(()) => {
                        tables.note(Event::PrefixPromoted);
                        return true;
                    }
                    Err(InsertError::Full) => return false,
                    Err(InsertError::Exists) => match tables.prefix(&self.key(policy, request)) {
                        Some(word) => word,
                        None => return false,
                    },
                }
            }
        };
        if word::charge(tables, word, &whole, now_q8, self.charge_q8, restart, charging).is_err() {
            return false;
        }
        track(tables, cell, policy, now_q8);
        true
    }
}

/// Sees to it that the cell is tracked until every entry behind it is full again.
#[inline(always)]
fn track<T: Tables>(tables: &T, cell: T::RungCell, policy: &Policy, now_q8: u64) {
    let word = tables.rung_tracked_until(cell);
    if let Some(until) = gate::track(tables.load(word), now_q8, policy.source.set.longest_tolerance_q8) {
        tables.store(word, until);
    }
}

/// Whether a word admits; one that was overdrawn is settled.
#[inline(always)]
fn settle<T: Tables>(tables: &T, word: T::Word, outcome: Outcome) -> bool {
    match outcome {
        Outcome::Conforms { .. } => true,
        Outcome::Refused => false,
        Outcome::Overdrawn { tat_q8 } => {
            tables.store(word, tat_q8);
            false
        }
    }
}

/// How far a party may push the bucket of a prefix. Who forges addresses of a prefix stops before it is empty, and those in it who
/// are known still find something.
#[inline(always)]
fn tolerance_q8(policy: &Policy, party: Party) -> u64 {
    match party {
        Party::Stranger => policy.ladder.stranger_tolerance_q8,
        Party::Known => policy.ladder.tolerance_q8,
    }
}

#[inline(always)]
fn limit(tolerance_q8: u64) -> Limit {
    Limit { tolerance_q8, ..Limit::UNUSED }
}
