//! Counts the SYNs of a service, and decides when they are answered with cookies.
//!
//! One word per service is a bucket of SYNs; another has the time until which SYNs are answered with cookies. All CPUs share them, which
//! is cheap: the bucket is only written by SYNs that conform, so at most as often as the threshold says, and a
//! flood above it only reads, except for one store of the other word about once a second.

use ratelimit_common::{
    abi::{Limit, Policy, Service, service::COOKIES_HOLD_Q8},
    limit::gcra::{self, GcraOutcome, ahead_q8},
};

use super::{request::PacketCharge, word};
use crate::tables::Tables;

/// Attempts to count one SYN. If all fail, many SYNs come at once, and one more does not matter.
const ATTEMPTS: usize = 2;
/// How often the end of cookies is moved on, in 1/256 ns: not for every SYN.
const REFRESH_Q8: u64 = COOKIES_HOLD_Q8 / 10;

/// Whether the SYNs of the packet's service are answered with cookies now.
#[inline(always)]
pub(super) fn defended<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge) -> bool {
    if policy.cookie_services == 0 {
        return false;
    }
    let Some((number, _)) = protected(policy, request) else { return false };
    let Some(until) = tables.cookies_until(number) else { return false };
    ahead_q8(tables.load(until), request.now_q8) != 0
}

/// Counts a SYN and returns whether a cookie is the answer to it: from the first SYN above the threshold on.
#[inline(always)]
pub fn count<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge) -> bool {
    let now_q8 = request.now_q8;
    let Some((number, service)) = protected(policy, request) else { return false };
    let Some(meter) = tables.syn_meter(number) else { return false };
    let Some(until) = tables.cookies_until(number) else { return false };
    let ahead = ahead_q8(tables.load(until), now_q8);
    if !exceeds(tables, meter, &service.syn_cookies, now_q8) {
        return ahead != 0;
    }
    if ahead < COOKIES_HOLD_Q8 - REFRESH_Q8 {
        tables.store(until, now_q8.wrapping_add(COOKIES_HOLD_Q8));
    }
    true
}

/// The service of a packet, if the service can answer with cookies.
#[inline(always)]
fn protected<'p>(policy: &'p Policy, request: &PacketCharge) -> Option<(u32, &'p Service)> {
    let (number, service) = policy.service(request.service as u32)?;
    if service.syn_cookies.cost_fp == 0 { None } else { Some((number, service)) }
}

#[inline(always)]
fn exceeds<T: Tables>(tables: &T, meter: T::Word, threshold: &Limit, now_q8: u64) -> bool {
    for _ in 0..ATTEMPTS {
        let seen = tables.load(meter);
        match gcra::take(seen, threshold, now_q8, threshold.cost_fp) {
            GcraOutcome::Refused => {
                word::settle(tables, meter, seen, now_q8, (threshold.tolerance_q8, threshold.tolerance_q8));
                return true;
            }
            GcraOutcome::Conforms { tat_q8 } => {
                if tables.compare_exchange(meter, seen, tat_q8) {
                    return false;
                }
            }
        }
    }
    false
}
