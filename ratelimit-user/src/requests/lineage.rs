//! What was counted under earlier policies. A limit that stays in force keeps its counts, whatever limits beside it come, go or move.
//!
//! ```text
//! list in force: 12/min 10/hour  <-- list before: 10/hour 100/day  <-- before that: 10/hour
//!                       |                         |
//!                       +-- the newest list that counted this key under this limit
//! ```
//!
//! The words of all limits of a key lie together, so another list of limits has places of its own, and a place does not tell which key it belongs to.
//! Counts are therefore carried over when somebody asks: a key without a place takes, for each of its limits, the words of the newest list before that
//! has both the limit and the key. A limit of the same window that counts by another algorithm goes on with the units that count at that
//! moment. A list that comes back is a new list, because its counts have gone on under other lists since.
//!
//! The words of a log have room for the largest amount that the limit has had and of which something may still count. A change of the amount within
//! that room moves no key.

use std::{collections::HashMap, sync::Arc};

use super::{
    allowance::{Allowance, AllowanceLimit},
    cells::{Cells, Shape},
};
use crate::{meter::Meter, policy::OnRefusal};

/// The most lists before the one in force that are looked at. A key that nobody asked about through as many changes of its list starts anew.
const MOST_PAST: usize = 16;
/// Allowances that are remembered after the policy has dropped them.
const MOST_DROPPED: usize = 10_000;
/// An odd number, so that its multiples differ.
const SALT: u64 = 0x9e37_79b9_7f4a_7c15;

/// The name of an allowance through changes of the policy, and its number among the allowances of that name.
type Ancestry = (String, usize);

/// All allowances that have been in force.
#[derive(Debug, Default)]
pub(super) struct Lineages {
    all: HashMap<Ancestry, Lineage>,
}

/// One allowance through changes of the policy.
#[derive(Clone, Debug)]
struct Lineage {
    /// How many lists there were before the one in force.
    number: u64,
    in_force: Arc<PastList>,
    /// The lists before, the newest first.
    past: Vec<Past>,
}

#[derive(Clone, Debug)]
struct Past {
    list: Arc<PastList>,
    until_us: u64,
}

/// A list of limits, and what its keys are found by.
#[derive(Debug)]
pub(super) struct PastList {
    /// The seed of the hashes of the list's keys.
    pub(super) seed: u64,
    /// Separates the keys of the list from those of other lists.
    pub(super) salt: u64,
    pub(super) shape: Shape,
    limits: Vec<PastLimit>,
}

#[derive(Debug)]
struct PastLimit {
    kin: String,
    window_s: u64,
    meter: Meter,
    at: usize,
    /// Larger amounts that the limit has had before, if it is a log.
    amounts: Vec<PastAmount>,
}

/// An amount that a limit has had, and until when something of it may still count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PastAmount {
    units: u64,
    until_us: u64,
}

/// What an allowance takes over from a list before.
#[derive(Debug)]
pub(super) struct Inheritance {
    pub(super) list: Arc<PastList>,
    /// Until when something of the list may still count, in microseconds since 1970.
    pub(super) until_us: u64,
    /// For each limit in force, the index of the limit in the list whose counts it takes over.
    from: Vec<Option<usize>>,
}

impl Lineages {
    /// Gives each allowance what is remembered of it, and returns what is to be remembered from now on.
    pub(super) fn following(before: &Self, allowances: &mut [Allowance], now_us: u64) -> Self {
        let mut all = HashMap::with_capacity(before.all.len().max(allowances.len()));
        let mut ordinals: HashMap<String, usize> = HashMap::new();
        for allowance in allowances {
            let Some(name) = allowance.ancestry.clone() else { continue };
            let nth = ordinals.entry(name.clone()).or_default();
            let ancestry = (name, *nth);
            *nth += 1;
            let lineage = Lineage::following(before.all.get(&ancestry), allowance, now_us);
            all.insert(ancestry, lineage);
        }
        let dropped: Vec<_> =
            before.all.iter().filter(|(ancestry, _)| !all.contains_key(*ancestry)).collect();
        if dropped.len() <= MOST_DROPPED {
            all.extend(dropped.into_iter().map(|(ancestry, lineage)| (ancestry.clone(), lineage.clone())));
        }
        Self { all }
    }
}

impl Lineage {
    fn following(before: Option<&Self>, allowance: &mut Allowance, now_us: u64) -> Self {
        let lineage = match before {
            None => {
                allowance.salt = salt(allowance, 0);
                Self { number: 0, in_force: Arc::new(PastList::of(allowance)), past: Vec::new() }
            }
            Some(before) => {
                let mut past: Vec<Past> =
                    before.past.iter().filter(|past| past.until_us > now_us).cloned().collect();
                let mut number = before.number;
                let until_us = now_us.saturating_add(before.in_force.lasts_us(allowance, now_us));
                let replaced = past.iter().map(|past| (&*past.list, past.until_us));
                let replaced = std::iter::once((&*before.in_force, until_us)).chain(replaced);
                let amounts = make_room(allowance, replaced, now_us);
                if !before.in_force.is_laid_out_as(allowance) {
                    past.insert(0, Past { list: Arc::clone(&before.in_force), until_us });
                    past.truncate(MOST_PAST);
                    number += 1;
                }
                allowance.salt = salt(allowance, number);
                let mut in_force = PastList::of(allowance);
                for (limit, amounts) in in_force.limits.iter_mut().zip(amounts) {
                    limit.amounts = amounts;
                }
                Self { number, in_force: Arc::new(in_force), past }
            }
        };
        allowance.inherits = (lineage.past.iter())
            .map(|past| Inheritance {
                list: Arc::clone(&past.list),
                until_us: past.until_us,
                from: past.list.kin_of(&lineage.in_force),
            })
            .filter(|inheritance| inheritance.from.iter().any(Option::is_some))
            .collect();
        lineage
    }
}

