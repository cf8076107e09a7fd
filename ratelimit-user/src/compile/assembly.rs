//! Puts the parts of a policy together in the form that the kernel program reads.

use ratelimit_common::{
    abi::{self, Clock, Limit, LimitSet, Meter, SourceLimits, policy::NO_TCP_OPTIONS},
    limit::{
        gcra::TIME_FRAC_BITS,
        manner::Manner,
        prefilter,
        rate::{Period, Rate},
    },
};

use super::{
    aggregation::{self, v4_mask, v6_mask},
    desired::{Before, Desired, table},
    destination,
    facts::HostFacts,
    link,
    names::Names,
    service::{cookie_services, lenient, write_services},
    set::{self, enforced, full_frame_charge},
    succession::SetTerms,
    user::{compile_users, new_user_windows, of_users},
    window::Windows,
};
use crate::policy::{NamedLimit, Policy, PrefilterPolicy, User};

/// Ticks that the coarse clock may lag at most, which are taken out of the tolerances: one by its nature, one when the
/// program reads the clock while it is being moved, and one for a tick that comes late.
const TICKS_OF_LAG: u64 = 3;
/// A tolerance below this many times the lag would lose too much of its burst: then the precise clock decides.
const LAG_SHARE: u64 = 8;
/// The precise clock also decides for bursts of fewer packets than this, because the lag would cost such a burst a whole packet.
const COUNTABLE_BURST: u64 = 64;
/// An allowance admits this part of its amount per second at once.
const ALLOWANCE_BURST: u32 = 10;
/// Sockets that one CPU looks up per second for untracked sources: a lookup takes about a tenth of a microsecond, so a few percent of a core.
const PROOFS_PER_CPU: u32 = 500_000;
/// Rejections that one CPU sends per second to senders of refused packets: enough for people, and of no use to senders of forged addresses.
const REJECTIONS_PER_CPU: u32 = 1_000;
/// Drop events that one CPU sends per second: enough to see who is refused, and little work for CPU and daemon.
const REPORTS_PER_CPU: u32 = 1_000;

/// Compiles a policy for the kernel. A limit, service or user that was in the policy before keeps its place, and with it what was spent.
pub fn desired(policy: &Policy, facts: &HostFacts, generation: u64, before: Option<Before<'_>>) -> Desired {
    let terms = set_terms(policy, facts, before);
    let names = Names::after(before.map(|before| before.names), policy);
    let mut windows = Windows::after(before.map(|before| before.policy), policy.different_windows());
    let mut compiled = without_services(policy, facts, terms, before, &mut windows);
    names.services.write(&mut compiled.service_names);
    compiled.aggregation = aggregation::compile(policy.aggregation(), &compiled.source.set);
    let services = write_services(&mut compiled, policy, (facts, terms), before, (&names, &mut windows));
    let tables = &mut *compiled;
    let destinations =
        destination::compile(policy.services(), &names.services, (&mut tables.ports, &mut tables.protocols));
    let users = compile_users(policy, of_users(terms, facts), before, (&names, &mut windows));
    windows.write(&mut compiled);
    compiled.price_packets();
    let known = before.and_then(|before| before.desired);
    let keeps_tables =
        known.is_some_and(|known| known.users == users.sets && known.destinations == destinations);
    compiled.tables = table(before.map(|before| before.policy.tables), keeps_tables);
    // Prefixes that move between users change the lists, not the policy.
    let may_stay = before.filter(|_| keeps_tables && users.new.is_empty());
    let keeps_policy = number(&mut compiled, generation, may_stay);
    let mut desired = Desired {
        policy: compiled,
        keeps_policy,
        destinations,
        changed_totals: services.changed_totals,
        new_services: services.new,
        users: users.sets,
        keeps_tables,
        new_users: users.new,
        new_user_windows: Vec::new(),
        user_sources: users.sources,
        names,
    };
    desired.new_user_windows = new_user_windows(&desired, before);
    desired
}

/// The terms of the limits of sources. The lag is 0 if the precise clock decides.
fn set_terms(policy: &Policy, facts: &HostFacts, before: Option<Before<'_>>) -> SetTerms {
    let lag_q8 = (facts.tick_ns * TICKS_OF_LAG) << TIME_FRAC_BITS;
    SetTerms {
        lag_q8: if clock(policy, lag_q8) == Clock::Coarse { lag_q8 } else { 0 },
        cpus: facts.cpus,
        prefilter: policy.prefilter().enabled(),
        headroom: facts.headroom,
        reserve: None,
        now_q8: before.map_or(0, |before| before.now_q8),
        remembers_debts: false,
        other_sources: before.is_some_and(|before| masks(&before.policy.source) != source_masks(policy)),
    }
}

