//! The policy as the kernel reads it.

use ratelimit_common::{
    abi::{
        self, Clock, Limit, MAX_LIMITS, Meter, SourceKey, SourceLimits, Total,
        policy::{LADDER_ADDS, MAX_RUNGS, NO_METER, NO_TCP_OPTIONS},
        service::MAX_SERVICES,
    },
    limit::{
        gate::CELL_SHARE,
        gcra::{self, TIME_FRAC_BITS},
        ladder,
        rate::{FULL_FRAME, Period, Rate},
    },
};

use super::facts::HostFacts;
use crate::policy::{
    GatePolicy, LadderFamily, LadderPolicy, NamedLimit, Policy, Rung, Service, SourcePolicy,
};

/// What the maps must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The policy in force.
    pub policy: abi::Policy,
    /// Every port that belongs to a service: its place, and one more than the service's index.
    pub ports: Vec<(u32, u32)>,
}

/// How late a timer tick may come before the coarse clock lags more than was taken out of the tolerances.
const TICKS_OF_LAG: u64 = 2;
/// A tolerance below so many times the lag would lose too much of its burst to it: then the precise clock decides.
const LAG_SHARE: u64 = 8;
/// So does one of fewer packets than this, because the lag costs it a whole one.
const COUNTABLE_BURST: u64 = 64;
/// Allowances may be used up in bursts of this part of a second.
const ALLOWANCE_BURST: u32 = 10;
/// Sockets that one CPU looks up per second for strangers: a lookup takes about a tenth of a microsecond, so a few percent of a core.
const PROOFS_PER_CPU: u32 = 500_000;
/// Part of a total's burst that CPUs may hold without having spent it: a sixteenth.
const HELD_SHARE: u64 = 16;
/// Part of the burst of a total or a prefix that is out of reach for strangers: a quarter.
const RESERVED_SHARE: u64 = 4;
/// A tolerance below so many times the room that CPUs need to add would lose too much of its burst to it.
const ROOM_SHARE: u64 = 64;
/// The largest frame that a portion must pay for: what receive offloads can build.
const LARGEST_FRAME: u64 = 65_536;

/// The kernel's view of a policy. `before` is the one in force: a limit that stays keeps its place, and with it what each
/// source has spent.
pub fn desired(policy: &Policy, facts: &HostFacts, generation: u64, before: Option<&abi::Policy>) -> Desired {
    let lag_q8 = (facts.tick_ns * TICKS_OF_LAG) << TIME_FRAC_BITS;
    let clock = clock(policy, lag_q8);
    let lag_q8 = if clock == Clock::Coarse { lag_q8 } else { 0 };
    let mut source = source(policy.source(), lag_q8, before.map(|before| &before.source));
    let adds = make_room_to_add(&mut source, facts.cpus);
    let mut services = [abi::Service::UNUSED; MAX_SERVICES];
    for (slot, service) in services.iter_mut().zip(policy.services().iter()) {
        slot.syn_cookies = service.syn_cookies().map_or(Limit::UNUSED, enforced);
        slot.total_count = service.totals().len() as u64;
        for (total, rate) in slot.totals.iter_mut().zip(service.totals()) {
            *total = share_out(rate, facts.cpus, lag_q8);
        }
    }
    let cookie_services = policy.services().iter().filter(|service| service.syn_cookies().is_some()).count();
    let numbered = policy.services().iter().zip(1..);
    let ports = numbered.flat_map(|(service, number)| service.port_slots().map(move |slot| (slot, number)));
    Desired {
        policy: abi::Policy {
            generation,
            source,
            gate: gate(policy.gate(), &source, facts.secret),
            ladder: compile_ladder(policy.ladder(), &source),
            adds,
            clock: clock as u32,
            ports: (generation % 2) as u32,
            service_count: policy.services().iter().len() as u64,
            cookie_services: if facts.cookies { cookie_services as u32 } else { 0 },
            window_scale: facts.window_scale.map_or(NO_TCP_OPTIONS, u32::from),
            services,
        },
        ports: ports.collect(),
    }
}

