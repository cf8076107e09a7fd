//! The prefixes around a source.

use std::net::IpAddr;

use ratelimit_common::{
    abi::{SourceKey, prefix::MAX_PREFIX_LEVELS, service::Party},
    limit::{
        aggregation, fair,
        gcra::{self, SHARED_ROOM_Q8, Start},
        level::Level,
        prefilter,
    },
};

use super::{
    ExplainContext,
    record::{NEW_SOURCES, ReadRecord},
    refusals,
    remembered::{Remembered, Row},
    report::PrefixState,
    scratch::all_words,
    source::Source,
    source_state::{CELL, ENTRY, ms, sample_meter, sample_q8},
};
use crate::policy::{AggregationFamily, Prefix};

/// The state of all prefixes around a source, narrowest first.
pub(super) fn prefixes<R: Remembered>(
    record: &ReadRecord<'_, R>,
    setting: &ExplainContext<'_>,
    source: &Source,
    party: Party,
) -> Vec<PrefixState> {
    let kernel = &setting.kernel.aggregation;
    let (family, which) = match source.address {
        IpAddr::V4(_) => (0, AggregationFamily::V4),
        IpAddr::V6(_) => (1, AggregationFamily::V6),
    };
    let set = &setting.kernel.source.set;
    let (sample_q8, meter) = (sample_q8(set), sample_meter(set));
    let (share_q8, now_q8) = (kernel.cell_tolerance_q8, setting.now_q8());
    let tolerance_q8 = match party {
        Party::Proven => kernel.tolerance_q8,
        Party::Tracked | Party::Untracked => kernel.unproven_tolerance_q8,
    };
    let fair_share = Row::Fair(prefilter::cell_index(source.hash));
    let mut prefixes = Vec::new();
    for (index, (wanted, prefix_level)) in setting
        .policy
        .aggregation()
        .prefix_levels(which)
        .iter()
        .zip(&kernel.prefix_levels[family])
        .enumerate()
    {
        let number = (family * MAX_PREFIX_LEVELS + index) as u32;
        let SourceKey { hi, lo } = aggregation::cut(source.key, prefix_level.mask_hi, prefix_level.mask_lo);
        let hash = prefilter::hash(SourceKey { hi, lo }, setting.kernel.prefilter.secret);
        let (cell, row) = (
            Row::PrefixCell(aggregation::cell_index(number, hash)),
            Row::Prefix([hi, lo, u64::from(number)]),
        );
        let [tat_q8, tracked_until_q8, ..] = record.place(cell);
        let entry = match prefilter::is_tracked(tracked_until_q8, now_q8) {
            true => record.row(row),
            false => None,
        };
        let charge_q8 =
            aggregation::share_q8(sample_q8, prefix_level.multiple, prefix_level.reciprocal).max(1);
        let (state, level, pressure) = match entry {
            Some([word, ..]) => {
                let most_q8 = kernel.tolerance_q8 + kernel.adds;
                let word = gcra::settled_q8(word, most_q8, tolerance_q8, now_q8);
                let level = Level::of(word, tolerance_q8, now_q8, Start::after(share_q8));
                let after_q8 = tolerance_q8.saturating_sub(level.room_q8()) + charge_q8;
                (ENTRY, level, fair::pressure(&kernel.squeeze, after_q8, fair::end_q8(kernel, party)))
            }
            None => {
                let tat_q8 = gcra::settled_q8(tat_q8, share_q8 + SHARED_ROOM_Q8, share_q8, now_q8);
                let cell = Level::of(tat_q8, share_q8, now_q8, Start::FULL);
                (CELL, Level::behind(cell, tolerance_q8), 0)
            }
        };
        // A prefix also refuses a source that has used up its fair share, and a source for which the prefix would need an entry when there is no room.
        let words =
            all_words(cell).chain(all_words(row)).chain([(fair_share, 0), (Row::Budget(NEW_SOURCES), 0)]);
        prefixes.push(PrefixState {
            prefix: Prefix::masked(source.address, wanted.bits).to_string(),
            multiple: wanted.multiple,
            state: state.to_owned(),
            capacity: tolerance_q8 / charge_q8,
            left: level.room_q8() / charge_q8,
            full_in_ms: ms(level.full_in_ns()),
            refused_for_ms: refusals::prefix_alone_ms(record, source.seen, meter, words.collect()),
            share_percent: (pressure > 0).then(|| fair::percent(pressure)),
        });
    }
    prefixes
}
