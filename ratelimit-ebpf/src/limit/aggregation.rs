//! Prefix aggregation in the packet path. `limit::aggregation` in the common crate has the reasoning.

use ratelimit_common::{
    abi::{
        Event, Limit, Policy, PrefixKey, PrefixLevel, SourceKey, prefix::MAX_PREFIX_LEVELS, service::Party,
    },
    limit::{
        aggregation, fair,
        gcra::{self, GcraOutcome, SHARED_ROOM_Q8, Start, ahead_q8},
        prefilter::{self, NegativeCause},
    },
};

use super::{
    negative_cache,
    request::PacketCharge,
    sender::Sender,
    squeezed,
    word::{self, Charging},
};
use crate::{
    budget,
    forget::forget,
    lane,
    packet::Address,
    tables::{CpuBudget, InsertError, Tables},
};

/// How hard the prefixes around a source squeeze it; `None` if one of them refuses the packet. Writes nothing, except to settle a
/// bucket that was charged under an earlier limit.
#[inline(always)]
pub(super) fn judge<T: Tables>(
    tables: &T,
    policy: &Policy,
    request: &PacketCharge,
    party: Party,
) -> Option<u32> {
    climb(tables, policy, request, party, PrefixStep::Judge)
}

/// Charges every prefix around the source; false if one of them refuses after all.
#[inline(always)]
pub(super) fn charge<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge, party: Party) -> bool {
    climb(tables, policy, request, party, PrefixStep::Charge).is_some()
}

/// Reads a word of the cell of each prefix around an address: see [`fetch_ahead`](super::fetch_ahead).
#[inline(always)]
pub(super) fn fetch_ahead<T: Tables>(tables: &T, policy: &Policy, address: Address) {
    if policy.aggregation.tolerance_q8 == 0 {
        return;
    }
    let key = Sender::key_of(policy, address);
    let family = address.family as u32 & 1;
    // Unused levels are read too: their one cell is always in a cache, and the verifier has a path less to follow.
    for (index, prefix_level) in policy.aggregation.prefix_levels[family as usize].iter().enumerate() {
        let cell = aggregation::cell_index(number(family, index), prefix_hash(policy, key, prefix_level));
        if let Some(cell) = tables.prefix_level_cell(cell) {
            let _tat = tables.load(tables.prefix_level_tat(cell));
        }
    }
}

/// The number of an aggregation level, counted over both families.
#[inline(always)]
pub(super) const fn number(family: u32, index: usize) -> u32 {
    family * MAX_PREFIX_LEVELS as u32 + index as u32
}

/// One prefix around a source, and its charge.
struct ChargedPrefix {
    cell: u32,
    /// The number of the aggregation level, counted over both families.
    prefix_level: u32,
    charge_q8: u64,
}

/// What to do at every aggregation level. Not a closure: the compiler could make a function of it, for which there is no room on the stack.
#[derive(Clone, Copy)]
enum PrefixStep {
    Judge,
    Charge,
}

/// Judges or charges every aggregation level from the narrowest on: returns how hard they squeeze the source, or `None` if one refuses.
#[inline(always)]
fn climb<T: Tables>(
    tables: &T,
    policy: &Policy,
    request: &PacketCharge,
    party: Party,
    step: PrefixStep,
) -> Option<u32> {
    let charge_q8 = request.dearest_q8();
    if policy.aggregation.tolerance_q8 == 0 || charge_q8 == 0 {
        return Some(0);
    }
    let family = request.family as u32 & 1;
    let mut hardest = 0_u64;
    for index in 0..MAX_PREFIX_LEVELS {
        let prefix_level = &policy.aggregation.prefix_levels[family as usize][index];
        if prefix_level.multiple == 0 {
            break;
        }
        // What the verifier learned about these numbers at one level is of no use at the next.
        let party = Party::from_code(forget(party as u64, request.now_q8) as u32);
        let charge_q8 = forget(charge_q8, request.now_q8);
        // Computed again for each level: cheaper than keeping it on a stack of 512 bytes.
        let prefix = ChargedPrefix::around(policy, request, prefix_level, number(family, index), charge_q8);
        match step {
            PrefixStep::Judge => {
                let pressure = prefix.judge(tables, policy, request, party, prefix_level)?;
                // Forgotten, or the verifier would follow the path to each pressure by itself.
                hardest = forget(u64::from(pressure).max(hardest), request.now_q8);
            }
            PrefixStep::Charge => {
                if !prefix.charge(tables, policy, request, party) {
                    return None;
                }
            }
        }
    }
    Some(hardest as u32)
}