/// Compiles the policy without services, totals, aggregation and windows.
fn without_services(
    policy: &Policy,
    facts: &HostFacts,
    terms: SetTerms,
    before: Option<Before<'_>>,
    windows: &mut Windows,
) -> Box<abi::Policy> {
    let clock = clock(policy, (facts.tick_ns * TICKS_OF_LAG) << TIME_FRAC_BITS);
    Box::new(abi::Policy {
        source: source(policy, terms, before.map(|before| &before.policy.source.set), windows),
        prefilter: prefilter(policy.prefilter(), facts.secret),
        clock: clock as u32,
        service_count: policy.services().iter().len() as u32,
        lenient: lenient(policy),
        user_count: policy.users().iter().len() as u32,
        mode: policy.mode() as u32,
        cookie_services: cookie_services(policy, facts),
        window_scale: facts.window_scale.map_or(NO_TCP_OPTIONS, u32::from),
        link: link::compile(policy.host().link(), terms.lag_q8),
        ..abi::Policy::EMPTY
    })
}

/// Gives a policy its generation. If it equals the policy before, it keeps that generation, and the answer is true.
fn number(compiled: &mut abi::Policy, generation: u64, before: Option<Before<'_>>) -> bool {
    if let Some(before) = before {
        compiled.generation = before.policy.generation;
        if *compiled == *before.policy {
            return true;
        }
    }
    compiled.generation = generation;
    false
}

fn source(
    policy: &Policy,
    terms: SetTerms,
    before: Option<&LimitSet>,
    windows: &mut Windows<'_>,
) -> SourceLimits {
    let rates: Vec<Rate> = policy.source().limits().iter().map(|limit| *limit.rate()).collect();
    let [v6_mask_hi, v6_mask_lo, v4_mask] = source_masks(policy);
    SourceLimits { v6_mask_hi, v6_mask_lo, v4_mask, set: set::compile(&rates, terms, before, windows) }
}

/// The masks that make sources of addresses: two words of IPv6, one of IPv4.
fn source_masks(policy: &Policy) -> [u64; 3] {
    let v6 = v6_mask(policy.source().ipv6_prefix());
    [v6.hi, v6.lo, v4_mask(policy.source().ipv4_prefix()).lo]
}

/// The masks of limits of sources in the kernel's form: two words of IPv6, one of IPv4.
fn masks(source: &SourceLimits) -> [u64; 3] {
    [source.v6_mask_hi, source.v6_mask_lo, source.v4_mask]
}

/// The clock that decides: the coarse one if its lag is small against every burst.
fn clock(policy: &Policy, lag_q8: u64) -> Clock {
    let source = policy.source().limits().iter().map(NamedLimit::rate);
    let services =
        policy.services().iter().flat_map(|service| service.totals().iter().chain(service.per_source()));
    let users = policy.users().iter().flat_map(User::network);
    // Windows always use the precise clock, so they do not matter here.
    let buckets = source
        .chain(services)
        .chain(users)
        .chain(policy.host().totals())
        .chain(policy.host().link())
        .filter(|rate| !rate.manner.algorithm.is_window());
    let bears_lag = |limit: Limit| {
        let packet = full_frame_charge(&limit);
        limit.tolerance_q8 >= lag_q8 * LAG_SHARE && limit.tolerance_q8 / packet.max(1) >= COUNTABLE_BURST
    };
    let all = buckets.map(enforced).all(bears_lag);
    if all { Clock::Coarse } else { Clock::Precise }
}

fn prefilter(policy: &PrefilterPolicy, secret: [u64; 2]) -> abi::Prefilter {
    abi::Prefilter {
        secret: prefilter::secret(secret),
        new_sources: allowance(policy.new_sources_per_cpu()),
        proofs: allowance(PROOFS_PER_CPU),
        rejections: allowance(REJECTIONS_PER_CPU),
        reports: allowance(REPORTS_PER_CPU),
    }
}

/// A per-CPU budget of `per_second` units per second, a tenth of them at once.
fn allowance(per_second: u32) -> Limit {
    let burst = u64::from(per_second / ALLOWANCE_BURST).max(1);
    enforced(&Rate {
        meter: Meter::Packets,
        amount: u64::from(per_second),
        period: Period::Second,
        burst,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    })
}
