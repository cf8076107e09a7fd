//! The total of a service, as the kernel reads it.

use ratelimit_common::{
    abi::{Meter, Policy, Total, service::MAX_TOTALS},
    limit::{gcra, rate::Rate},
};

use super::set::{LARGEST_FRAME, enforced};

/// Part of a total's burst that CPUs may hold without having spent it: a sixteenth.
const HELD_SHARE: u64 = 16;
/// Part of a total's burst that is out of reach for untracked sources: a quarter.
const RESERVED_SHARE: u64 = 4;

/// The totals of the service at an index, or of the host behind them.
pub fn of(policy: &Policy, index: u32) -> &[Total; MAX_TOTALS] {
    policy.services.get(index as usize).map_or(&policy.host_totals, |service| &service.totals)
}

/// The place of each limit of a total: where one of the same meter was before, and with it what was spent; or else any that is free. A place
/// in between that nobody has costs nothing.
pub(super) fn places(rates: &[Rate], before: Option<&[Total; MAX_TOTALS]>) -> Vec<usize> {
    let old = |rate: &Rate| before?.iter().position(|total| total.limit.meter == rate.meter as u32);
    let mut places: Vec<Option<usize>> = rates.iter().map(old).collect();
    // In a fixed order, whatever that of the file is.
    let mut order: Vec<usize> = (0..rates.len()).collect();
    order.sort_by_key(|at| rates[*at].meter as u32);
    for at in order {
        if places[at].is_none() {
            places[at] = (0..MAX_TOTALS).find(|free| !places.contains(&Some(*free)));
        }
    }
    places.into_iter().flatten().collect()
}

/// Splits a total's burst: what CPUs may hold unspent, what untracked sources may use, and the rest.
pub(super) fn compile(rate: &Rate, cpus: u32, lag_q8: u64) -> Total {
    let mut limit = enforced(rate);
    limit.tolerance_q8 -= lag_q8;
    let largest = match rate.meter {
        Meter::Bytes => gcra::charge_q8(&limit, LARGEST_FRAME.min(rate.burst)),
        Meter::Packets | Meter::Syns | Meter::Fragments => limit.cost_fp,
    };
    // Each CPU holds two pools (untracked sources, tracked ones), each with less than a portion and one packet in it.
    let pools = u64::from(cpus) * 2;
    let portion = (limit.tolerance_q8 / HELD_SHARE / pools).saturating_sub(largest);
    let portion_q8 = if portion >= largest { portion } else { 0 };
    let held = if portion_q8 == 0 { 0 } else { pools * (portion_q8 + largest) };
    limit.tolerance_q8 -= held;
    Total {
        limit,
        untracked_tolerance_q8: limit.tolerance_q8 - limit.tolerance_q8 / RESERVED_SHARE,
        portion_q8,
    }
}