fn enforced(rate: &Rate) -> Limit {
    // Rates of a policy have been checked when it was made.
    rate.limit().unwrap_or(Limit::UNUSED)
}

/// The coarse clock, if its lag is small against every burst.
fn clock(policy: &Policy, lag_q8: u64) -> Clock {
    let source = policy.source().limits().iter().map(NamedLimit::limit);
    let totals = policy.services().iter().flat_map(Service::totals).map(enforced);
    let bears_lag = |limit: Limit| {
        let packet = full_frame_charge(&limit);
        limit.tolerance_q8 >= lag_q8 * LAG_SHARE && limit.tolerance_q8 / packet.max(1) >= COUNTABLE_BURST
    };
    if source.chain(totals).all(bears_lag) { Clock::Coarse } else { Clock::Precise }
}

/// What a full frame costs under a limit.
fn full_frame_charge(limit: &Limit) -> u64 {
    if limit.meter == Meter::Bytes as u32 { gcra::charge_q8(limit, FULL_FRAME) } else { limit.cost_fp }
}

fn source(source: &SourcePolicy, lag_q8: u64, before: Option<&SourceLimits>) -> SourceLimits {
    let mut limits = [Limit::UNUSED; MAX_LIMITS];
    let places = places(source.limits(), before);
    for (place, named) in places.iter().zip(source.limits()) {
        limits[*place] = Limit { tolerance_q8: named.limit().tolerance_q8 - lag_q8, ..named.limit() };
    }
    let v6_mask = v6_mask(source.ipv6_prefix());
    SourceLimits {
        v6_mask_hi: v6_mask.hi,
        v6_mask_lo: v6_mask.lo,
        longest_tolerance_q8: limits.iter().map(|limit| limit.tolerance_q8).max().unwrap_or(0),
        v4_mask: v4_mask(source.ipv4_prefix()).lo,
        limit_count: places.iter().max().map_or(0, |last| *last as u64 + 1),
        limits,
    }
}

/// Takes one charge per CPU out of every tolerance that is large enough, and says which are. Twice that, because a source, and more so a
/// prefix, may run ahead both in its cell and in its entry.
fn make_room_to_add(source: &mut SourceLimits, cpus: u32) -> u64 {
    let mut adds = LADDER_ADDS;
    for (index, limit) in source.limits.iter_mut().enumerate().filter(|(_, limit)| limit.meter != NO_METER) {
        let largest = if limit.meter == Meter::Bytes as u32 {
            gcra::charge_q8(limit, LARGEST_FRAME)
        } else {
            limit.cost_fp
        };
        let room = largest.saturating_mul(u64::from(cpus) * 2);
        if limit.tolerance_q8 / ROOM_SHARE >= room {
            limit.tolerance_q8 -= room;
            adds |= 1 << index;
        } else {
            // Prefixes are charged for the dearest limit, whichever that is.
            adds &= !LADDER_ADDS;
        }
    }
    adds
}

/// The place of each limit: where one of the same meter and number was before, or else any that is free.
fn places(limits: &[NamedLimit], before: Option<&SourceLimits>) -> Vec<usize> {
    let meters: Vec<u32> = limits.iter().map(|named| named.limit().meter).collect();
    let nth = |meters: &[u32], at: usize| meters[..at].iter().filter(|meter| **meter == meters[at]).count();
    let old: Vec<u32> = before.map_or_else(Vec::new, |before| {
        before.limits[..before.limit_count as usize].iter().map(|limit| limit.meter).collect()
    });
    let kept =
        |at: usize| (0..old.len()).find(|p| old[*p] == meters[at] && nth(&old, *p) == nth(&meters, at));
    let mut places: Vec<Option<usize>> = (0..limits.len()).map(kept).collect();
    for at in 0..places.len() {
        if places[at].is_none() {
            places[at] = (0..MAX_LIMITS).find(|free| !places.contains(&Some(*free)));
        }
    }
    places.into_iter().flatten().collect()
}