impl ChargedPrefix {
    #[inline(always)]
    fn around(
        policy: &Policy,
        request: &PacketCharge,
        prefix_level: &PrefixLevel,
        number: u32,
        charge_q8: u64,
    ) -> Self {
        Self {
            cell: aggregation::cell_index(number, prefix_hash(policy, request.key, prefix_level)),
            prefix_level: number,
            charge_q8: aggregation::share_q8(charge_q8, prefix_level.multiple, prefix_level.reciprocal),
        }
    }

    /// The prefix's key in the table of prefixes. Made only when needed, because few packets need it and the stack is small.
    #[inline(always)]
    fn key(&self, policy: &Policy, request: &PacketCharge) -> PrefixKey {
        let family = request.family as usize & 1;
        let index = self.prefix_level.wrapping_sub(family as u32 * MAX_PREFIX_LEVELS as u32) as usize;
        let prefix_level = if index < MAX_PREFIX_LEVELS {
            policy.aggregation.prefix_levels[family][index]
        } else {
            PrefixLevel::UNUSED
        };
        let SourceKey { hi, lo } = aggregation::cut(request.key, prefix_level.mask_hi, prefix_level.mask_lo);
        PrefixKey { hi, lo, prefix_level: self.prefix_level as u64 }
    }

    /// The entry of the prefix, if its cell may have one behind it.
    #[inline(always)]
    fn entry<T: Tables>(
        &self,
        tables: &T,
        cell: T::PrefixLevelCell,
        policy: &Policy,
        request: &PacketCharge,
    ) -> Option<T::Word> {
        let tracked =
            prefilter::is_tracked(tables.load(tables.prefix_level_tracked_until(cell)), request.now_q8);
        if tracked { tables.prefix(&self.key(policy, request)) } else { None }
    }

    #[inline(always)]
    fn judge<T: Tables>(
        &self,
        tables: &T,
        policy: &Policy,
        request: &PacketCharge,
        party: Party,
        prefix_level: &PrefixLevel,
    ) -> Option<u32> {
        let cell = tables.prefix_level_cell(self.cell)?;
        let restart = policy.aggregation.cell_tolerance_q8;
        let now_q8 = request.now_q8;
        if let Some(word) = self.entry(tables, cell, policy, request) {
            let whole = limit(tolerance_q8(policy, party));
            // Proven sources move the word further than others.
            let most_q8 = policy.aggregation.tolerance_q8 + policy.aggregation.adds;
            let start = Start::after(restart);
            let after = ask(tables, word, (&whole, most_q8), now_q8, self.charge_q8, start);
            let Some(tat_q8) = after else {
                if party != Party::Proven {
                    remember_spent(tables, cell, policy, request, (word, prefix_level));
                }
                return None;
            };
            let end_q8 = fair::end_q8(&policy.aggregation, party);
            let debt_q8 = ahead_q8(tat_q8, now_q8);
            let pressure = fair::pressure(&policy.aggregation.squeeze, debt_q8, end_q8);
            if pressure != 0 && party != Party::Proven {
                let debt_q8 = debt_q8.wrapping_sub(self.charge_q8);
                let name = negative_name(policy, request, prefix_level);
                squeezed::remember(tables, self.cell, &policy.aggregation, (name, debt_q8), now_q8);
                lane::crowd(tables, now_q8 >> gcra::TIME_FRAC_BITS);
            }
            return Some(pressure);
        }
        let word = tables.prefix_level_tat(cell);
        let most_q8 = restart + SHARED_ROOM_Q8;
        let vouched =
            ask(tables, word, (&limit(restart), most_q8), now_q8, self.charge_q8, Start::FULL).is_some();
        if vouched || party.has_state() || budget::admits_newcomer(tables, policy, now_q8) {
            Some(0)
        } else {
            None
        }
    }

