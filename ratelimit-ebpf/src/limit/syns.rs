//! How many SYNs a service gets, and whether that is too many.
//!
//! One word per service is a bucket of SYNs, another says until when SYNs are answered with cookies. All CPUs share them, which
//! is cheap where it matters: the bucket is only written by SYNs that conform, so at most as often as the threshold says, and a
//! flood above it only reads, but for one store of the other word about once a second.

use ratelimit_common::{
    abi::{Limit, Policy, Service, service::COOKIES_HOLD_Q8},
    limit::gcra::{self, Outcome, ahead_q8},
};

use super::{request::Request, total};
use crate::{
    packet::{Packet, Transport},
    tables::Tables,
};

/// Attempts to count one SYN. One that is not counted is one of very many.
const ATTEMPTS: usize = 2;
/// How often the end of cookies is moved on: not for every SYN.
const REFRESH_Q8: u64 = COOKIES_HOLD_Q8 / 10;

/// Whether the packet is TCP for a service whose SYNs are answered with cookies now.
#[inline(always)]
pub fn defended<T: Tables>(tables: &T, policy: &Policy, packet: &Packet, now_ns: u64) -> bool {
    if policy.cookie_services == 0 {
        return false;
    }
    match protected(tables, policy, packet) {
        Some((number, _)) => match tables.cookies_until(number) {
            Some(until) => ahead_q8(tables.load(until), gcra::time_q8(now_ns)) != 0,
            None => false,
        },
        None => false,
    }
}

/// Counts a SYN. From the first above the threshold on, cookies are the answer.
#[inline(always)]
pub(super) fn count<T: Tables>(tables: &T, request: &Request<'_>) {
    if request.policy.cookie_services == 0 || request.packet.transport != Transport::TcpSyn {
        return;
    }
    let Some((number, service)) = protected(tables, request.policy, request.packet) else { return };
    let (Some(meter), Some(until)) = (tables.syn_meter(number), tables.cookies_until(number)) else { return };
    if exceeds(tables, meter, &service.syn_cookies, request.now_q8)
        && ahead_q8(tables.load(until), request.now_q8) < COOKIES_HOLD_Q8 - REFRESH_Q8
    {
        tables.store(until, request.now_q8.wrapping_add(COOKIES_HOLD_Q8));
    }
}

/// The service of a packet, if it answers with cookies when it has to.
#[inline(always)]
fn protected<'p, T: Tables>(tables: &T, policy: &'p Policy, packet: &Packet) -> Option<(u32, &'p Service)> {
    if !matches!(packet.transport, Transport::Tcp | Transport::TcpSyn) {
        return None;
    }
    let (number, service) = total::service(tables, policy, packet)?;
    if service.syn_cookies.cost_fp == 0 { None } else { Some((number, service)) }
}

#[inline(always)]
fn exceeds<T: Tables>(tables: &T, meter: T::Word, threshold: &Limit, now_q8: u64) -> bool {
    for _ in 0..ATTEMPTS {
        let seen = tables.load(meter);
        match gcra::take(seen, threshold, now_q8, threshold.cost_fp) {
            Outcome::Refused => return true,
            Outcome::Overdrawn { tat_q8 } => {
                tables.compare_exchange(meter, seen, tat_q8);
                return true;
            }
            Outcome::Conforms { tat_q8 } => {
                if tables.compare_exchange(meter, seen, tat_q8) {
                    return false;
                }
            }
        }
    }
    false
}
