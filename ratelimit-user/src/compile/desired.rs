//! The policy as the kernel reads it.

use ratelimit_common::{
    abi::{
        self, Clock, Limit, LimitSet, Meter, Mode, SourceLimits, Total, WindowLimit,
        policy::NO_TCP_OPTIONS,
        service::{MAX_SERVICES, MAX_TOTALS, NO_SERVICE, OnLimit, PORT_SLOTS},
        window::MAX_WINDOWS,
    },
    limit::{
        gcra::TIME_FRAC_BITS,
        manner::Manner,
        rate::{Period, Rate},
    },
};

use super::{
    destination::{self, Destination},
    facts::HostFacts,
    ladder::{self, v4_mask, v6_mask},
    places::Places,
    set::{self, Terms, enforced, full_frame_charge},
    total,
    window::{self, Windows},
};
use crate::policy::{GatePolicy, NamedLimit, Policy, Prefix, Service, User};

/// What the maps must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The policy in force.
    pub policy: Box<abi::Policy>,
    /// Who a packet to a port is for that services share.
    pub destinations: Vec<Destination>,
    /// Services whose totals are not what they were.
    pub changed_totals: Vec<u32>,
    /// The limits of users, by index.
    pub users: Vec<(u32, LimitSet)>,
    /// Users whose index had another user or none before: their buckets start full.
    pub new_users: Vec<u32>,
    /// Users whose windows begin afresh.
    pub new_user_windows: Vec<u32>,
    /// Every prefix of a user, and one more than the user's index.
    pub user_prefixes: Vec<(Prefix, u16)>,
    /// Which index each name has.
    pub names: Names,
}

/// The names behind the indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Of services.
    pub services: Places,
    /// Of users.
    pub users: Places,
}

/// What is in force.
#[derive(Clone, Copy, Debug)]
pub struct Before<'b> {
    /// The policy in the kernel.
    pub policy: &'b abi::Policy,
    /// Its names; none if it was somebody else who put it there.
    pub names: &'b Names,
    /// The limits of its users, by index.
    pub users: &'b [LimitSet],
}

/// How far the coarse clock may lag before more is admitted than was taken out of the tolerances: one tick is its nature, one more when the
/// program read it while it was being moved, and one for a tick that comes late.
const TICKS_OF_LAG: u64 = 3;
/// A tolerance below so many times the lag would lose too much of its burst to it: then the precise clock decides.
const LAG_SHARE: u64 = 8;
/// So does one of fewer packets than this, because the lag costs it a whole one.
const COUNTABLE_BURST: u64 = 64;
/// Allowances may be used up in bursts of this part of a second.
const ALLOWANCE_BURST: u32 = 10;
/// Sockets that one CPU looks up per second for strangers: a lookup takes about a tenth of a microsecond, so a few percent of a core.
const PROOFS_PER_CPU: u32 = 500_000;
/// Senders of refused packets that one CPU tells so per second: enough for people, and of no use to whoever forges addresses.
const REJECTIONS_PER_CPU: u32 = 1_000;
/// Refused packets that one CPU tells the daemon of per second: enough to see who is refused, and little for either side.
const REPORTS_PER_CPU: u32 = 1_000;

/// The kernel's view of a policy. A limit, a service or a user that was there before keeps its place, and with it what was spent.
pub fn desired(policy: &Policy, facts: &HostFacts, generation: u64, before: Option<Before<'_>>) -> Desired {
    let lag_q8 = (facts.tick_ns * TICKS_OF_LAG) << TIME_FRAC_BITS;
    let clock = clock(policy, lag_q8);
    let lag_q8 = if clock == Clock::Coarse { lag_q8 } else { 0 };
    let terms = Terms { lag_q8, cpus: facts.cpus, gate: policy.gate().enabled(), headroom: facts.headroom };
    let names = names(policy, before.map(|before| before.names));
    let mut windows = Windows::default();
    let mut compiled = Box::new(abi::Policy {
        generation,
        source: source(policy, terms, before.map(|before| &before.policy.source.set), &mut windows),
        gate: gate(policy.gate(), facts.secret),
        ladder: abi::Ladder::OFF,
        clock: clock as u32,
        service_count: policy.services().iter().len() as u32,
        lenient: lenient(policy),
        user_count: policy.users().iter().len() as u32,
        tables: (generation % 2) as u32,
        mode: policy.mode() as u32,
        cookie_services: cookie_services(policy, facts),
        window_scale: facts.window_scale.map_or(NO_TCP_OPTIONS, u32::from),
        window_count: 0,
        windows: [WindowLimit::UNUSED; MAX_WINDOWS],
        services: [abi::Service::UNUSED; MAX_SERVICES],
        ports: [NO_SERVICE as u16; PORT_SLOTS],
    });
    compiled.ladder = ladder::compile(policy.ladder(), &compiled.source.set);
    let mut changed_totals = Vec::new();
    for service in policy.services().iter() {
        let Some(index) = names.services.of(service.name()) else { continue };
        let same = before.filter(|before| before.names.services.of(service.name()) == Some(index));
        let set = same.map(|before| &before.policy.services[index].per_source);
        let totals = same.map(|before| &before.policy.services[index].totals);
        compiled.services[index] = compile_service(service, terms, set, totals, &mut windows);
        if before
            .is_some_and(|before| before.policy.services[index].totals != compiled.services[index].totals)
        {
            changed_totals.push(index as u32);
        }
    }
    let destinations = destination::compile(policy.services(), &names.services, &mut compiled.ports);
    let mut desired = Desired {
        policy: compiled,
        destinations,
        changed_totals,
        users: Vec::new(),
        new_users: Vec::new(),
        new_user_windows: Vec::new(),
        user_prefixes: Vec::new(),
        names,
    };
    for user in policy.users().iter() {
        let Some(index) = desired.names.users.of(user.name()) else { continue };
        // A daemon that has just started knows no names; the file's order is what it was, most likely.
        let known = before.filter(|before| *before.names != Names::default());
        let is_new = known.is_some_and(|before| before.names.users.of(user.name()) != Some(index));
        let same = before.filter(|_| !is_new).and_then(|before| before.users.get(index));
        let set = set::compile(user.network(), Terms { gate: false, ..terms }, same, &mut windows);
        desired.users.push((index as u32, set));
        if is_new {
            desired.new_users.push(index as u32);
        }
        desired.user_prefixes.extend(user.sources().iter().map(|prefix| (*prefix, index as u16 + 1)));
    }
    windows.write(&mut desired.policy);
    desired.new_user_windows = new_user_windows(&desired, before);
    desired
}

