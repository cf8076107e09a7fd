//! What an interface hands on of frames without a source, as the kernel reads it.

use ratelimit_common::{
    abi::{Limit, LinkLimits, link::LINK_NEIGHBOURS},
    limit::rate::Rate,
};

use super::set::enforced;

/// Half of rate and burst is for everybody; of the other half each neighbour that there is room for has its part, and one frame at least.
pub(super) fn compile(link: Option<&Rate>, lag_q8: u64) -> LinkLimits {
    let Some(rate) = link else { return LinkLimits::OFF };
    let whole = enforced(rate);
    // Twice the price is half the rate; the burst, as time, is then half as many.
    let shared = Limit { cost_fp: whole.cost_fp * 2, tolerance_q8: whole.tolerance_q8 - lag_q8, ..whole };
    let cost_fp = shared.cost_fp * u64::from(LINK_NEIGHBOURS);
    let own = Limit { cost_fp, tolerance_q8: shared.tolerance_q8.max(cost_fp), ..whole };
    LinkLimits { shared, own }
}
