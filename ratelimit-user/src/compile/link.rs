//! The cap of an interface on frames without a source, in the form that the kernel program reads.

use ratelimit_common::{
    abi::{Limit, LinkLimits, link::LINK_NEIGHBOURS},
    limit::rate::Rate,
};

use super::set::enforced;

/// Compiles a cap. Half of its rate and burst is shared; the other half is divided among the neighbours that there is room for, at least one frame each.
pub(super) fn compile(link: Option<&Rate>, lag_q8: u64) -> LinkLimits {
    let Some(rate) = link else { return LinkLimits::OFF };
    let whole = enforced(rate);
    // Twice the price is half the rate; the tolerance is a time, so it then admits half as many frames.
    let shared = Limit { cost_fp: whole.cost_fp * 2, tolerance_q8: whole.tolerance_q8 - lag_q8, ..whole };
    let cost_fp = shared.cost_fp * u64::from(LINK_NEIGHBOURS);
    let own = Limit { cost_fp, tolerance_q8: shared.tolerance_q8.max(cost_fp), ..whole };
    LinkLimits { shared, own }
}
