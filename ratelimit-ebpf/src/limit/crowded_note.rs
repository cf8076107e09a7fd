//! The aggregation level at which a CPU found a prefix that refuses: the next packet from a crowded prefix is checked at that level only.

use ratelimit_common::{
    abi::{Policy, SourceKey},
    limit::{aggregation, gcra},
};

use super::{asked_first::may_be_asked, leaves::Leaves, spent_note::name_of};
use crate::{
    forget::forget,
    lane,
    packet::{Address, Family},
    tables::{LaneWord, Tables},
};

/// Notes down at which level a prefix around an IPv4 source was found to refuse a packet for a service. Not if a total is charged first:
/// the note has nothing about totals.
#[inline(always)]
pub fn note_level<T: Tables>(tables: &T, policy: &Policy, service: u32, level: u32) {
    let [Some(name), Some(mask), Some(cells)] = words(tables) else { return };
    if !may_be_asked(policy, service) {
        return;
    }
    // The compiler knows how many levels there are and would drop the bounds check; the verifier does not know.
    let level = forget(level as u64, policy.generation) as u32;
    let Some(prefix_level) = policy.aggregation.prefix_levels[Family::V4 as usize].get(level as usize) else {
        return;
    };
    let lo = prefix_level.mask_lo & policy.source.v4_mask;
    tables.store(mask, Address { family: Family::V4, key: SourceKey { hi: 0, lo } }.v4_word() as u64);
    tables.store(cells, aggregation::cell_index(level, 0) as u64);
    tables.store(name, name_of(policy, service));
}

/// Whether the prefix around an IPv4 source, with its bytes as they lie in memory, is known to refuse it at the level that was noted down for a service: then
/// [`level`](super::crowded::level) finds one too.
#[inline(always)]
pub fn is_crowded_out_at_noted_level<T: Leaves>(
    tables: &T,
    policy: &Policy,
    service: u32,
    (source, hash): (u32, u64),
    now_ns: u64,
) -> bool {
    let [Some(name), Some(mask), Some(cells)] = words(tables) else { return false };
    lane::is_crowded(tables, now_ns)
        && tables.load(name) == name_of(policy, service)
        && tables.is_crowded_out_at(
            policy,
            tables.load(cells) as u32,
            source & tables.load(mask) as u32,
            hash,
            gcra::time_q8(now_ns),
        )
}

/// The words of the note: the name of policy and service, the mask of the level, and its first cell.
#[inline(always)]
fn words<T: Tables>(tables: &T) -> [Option<T::Word>; 3] {
    [LaneWord::CrowdedName, LaneWord::CrowdedMask, LaneWord::CrowdedCells].map(|word| tables.lane_word(word))
}