    #[inline(always)]
    fn charge<T: Tables>(&self, tables: &T, policy: &Policy, request: &PacketCharge, party: Party) -> bool {
        let Some(cell) = tables.prefix_level_cell(self.cell) else {
            return false;
        };
        let restart = policy.aggregation.cell_tolerance_q8;
        let whole = limit(tolerance_q8(policy, party));
        let now_q8 = request.now_q8;
        let charging = if policy.aggregation.adds == 0 { Charging::Exchange } else { Charging::Add };
        let word = match self.entry(tables, cell, policy, request) {
            Some(word) => word,
            None => {
                let word = tables.prefix_level_tat(cell);
                if word::charge(tables, word, &limit(restart), now_q8, self.charge_q8, Start::FULL, charging)
                    .is_ok()
                {
                    return true;
                }
                // The cell is tracked first: an entry behind a cell that is not tracked would be a second bucket.
                track(tables, cell, policy, now_q8);
                budget::take(tables, policy, CpuBudget::Newcomers, now_q8);
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
        if word::charge(tables, word, &whole, now_q8, self.charge_q8, Start::after(restart), charging)
            .is_err()
        {
            return false;
        }
        track(tables, cell, policy, now_q8);
        true
    }
}

/// Remembers until when the prefix has nothing left for a packet of a source that is not proven: its bucket only fills with time. A SYN or a
/// fragment may have been too dear while there is enough for others.
#[inline(always)]
fn remember_spent<T: Tables>(
    tables: &T,
    cell: T::PrefixLevelCell,
    policy: &Policy,
    request: &PacketCharge,
    (word, prefix_level): (T::Word, &PrefixLevel),
) {
    let name = negative_name(policy, request, prefix_level);
    let now_q8 = request.now_q8;
    let tolerance_q8 = policy.aggregation.unproven_tolerance_q8;
    let until_q8 = tables.load(word).wrapping_add(prefix_level.packet_q8).wrapping_sub(tolerance_q8);
    let slack_q8 = tolerance_q8.saturating_sub(prefix_level.packet_q8);
    let until_q8 = negative_cache::remembered_until(policy.clock(), now_q8, until_q8, slack_q8);
    let negative_entry = prefilter::negative_entry(name, now_q8, until_q8, NegativeCause::Packets);
    // A note that ends at once is not worth writing: the coarse clock, by which it is read, is behind.
    if prefilter::denies(negative_entry, name, now_q8) {
        tables.store(tables.prefix_level_negative_entry(cell), negative_entry);
    }
    lane::crowd(tables, now_q8 >> gcra::TIME_FRAC_BITS);
}

/// The name, in negative entries of the cell, of the prefix of a level around a source.
#[inline(always)]
fn negative_name(policy: &Policy, request: &PacketCharge, prefix_level: &PrefixLevel) -> u64 {
    prefilter::negative_name(prefix_hash(policy, request.key, prefix_level), policy.generation)
}

/// Keeps the cell tracked until every entry behind it is full again.
#[inline(always)]
fn track<T: Tables>(tables: &T, cell: T::PrefixLevelCell, policy: &Policy, now_q8: u64) {
    let word = tables.prefix_level_tracked_until(cell);
    if let Some(until) = prefilter::track(tables.load(word), now_q8, policy.source.set.longest_tolerance_q8) {
        tables.store(word, until);
    }
}

/// The word to store if the bucket admits a charge; `None` if it refuses. A word from before a change is settled.
#[inline(always)]
fn ask<T: Tables>(
    tables: &T,
    word: T::Word,
    (limit, most_q8): (&Limit, u64),
    now_q8: u64,
    charge_q8: u64,
    start: Start,
) -> Option<u64> {
    let seen = tables.load(word);
    match gcra::take_restarting(seen, limit, now_q8, charge_q8, start) {
        GcraOutcome::Conforms { tat_q8 } => Some(tat_q8),
        GcraOutcome::Refused => {
            word::settle(tables, word, seen, now_q8, (most_q8, limit.tolerance_q8));
            None
        }
    }
}

/// How far a party may push the bucket of a prefix, in 1/256 ns. Senders of forged addresses stop before it is empty, so that proven sources of the prefix
/// still find something.
#[inline(always)]
fn tolerance_q8(policy: &Policy, party: Party) -> u64 {
    match party {
        Party::Untracked | Party::Tracked => policy.aggregation.unproven_tolerance_q8,
        Party::Proven => policy.aggregation.tolerance_q8,
    }
}

#[inline(always)]
fn limit(tolerance_q8: u64) -> Limit {
    Limit { tolerance_q8, ..Limit::UNUSED }
}

/// The hash of the prefix of a level around a source.
#[inline(always)]
pub(super) fn prefix_hash(policy: &Policy, key: SourceKey, prefix_level: &PrefixLevel) -> u64 {
    prefilter::hash(
        aggregation::cut(key, prefix_level.mask_hi, prefix_level.mask_lo),
        policy.prefilter.secret,
    )
}