/// A cell gives out an eighth of the smallest burst, in whole packets. Where that is less than one packet, or leaves an
/// entry less than one, there is no gate: every source has an entry at once.
fn gate(policy: &GatePolicy, source: &SourceLimits, secret: [u64; 2]) -> abi::Gate {
    let limits: Vec<&Limit> = source.limits.iter().filter(|limit| limit.meter != NO_METER).collect();
    let dearest = limits.iter().map(|limit| full_frame_charge(limit)).max().unwrap_or(0);
    let smallest = limits.iter().map(|limit| limit.tolerance_q8).min().unwrap_or(0);
    let share = smallest / CELL_SHARE;
    let whole = share - share % dearest.max(1);
    let fits = whole > 0 && limits.iter().all(|limit| limit.tolerance_q8 >= whole + full_frame_charge(limit));
    abi::Gate {
        secret,
        tolerance_q8: if policy.enabled() && fits { whole } else { 0 },
        new_sources: allowance(policy.new_sources_per_cpu()),
        proofs: allowance(PROOFS_PER_CPU),
    }
}

/// What one CPU may do so often per second, and a tenth of that at once.
fn allowance(per_second: u32) -> Limit {
    let burst = u64::from(per_second / ALLOWANCE_BURST).max(1);
    enforced(&Rate { meter: Meter::Packets, amount: u64::from(per_second), period: Period::Second, burst })
}

/// A prefix has the tolerance of its sources: m times the burst, used up m times as fast.
fn compile_ladder(policy: &LadderPolicy, source: &SourceLimits) -> abi::Ladder {
    let limits = source.limits.iter().filter(|limit| limit.meter != NO_METER);
    let tolerance_q8 = limits.map(|limit| limit.tolerance_q8).min().unwrap_or(0);
    let mut rungs = [[abi::Rung::UNUSED; MAX_RUNGS]; 2];
    for (slot, rung) in rungs[0].iter_mut().zip(policy.rungs(LadderFamily::V4)) {
        *slot = compiled(rung, SourceKey { hi: 0, ..v4_mask(rung.bits) });
    }
    for (slot, rung) in rungs[1].iter_mut().zip(policy.rungs(LadderFamily::V6)) {
        *slot = compiled(rung, v6_mask(rung.bits));
    }
    let off = rungs.iter().flatten().all(|rung| rung.multiple == 0);
    abi::Ladder {
        tolerance_q8: if off { 0 } else { tolerance_q8 },
        stranger_tolerance_q8: tolerance_q8 - tolerance_q8 / RESERVED_SHARE,
        cell_tolerance_q8: tolerance_q8 / CELL_SHARE,
        rungs,
    }
}

fn compiled(rung: &Rung, mask: SourceKey) -> abi::Rung {
    let reciprocal = ladder::reciprocal(rung.multiple);
    abi::Rung { mask_hi: mask.hi, mask_lo: mask.lo, multiple: rung.multiple, reciprocal }
}

fn v4_mask(bits: u8) -> SourceKey {
    let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0).to_be_bytes();
    SourceKey::from_v4(u32::from_ne_bytes(mask))
}

fn v6_mask(bits: u8) -> SourceKey {
    SourceKey::from_octets(u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0).to_be_bytes())
}

/// Splits a total's burst: what CPUs may hold unspent, what strangers may use, and the rest.
fn share_out(rate: &Rate, cpus: u32, lag_q8: u64) -> Total {
    let mut limit = enforced(rate);
    limit.tolerance_q8 -= lag_q8;
    let largest = match rate.meter {
        Meter::Bytes => gcra::charge_q8(&limit, LARGEST_FRAME.min(rate.burst)),
        Meter::Packets | Meter::Syns | Meter::Fragments => limit.cost_fp,
    };
    // Each CPU holds two pools (strangers, known), each with less than a portion and one packet in it.
    let pools = u64::from(cpus) * 2;
    let portion = (limit.tolerance_q8 / HELD_SHARE / pools).saturating_sub(largest);
    let portion_q8 = if portion >= largest { portion } else { 0 };
    let held = if portion_q8 == 0 { 0 } else { pools * (portion_q8 + largest) };
    limit.tolerance_q8 -= held;
    Total {
        limit,
        stranger_tolerance_q8: limit.tolerance_q8 - limit.tolerance_q8 / RESERVED_SHARE,
        portion_q8,
    }
}
