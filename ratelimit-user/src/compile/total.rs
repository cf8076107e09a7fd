//! The total of a service, in the form that the kernel program reads.

use ratelimit_common::{
    abi::{Meter, Policy, Total, service::MAX_TOTALS},
    limit::{
        gcra::{self, LARGEST_FRAME},
        rate::Rate,
    },
};

use super::set::{enforced, full_frame_charge};

/// The part of a total's burst that CPUs may hold unspent: a sixteenth.
const HELD_SHARE: u64 = 16;
/// The part of a total's burst that untracked sources cannot use: a quarter.
const RESERVED_SHARE: u64 = 4;

/// The totals of the service at an index; an index behind all services gives the totals of the host.
pub(super) fn of(policy: &Policy, index: u32) -> &[Total; MAX_TOTALS] {
    policy.services.get(index as usize).map_or(&policy.host_totals, |service| &service.totals)
}

/// The place of each limit of a total: where a limit of its meter was before, and with it what was spent; or else any free one. An unused place
/// in between costs nothing.
pub(super) fn places(rates: &[Rate], before: Option<&[Total; MAX_TOTALS]>) -> Vec<usize> {
    let old = |rate: &Rate| before?.iter().position(|total| total.limit.meter == rate.meter as u32);
    let mut places: Vec<Option<usize>> = rates.iter().map(old).collect();
    // Sorted, so that the order in the file does not matter.
    let mut order: Vec<usize> = (0..rates.len()).collect();
    order.sort_by_key(|at| rates[*at].meter as u32);
    for at in order {
        if places[at].is_none() {
            places[at] = (0..MAX_TOTALS).find(|free| !places.contains(&Some(*free)));
        }
    }
    places.into_iter().flatten().collect()
}

/// Compiles a total, whose burst is split: what CPUs may hold unspent, what untracked sources may use, and the rest.
pub(super) fn compile(rate: &Rate, cpus: u32, lag_q8: u64, known_parts: u64) -> Total {
    let mut limit = enforced(rate);
    limit.tolerance_q8 -= lag_q8;
    let largest = match rate.meter {
        Meter::Bytes => gcra::charge_q8(&limit, LARGEST_FRAME.min(rate.burst)),
        Meter::Packets | Meter::Syns | Meter::Fragments => limit.cost_fp,
    };
    // Each CPU holds two pools, for untracked and for tracked sources, each of less than a portion and one packet.
    let pools = u64::from(cpus) * 2;
    let portion = (limit.tolerance_q8 / HELD_SHARE / pools).saturating_sub(largest);
    let portion_q8 = if portion >= largest { portion } else { 0 };
    let held = if portion_q8 == 0 { 0 } else { pools * (portion_q8 + largest) };
    limit.tolerance_q8 -= held;
    // A burst of a packet or two cannot be divided: then untracked sources may use all of it.
    let untracked = limit.tolerance_q8 - limit.tolerance_q8 / RESERVED_SHARE;
    let untracked_tolerance_q8 = untracked.max(full_frame_charge(&limit)).min(limit.tolerance_q8);
    Total { limit, untracked_tolerance_q8, portion_q8, known_parts }
}
