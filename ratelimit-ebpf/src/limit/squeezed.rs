//! Where it is remembered how hard a prefix squeezes its sources: in its own cell, or in the one beside it while another prefix has its own. `limit::squeezed` in the common
//! crate has the word.
//!
//! Of the 256 prefixes of a /12 about eight share a cell with another. With one place for both, each writes over the other's word, and half of the packets of both take the
//! long way.

use ratelimit_common::{abi::Aggregation, limit::squeezed};

use crate::tables::Tables;

/// What the numbers of two cells beside each other differ by: they lie in one line of a CPU's cache.
const BESIDE: u32 = 1;

/// How hard the prefix of this name, in this cell, is known to squeeze sources that are not proven; 0 if nothing is remembered of it.
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

/// Remembers how hard a prefix squeezes sources that are not proven, while it owes so much. Not for every packet: what is there is good for a while, and other CPUs
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
