//! The prefixes around a source.

use std::net::IpAddr;

use ratelimit_common::{
    abi::{Reason, SourceKey, prefix::MAX_PREFIX_LEVELS, service::Party},
    limit::{aggregation, fair, gcra::Start, level::Level, prefilter},
};

use super::{
    ExplainContext,
    record::ReadRecord,
    refusals::Refusals,
    remembered::{Remembered, Row},
    report::PrefixState,
    source::Source,
    source_state::{CELL, ENTRY, counts_every_packet, ms, sample_q8},
};
use crate::policy::{AggregationFamily, Prefix};

/// All of them, narrowest first.
pub(super) fn prefixes<R: Remembered>(
    record: &ReadRecord<'_, R>,
    setting: &ExplainContext<'_>,
    source: &Source,
    party: Party,
    refusals: &Refusals,
) -> Vec<PrefixState> {
    let kernel = &setting.kernel.aggregation;
    let (family, which) = match source.address {
        IpAddr::V4(_) => (0, AggregationFamily::V4),
        IpAddr::V6(_) => (1, AggregationFamily::V6),
    };
    let set = &setting.kernel.source.set;
    let plain = set.limits.iter().any(|limit| counts_every_packet(limit.meter));
    let sample_q8 = sample_q8(set);
    let (share_q8, now_q8) = (kernel.cell_tolerance_q8, setting.now_q8());
    let tolerance_q8 = match party {
        Party::Proven => kernel.tolerance_q8,
        Party::Tracked | Party::Untracked => kernel.unproven_tolerance_q8,
    };
    let [share, ..] = record.place(Row::Fair(prefilter::cell_index(source.hash)));
    let refused_for_ms = refusals.for_ms(Reason::LimitPrefix.name(), None, plain);
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
        let [tat_q8, tracked_until_q8, ..] =
            record.place(Row::PrefixCell(aggregation::cell_index(number, hash)));
        let entry = match prefilter::is_tracked(tracked_until_q8, now_q8) {
            true => record.row(Row::Prefix([hi, lo, u64::from(number)])),
            false => None,
        };
        let charge_q8 =
            aggregation::share_q8(sample_q8, prefix_level.multiple, prefix_level.reciprocal).max(1);
        let (state, level, is_spent, pressure) = match entry {
            Some([word, ..]) => {
                let level = Level::of(word, tolerance_q8, now_q8, Start::after(share_q8));
                let after_q8 = tolerance_q8.saturating_sub(level.room_q8()) + charge_q8;
                let pressure = fair::pressure(&kernel.squeeze, after_q8, fair::end_q8(kernel, party));
                let is_squeezed =
                    pressure > 0 && fair::wait_q8(share, &kernel.squeeze, now_q8, sample_q8, pressure) > 0;
                (ENTRY, level, is_squeezed || level.room_q8() < charge_q8, pressure)
            }
            None => {
                let cell = Level::of(tat_q8, share_q8, now_q8, Start::FULL);
                // Only for want of an entry, which a cell that is spent needs.
                (CELL, Level::behind(cell, tolerance_q8), cell.wait_ns(charge_q8) > 0, 0)
            }
        };
        prefixes.push(PrefixState {
            prefix: Prefix::masked(source.address, wanted.bits).to_string(),
            multiple: wanted.multiple,
            state: state.to_owned(),
            capacity: tolerance_q8 / charge_q8,
            left: level.room_q8() / charge_q8,
            full_in_ms: ms(level.full_in_ns()),
            // A packet passes when all prefixes around its source have room, so each that is spent tells the longest wait among them.
            refused_for_ms: if is_spent { refused_for_ms } else { None },
            share_percent: (pressure > 0).then(|| fair::percent(pressure)),
        });
    }
    prefixes
}
