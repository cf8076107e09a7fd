//! Notes about how hard a prefix squeezes its sources: in the prefix's own cell, or in the neighbouring one while another prefix has its note there.
//! `limit::squeezed` in the common crate has the format of the word.
//!
//! Of the 256 prefixes of a /12 about eight share a cell with another. With one place for both, each would overwrite the other's note, and half of the
//! packets of both would take the long way.

use ratelimit_common::{abi::Aggregation, limit::squeezed};

use crate::tables::Tables;

/// The bit in which the numbers of two neighbouring cells differ: both lie in one line of a CPU's cache.
const BESIDE: u32 = 1;

/// How hard the prefix of this name, in this cell, is known to squeeze sources that are not proven, in 1/256 octaves; 0 if nothing is noted.
#[inline(always)]
pub(super) fn pressure<T: Tables>(tables: &T, cell: u32, name: u64, now_q8: u64) -> u32 {
    match pressure_in(tables, cell, name, now_q8) {
        0 => pressure_in(tables, cell ^ BESIDE, name, now_q8),
        pressure => pressure,
    }
}

#[inline(always)]
fn pressure_in<T: Tables>(tables: &T, cell: u32, name: u64, now_q8: u64) -> u32 {
    tables
        .prefix_level_cell(cell)
        .map_or(0, |cell| squeezed::pressure(tables.load(tables.prefix_level_squeezed(cell)), name, now_q8))
}

/// Notes how hard a prefix with this debt squeezes sources that are not proven. Not for every packet: a note lasts for a while, and other CPUs
/// read the word.
#[inline(always)]
pub(super) fn remember<T: Tables>(
    tables: &T,
    cell: u32,
    aggregation: &Aggregation,
    (name, debt_q8): (u64, u64),
    now_q8: u64,
) {
    let new = squeezed::word(aggregation, name, now_q8, debt_q8);
    let Some(own) = tables.prefix_level_cell(cell) else { return };
    let is_others =
        squeezed::is_live_for_another(tables.load(tables.prefix_level_squeezed(own)), name, now_q8);
    let Some(place) = tables.prefix_level_cell(if is_others { cell ^ BESIDE } else { cell }) else { return };
    let word = tables.prefix_level_squeezed(place);
    if new != 0 && squeezed::pressure(tables.load(word), name, now_q8) == 0 {
        tables.store(word, new);
    }
}