/// Users whose windows are not those that were counted before.
fn new_user_windows(desired: &Desired, before: Option<Before<'_>>) -> Vec<u32> {
    let Some(before) = before else { return Vec::new() };
    let changed = |index: u32, set: &LimitSet| {
        let old = before.users.get(index as usize).map_or([0; 8], |set| set.windows);
        desired.new_users.contains(&index)
            || window::differ((before.policy, &old), (&desired.policy, &set.windows))
    };
    desired.users.iter().filter(|(index, set)| changed(*index, set)).map(|(index, _)| *index).collect()
}

fn names(policy: &Policy, before: Option<&Names>) -> Names {
    let none = Names::default();
    let before = before.unwrap_or(&none);
    Names {
        services: Places::after(&before.services, policy.services().iter().map(Service::name)),
        users: Places::after(&before.users, policy.users().iter().map(User::name)),
    }
}

fn source(policy: &Policy, terms: Terms, before: Option<&LimitSet>, windows: &mut Windows) -> SourceLimits {
    let source = policy.source();
    let rates: Vec<Rate> = source.limits().iter().map(|limit| *limit.rate()).collect();
    let v6_mask = v6_mask(source.ipv6_prefix());
    SourceLimits {
        v6_mask_hi: v6_mask.hi,
        v6_mask_lo: v6_mask.lo,
        v4_mask: v4_mask(source.ipv4_prefix()).lo,
        set: set::compile(&rates, terms, before, windows),
    }
}

fn compile_service(
    service: &Service,
    terms: Terms,
    before: Option<&LimitSet>,
    totals: Option<&[Total; MAX_TOTALS]>,
    windows: &mut Windows,
) -> abi::Service {
    let places = total::places(service.totals(), totals);
    let mut compiled = abi::Service {
        syn_cookies: service.syn_cookies().map_or(Limit::UNUSED, enforced),
        total_count: places.iter().max().map_or(0, |last| *last as u64 + 1),
        on_limit: service.on_limit() as u32,
        dscp: u32::from(service.dscp()),
        ..abi::Service::UNUSED
    };
    for (place, rate) in places.iter().zip(service.totals()) {
        compiled.totals[*place] = total::compile(rate, terms.cpus, terms.lag_q8);
    }
    compiled.per_source = set::compile(service.per_source(), terms, before, windows);
    compiled
}

/// What keeps refused packets from being dropped.
fn lenient(policy: &Policy) -> u32 {
    let services = policy.services().iter().filter(|service| service.on_limit() != OnLimit::Drop).count();
    services as u32 + u32::from(policy.mode() == Mode::Monitor)
}

/// Services that answer SYNs with cookies. On trial nothing is answered for anybody.
fn cookie_services(policy: &Policy, facts: &HostFacts) -> u32 {
    let on_trial = |service: &&Service| service.on_limit() == OnLimit::Monitor;
    let cookies =
        policy.services().iter().filter(|service| service.syn_cookies().is_some() && !on_trial(service));
    if facts.cookies && policy.mode() == Mode::Enforce { cookies.count() as u32 } else { 0 }
}

/// The coarse clock, if its lag is small against every burst.
fn clock(policy: &Policy, lag_q8: u64) -> Clock {
    let source = policy.source().limits().iter().map(NamedLimit::rate);
    let services =
        policy.services().iter().flat_map(|service| service.totals().iter().chain(service.per_source()));
    let users = policy.users().iter().flat_map(User::network);
    // Windows have the precise clock whatever the others have.
    let buckets = source.chain(services).chain(users).filter(|rate| !rate.manner.algorithm.is_window());
    let bears_lag = |limit: Limit| {
        let packet = full_frame_charge(&limit);
        limit.tolerance_q8 >= lag_q8 * LAG_SHARE && limit.tolerance_q8 / packet.max(1) >= COUNTABLE_BURST
    };
    let all = buckets.map(enforced).all(bears_lag);
    if all { Clock::Coarse } else { Clock::Precise }
}

fn gate(policy: &GatePolicy, secret: [u64; 2]) -> abi::Gate {
    abi::Gate {
        secret,
        new_sources: allowance(policy.new_sources_per_cpu()),
        proofs: allowance(PROOFS_PER_CPU),
        rejections: allowance(REJECTIONS_PER_CPU),
        reports: allowance(REPORTS_PER_CPU),
    }
}

/// What one CPU may do so often per second, and a tenth of that at once.
fn allowance(per_second: u32) -> Limit {
    let burst = u64::from(per_second / ALLOWANCE_BURST).max(1);
    enforced(&Rate {
        meter: Meter::Packets,
        amount: u64::from(per_second),
        period: Period::Second,
        burst,
        manner: Manner::PLAIN,
    })
}