/// Makes room in the logs of an allowance for what they may have counted under lists before. Returns the larger amounts of each limit.
fn make_room<'l>(
    allowance: &mut Allowance,
    replaced: impl Iterator<Item = (&'l PastList, u64)>,
    now_us: u64,
) -> Vec<Vec<PastAmount>> {
    let mut amounts = vec![Vec::new(); allowance.limits.len()];
    if !allowance.limits.iter().any(|limit| limit.widest().keeps_every_unit()) {
        return amounts;
    }
    let heir = PastList::of(allowance);
    for (list, until_us) in replaced {
        for (amounts, from) in amounts.iter_mut().zip(list.kin_of(&heir)) {
            let Some(from) = from.map(|from| &list.limits[from]) else { continue };
            amounts.push(PastAmount { units: from.meter.capacity(), until_us });
            amounts.extend(&from.amounts);
        }
    }
    for (limit, amounts) in allowance.limits.iter_mut().zip(&mut amounts) {
        let own = limit.widest().capacity();
        amounts.retain(|amount| amount.units > own && amount.until_us > now_us);
        shorten(amounts);
        let room = amounts.first().map_or(own, |largest| largest.units);
        limit.meter.make_room(room);
        if let Some(margin) = &mut limit.margin {
            margin.meter.make_room(room);
        }
    }
    amounts
}

/// Sorts amounts, the largest first, and keeps those that count for longer than all larger ones. If too many remain, the two largest become one: the
/// larger amount, until the later moment.
fn shorten(amounts: &mut Vec<PastAmount>) {
    amounts.sort_unstable_by_key(|amount| std::cmp::Reverse((amount.units, amount.until_us)));
    let mut longest_us = 0;
    amounts.retain(|amount| {
        let counts_longer = amount.until_us > longest_us;
        longest_us = longest_us.max(amount.until_us);
        counts_longer
    });
    while amounts.len() > MOST_PAST {
        amounts[0].until_us = amounts.remove(1).until_us;
    }
}

/// Returns the salt of the list with this number. The first list of shared keys has none, because leases are found by hashes without a salt.
fn salt(allowance: &Allowance, number: u64) -> u64 {
    SALT.wrapping_mul(2 * number + u64::from(allowance.is_for_one_host))
}

impl PastList {
    fn of(allowance: &Allowance) -> Self {
        let limits = allowance.limits.iter().map(|limit| PastLimit {
            kin: limit.kin.clone(),
            window_s: limit.window_s,
            meter: limit.widest().clone(),
            at: limit.at,
            amounts: Vec::new(),
        });
        Self { seed: allowance.seed, salt: allowance.salt, shape: allowance.shape, limits: limits.collect() }
    }

    /// Whether words that were written under this list mean the same under the list of `allowance`.
    fn is_laid_out_as(&self, allowance: &Allowance) -> bool {
        let same = |(past, limit): (&PastLimit, &AllowanceLimit)| {
            past.at == limit.at && past.meter.layout() == limit.widest().layout()
        };
        self.seed == allowance.seed
            && self.limits.len() == allowance.limits.len()
            && self.limits.iter().zip(&allowance.limits).all(same)
    }

    /// Returns for how many microseconds something of the list counts, waits in a queue included.
    fn lasts_us(&self, allowance: &Allowance, now_us: u64) -> u64 {
        let waits_us = match allowance.on_limit {
            OnRefusal::Delay(longest) => longest.as_micros() as u64,
            OnRefusal::Refuse | OnRefusal::Deprioritise => 0,
        };
        let longest = self.limits.iter().map(|limit| limit.meter.forgets_us(now_us)).max();
        longest.unwrap_or(0).saturating_add(waits_us)
    }

    /// Returns for each limit of `heir` the index of the limit here whose counts it takes over: a limit with equal numbers, else the first with the same
    /// algorithm and window that no other limit has taken, else the first with the same window.
    fn kin_of(&self, heir: &Self) -> Vec<Option<usize>> {
        let likenesses: [fn(&PastLimit, &PastLimit) -> bool; 3] = [
            |past, limit| past.kin == limit.kin && past.meter.is_same_limit(&limit.meter),
            |past, limit| past.kin == limit.kin,
            |past, limit| past.window_s == limit.window_s,
        ];
        let mut from = vec![None; heir.limits.len()];
        let mut is_taken = vec![false; self.limits.len()];
        for is_alike in likenesses {
            for (place, limit) in from.iter_mut().zip(&heir.limits).filter(|(place, _)| place.is_none()) {
                let mut free = self.limits.iter().enumerate().filter(|(nth, _)| !is_taken[*nth]);
                if let Some((nth, _)) = free.find(|(_, past)| is_alike(past, limit)) {
                    *place = Some(nth);
                    is_taken[nth] = true;
                }
            }
        }
        from
    }
}

impl Inheritance {
    /// Writes to `found` what a key at this place of the list's table has counted, in words of each limit in force. Limits that have been found stay as they are.
    pub(super) fn carry(
        &self,
        past: &Cells,
        place: usize,
        allowance: &Allowance,
        found: &mut [Option<Vec<u64>>],
        now_us: u64,
    ) {
        for (nth, (limit, found)) in allowance.limits.iter().zip(found).enumerate() {
            let Some(from) = self.from[nth].map(|from| &self.list.limits[from]) else { continue };
            if found.is_none() {
                let words = past.part(place, from.at);
                let words = &words[..words.len().min(from.meter.words())];
                *found = Some(limit.widest().carried(&from.meter, words, now_us));
            }
        }
    }
}

#[cfg(test)]
mod tests;
