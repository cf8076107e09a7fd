//! The prefixes around sources, as the kernel reads them.

use ratelimit_common::{
    abi::{
        self, Limit, LimitSet, Meter, SourceKey, Squeeze,
        policy::{MAX_RUNGS, NO_METER},
    },
    limit::{fair::RANGE_SHARE, gate::CELL_SHARE, ladder},
};

use super::set;
use crate::policy::{LadderFamily, LadderPolicy, Rung};

/// A prefix has the tolerance of its sources: m times the burst, used up m times as fast.
pub(super) fn compile(policy: &LadderPolicy, source: &LimitSet) -> abi::Ladder {
    let limits = source.limits.iter().filter(|limit| limit.meter != NO_METER);
    let every = |limit: &&Limit| [Meter::Packets as u32, Meter::Bytes as u32].contains(&limit.meter);
    let dearest_q8 = limits.clone().filter(every).map(set::full_frame_charge).max().unwrap_or(0);
    let tolerance_q8 = limits.map(|limit| limit.tolerance_q8).min().unwrap_or(0);
    let mut rungs = [[abi::Rung::UNUSED; MAX_RUNGS]; 2];
    for (slot, rung) in rungs[0].iter_mut().zip(policy.rungs(LadderFamily::V4)) {
        *slot = compile_rung(rung, SourceKey { hi: 0, ..v4_mask(rung.bits) });
    }
    for (slot, rung) in rungs[1].iter_mut().zip(policy.rungs(LadderFamily::V6)) {
        *slot = compile_rung(rung, v6_mask(rung.bits));
    }
    let off = rungs.iter().flatten().all(|rung| rung.multiple == 0);
    abi::Ladder {
        tolerance_q8: if off { 0 } else { tolerance_q8 },
        unproven_tolerance_q8: tolerance_q8 - tolerance_q8 / RANGE_SHARE,
        // Prefixes are charged for the dearest limit, whichever that is.
        adds: u64::from(set::all_add(source)),
        cell_tolerance_q8: tolerance_q8 / CELL_SHARE,
        squeeze: Squeeze::of(tolerance_q8, dearest_q8),
        rungs,
    }
}

fn compile_rung(rung: &Rung, mask: SourceKey) -> abi::Rung {
    let reciprocal = ladder::reciprocal(rung.multiple);
    abi::Rung { mask_hi: mask.hi, mask_lo: mask.lo, multiple: rung.multiple, reciprocal }
}

pub(super) fn v4_mask(bits: u8) -> SourceKey {
    let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0).to_be_bytes();
    SourceKey::from_v4(u32::from_ne_bytes(mask))
}

pub(super) fn v6_mask(bits: u8) -> SourceKey {
    SourceKey::from_octets(u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0).to_be_bytes())
}
