//! The aggregation level at which a CPU found a prefix used up: the next packet from a crowded neighbourhood is asked about that level alone.

use ratelimit_common::{
    abi::{Policy, SourceKey},
    limit::{aggregation, gcra, prefilter},
};

use super::{leaves::Leaves, spent_note::name_of, total::Account};
use crate::{
    lane,
    packet::{Address, Family},
    tables::{LaneWord, Tables},
};

/// Notes down at which level a prefix around an IPv4 source was found used up by a packet for a service. Not where a total would be asked first:
/// the note says nothing of it.
#[inline(always)]
pub fn note_level<T: Tables>(tables: &T, policy: &Policy, service: u32, level: u32) {
    let [Some(name), Some(mask), Some(cells)] = words(tables) else { return };
    if Account::of_host(tables, policy).is_some() || Account::of(tables, policy, service).is_some() {
        return;
    }
    let Some(prefix_level) = policy.aggregation.prefix_levels[Family::V4 as usize].get(level as usize) else {
        return;
    };
    let lo = prefix_level.mask_lo & policy.source.v4_mask;
    tables.store(mask, Address { family: Family::V4, key: SourceKey { hi: 0, lo } }.v4_word() as u64);
    tables.store(cells, aggregation::cell_index(level, 0) as u64);
    tables.store(name, name_of(policy, service));
}

/// Whether the prefix around an IPv4 source, as it lies in memory, has nothing left at the level that was noted down for a service: then
/// [`spent_level`](super::spent_prefix_level) finds one too.
#[inline(always)]
pub fn is_spent_at_noted_level<T: Leaves>(
    tables: &T,
    policy: &Policy,
    service: u32,
    source: u32,
    now_ns: u64,
) -> bool {
    let [Some(name), Some(mask), Some(cells)] = words(tables) else { return false };
    lane::is_crowded(tables, now_ns)
        && tables.load(name) == name_of(policy, service)
        && tables.is_prefix_spent(
            policy,
            tables.load(cells) as u32,
            source & tables.load(mask) as u32,
            gcra::time_q8(now_ns),
        )
}

/// Whether an IPv4 prefix of the level with this first cell is known to have nothing left. `prefix` lies as in memory.
#[inline(always)]
pub fn is_prefix_spent<T: Tables>(
    tables: &T,
    policy: &Policy,
    first_cell: u32,
    prefix: u32,
    now_q8: u64,
) -> bool {
    let hash = prefilter::hash_v4(prefix, policy.prefilter.secret);
    let name = prefilter::negative_name(hash, policy.generation);
    let cell = tables.prefix_level_cell(aggregation::cell_index(0, hash).wrapping_add(first_cell));
    cell.is_some_and(|cell| {
        prefilter::denies(tables.load(tables.prefix_level_negative_entry(cell)), name, now_q8)
    })
}

/// Under which policy and for packets of which service, the mask of the level, and its first cell.
#[inline(always)]
fn words<T: Tables>(tables: &T) -> [Option<T::Word>; 3] {
    [LaneWord::CrowdedName, LaneWord::CrowdedMask, LaneWord::CrowdedCells].map(|word| tables.lane_word(word))
}
