//! The policy as the kernel reads it.

use std::collections::BTreeMap;

use ratelimit_common::{
    abi::{
        self, Clock, Limit, LimitSet, Meter, Mode, SourceLimits, Total, WindowLimit,
        destination::BY_DESTINATION,
        policy::NO_TCP_OPTIONS,
        service::{HOST_TOTAL, MAX_SERVICES, MAX_TOTALS, NO_SERVICE, OnLimit, PORT_SLOTS, PROTOCOL_SLOTS},
        user::{MAX_USERS, NO_USER},
        window::{MAX_WINDOWS, SET_WINDOWS},
    },
    limit::{
        gcra::TIME_FRAC_BITS,
        manner::Manner,
        prefilter,
        rate::{Period, Rate},
    },
};

use super::{
    aggregation::{self, v4_mask, v6_mask},
    destination::{self, Destination},
    facts::HostFacts,
    link,
    lists::{self, Lists, UserSources},
    places::Places,
    set::{self, enforced, full_frame_charge},
    succession,
    succession::SetTerms,
    total,
    window::{self, Windows},
};
use crate::policy::{NamedLimit, Policy, PrefilterPolicy, Prefix, Service, User};

/// What the maps must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The policy in force.
    pub policy: Box<abi::Policy>,
    /// Whether the policy that is in force says all that already.
    pub keeps_policy: bool,
    /// Which service a packet is for at a port that services share.
    pub destinations: Vec<Destination>,
    /// Services whose totals are not what they were, in order, and the host behind them.
    pub changed_totals: Vec<u32>,
    /// Services whose index had another service or none before, in order: nothing of theirs is spent, neither by a source nor of their totals.
    pub new_services: Vec<u32>,
    /// The limits of users, by index.
    pub users: Vec<(u32, LimitSet)>,
    /// Whether the tables of users' limits and of destinations that are in force say all that already.
    pub keeps_tables: bool,
    /// Users whose index had another user or none before: their buckets start full.
    pub new_users: Vec<u32>,
    /// Windows of users that begin afresh, by user and place.
    pub new_user_windows: Vec<u32>,
    /// The prefixes of users, by one more than the user's index.
    pub user_sources: Vec<UserSources>,
    /// The index of each name.
    pub names: Names,
}

/// The names behind the indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Indices of services.
    pub services: Places,
    /// Indices of users.
    pub users: Places,
}

/// The policy that the maps hold now.
#[derive(Clone, Copy, Debug)]
pub struct Before<'b> {
    /// The policy in the kernel.
    pub policy: &'b abi::Policy,
    /// The names that have places in the maps in force.
    pub names: &'b Names,
    /// The limits of its users, by index.
    pub users: &'b [LimitSet],
    /// What it was made of; unknown if it was another daemon that put it there.
    pub desired: Option<&'b Desired>,
    /// Now, as a time word of the kernel's clock.
    pub now_q8: u64,
}

impl<'b> Before<'b> {
    /// What this daemon has put there.
    pub fn known(policy: &'b abi::Policy, desired: &'b Desired, now_q8: u64) -> Self {
        Self { policy, names: &desired.names, users: &[], desired: Some(desired), now_q8 }
    }

    fn user_set(&self, index: usize) -> Option<&'b LimitSet> {
        self.desired.map_or_else(|| self.users.get(index), |desired| desired.user_set(index as u32))
    }
}

impl Names {
    /// The names behind what another daemon has put in force, of what the next policy has: services by the marks that it left of their names, as the
    /// daemon that knew them would, or else by their ports; users by their prefixes, because there is no room for a mark of each.
    pub fn recovered(next: &Policy, in_force: &abi::Policy, lists: &Lists) -> Self {
        let service = |name: &str| {
            let service = next.services().iter().find(|one| one.name() == name)?;
            // A port that destinations divide is nobody's.
            let mut whole = service
                .entries_in(in_force)
                .into_iter()
                .filter(|entry| *entry != NO_SERVICE && entry & BY_DESTINATION == 0);
            whole.next().map(|index| index as usize - 1)
        };
        let services = next.services().iter().map(Service::name);
        Self {
            services: Places::recovered(services, &in_force.service_names, service),
            users: Self::users_by_prefixes(next, lists),
        }
    }

    /// The places that users have in lists, by the first of their prefixes that is in there.
    pub fn users_by_prefixes(next: &Policy, lists: &Lists) -> Places {
        let place = |user: &User| {
            let entries = user.sources().iter().filter_map(|prefix| lists.get(prefix));
            let index = entries.map(|entry| entry.own_user).find(|index| *index != NO_USER)?;
            Some(index as usize - 1)
        };
        // In a fixed order, so that of two that claim one index it is always the same that has it.
        let users: BTreeMap<&str, &User> = next.users().iter().map(|user| (user.name(), user)).collect();
        Places::known(users.into_iter().filter_map(|(name, user)| Some((name, place(user)?))))
    }
}

impl Desired {
    /// Every prefix of a user, and one more than the user's index.
    pub fn user_prefixes(&self) -> impl Iterator<Item = (Prefix, u16)> {
        lists::user_prefixes(&self.user_sources)
    }

    /// Has every source begin without a burst: the table that says what it has spent is another one from now on.
    pub fn sources_begin_spent(&mut self, now_q8: u64) {
        self.keeps_policy = false;
        self.policy.source.set = succession::spent(self.policy.source.set, now_q8);
        for service in &mut self.policy.services {
            service.per_source = succession::spent(service.per_source, now_q8);
        }
    }

    /// Has every user begin without a burst.
    pub fn users_begin_spent(&mut self, now_q8: u64) {
        self.keeps_tables = false;
        for (_, set) in &mut self.users {
            *set = succession::spent(*set, now_q8);
        }
    }

    /// What takes the place of this policy once it is in force: what it lost sight of counts as spent since then, and not since the moment that it was
    /// compiled for, until when nothing is admitted. `None` if it lost sight of nothing.
    pub fn in_force_since(&self, compiled_for_q8: u64, now_q8: u64) -> Option<Self> {
        let is_lost = |set: &LimitSet| set.owed_q8 != 0 && set.owed_since_q8 == compiled_for_q8;
        let mut sets = self.policy.services.iter().map(|service| &service.per_source);
        // Asked before anything is copied: nearly every change loses sight of nothing, and costs what differs.
        if !is_lost(&self.policy.source.set) && !sets.any(is_lost) {
            return None;
        }
        let mut next = self.clone();
        let sets = next.policy.services.iter_mut().map(|service| &mut service.per_source);
        for set in sets.chain([&mut next.policy.source.set]).filter(|set| is_lost(set)) {
            set.owed_since_q8 = now_q8;
        }
        next.begin_again();
        next.keeps_tables = true;
        Some(next)
    }

    /// Makes the next generation of this policy.
    pub(super) fn begin_again(&mut self) {
        self.policy.generation += 1;
        self.keeps_policy = false;
        self.all_have_begun();
    }

    /// Says that services, users, windows and totals that the policy begins anew have begun by now: they do not begin once more.
    pub fn all_have_begun(&mut self) {
        (self.new_services, self.changed_totals) = (vec![], vec![]);
        (self.new_users, self.new_user_windows) = (vec![], vec![]);
    }

    /// Has the limits of users written where nobody reads them until the policy says so.
    pub(super) fn use_other_tables(&mut self) {
        self.keeps_tables = false;
        self.policy.tables = table(Some(self.policy.tables), false);
    }

    /// Has no window admit anything. What windows say of sources and users stays as it is.
    pub fn windows_admit_nothing(&mut self) {
        self.keeps_policy = false;
        for limit in &mut self.policy.windows {
            limit.window.limit = 0;
        }
    }

    /// Services that have a total, in order, and the host behind them if it has one.
    pub fn with_totals(&self) -> Vec<u32> {
        let has_one = |totals: &[Total; MAX_TOTALS]| totals.iter().any(|total| total.limit.tolerance_q8 != 0);
        let services = (0..).zip(self.policy.services.iter().map(|service| &service.totals));
        let all = services.chain([(HOST_TOTAL, &self.policy.host_totals)]);
        all.filter(|(_, totals)| has_one(totals)).map(|(index, _)| index).collect()
    }

    /// The limits of the user at an index.
    pub fn user_set(&self, index: u32) -> Option<&LimitSet> {
        let at = self.users.binary_search_by_key(&index, |(other, _)| *other).ok()?;
        Some(&self.users[at].1)
    }
}

/// How far the coarse clock may lag before more is admitted than was taken out of the tolerances: one tick is its nature, one more when the
/// program read it while it was being moved, and one for a tick that comes late.
const TICKS_OF_LAG: u64 = 3;
/// A tolerance below so many times the lag would lose too much of its burst to it: then the precise clock decides.
const LAG_SHARE: u64 = 8;
/// The precise clock also decides for bursts of fewer packets than this, because the lag would cost such a burst a whole packet.
const COUNTABLE_BURST: u64 = 64;
/// Allowances may be used up in bursts of this part of a second.
const ALLOWANCE_BURST: u32 = 10;
/// Sockets that one CPU looks up per second for untracked sources: a lookup takes about a tenth of a microsecond, so a few percent of a core.
const PROOFS_PER_CPU: u32 = 500_000;
/// Senders of refused packets that one CPU tells so per second: enough for people, and of no use to whoever forges addresses.
const REJECTIONS_PER_CPU: u32 = 1_000;
/// Refused packets that one CPU tells the daemon of per second: enough to see who is refused, and little for either side.
const REPORTS_PER_CPU: u32 = 1_000;

/// The kernel's view of a policy. A limit, a service or a user that was there before keeps its place, and with it what was spent.
pub fn desired(policy: &Policy, facts: &HostFacts, generation: u64, before: Option<Before<'_>>) -> Desired {
    let terms = set_terms(policy, facts, before);
    let names = names(policy, before.map(|before| before.names));
    let mut windows = Windows::after(before.map(|before| before.policy), policy.different_windows());
    let mut compiled = without_services(policy, facts, terms, before, &mut windows);
    names.services.write(&mut compiled.service_names);
    compiled.aggregation = aggregation::compile(policy.aggregation(), &compiled.source.set);
    let services = write_services(&mut compiled, policy, terms, before, (&names, &mut windows));
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
    // Prefixes that go from one user to another are in the lists, not here.
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

/// What sets of limits of sources are compiled by. Without a lag where the clock that decides is precise.
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

/// What sets of limits of users are compiled by.
fn of_users(terms: SetTerms, facts: &HostFacts) -> SetTerms {
    SetTerms {
        prefilter: false,
        reserve: facts.reserve,
        remembers_debts: true,
        other_sources: false,
        ..terms
    }
}

/// The policy without services, totals, aggregation and windows.
fn without_services(
    policy: &Policy,
    facts: &HostFacts,
    terms: SetTerms,
    before: Option<Before<'_>>,
    windows: &mut Windows,
) -> Box<abi::Policy> {
    let clock = clock(policy, (facts.tick_ns * TICKS_OF_LAG) << TIME_FRAC_BITS);
    Box::new(abi::Policy {
        generation: 0,
        source: source(policy, terms, before.map(|before| &before.policy.source.set), windows),
        prefilter: prefilter(policy.prefilter(), facts.secret),
        aggregation: abi::Aggregation::OFF,
        clock: clock as u32,
        service_count: policy.services().iter().len() as u32,
        lenient: lenient(policy),
        user_count: policy.users().iter().len() as u32,
        tables: 0,
        mode: policy.mode() as u32,
        cookie_services: cookie_services(policy, facts),
        window_scale: facts.window_scale.map_or(NO_TCP_OPTIONS, u32::from),
        window_count: 0,
        host_total_count: 0,
        host_totals: abi::Service::UNUSED.totals,
        link: link::compile(policy.host().link(), terms.lag_q8),
        windows: [WindowLimit::UNUSED; MAX_WINDOWS],
        services: [abi::Service::UNUSED; MAX_SERVICES],
        ports: [NO_SERVICE as u16; PORT_SLOTS],
        protocols: [NO_SERVICE as u16; PROTOCOL_SLOTS],
        service_names: [0; MAX_SERVICES],
    })
}

/// Indices of services at which something has to be begun anew.
struct ChangedServices {
    /// Totals that differ, [`HOST_TOTAL`] among them.
    changed_totals: Vec<u32>,
    /// Services that were not there, or elsewhere.
    new: Vec<u32>,
}

/// Writes services at their places, and the totals of the host.
fn write_services(
    compiled: &mut abi::Policy,
    policy: &Policy,
    terms: SetTerms,
    before: Option<Before<'_>>,
    (names, windows): (&Names, &mut Windows),
) -> ChangedServices {
    let (mut changed_totals, mut new) = (Vec::new(), Vec::new());
    for (index, service) in in_order(policy.services().iter(), Service::name, &names.services) {
        let same = before.filter(|before| before.names.services.of(service.name()) == Some(index));
        let set = same.map(|before| &before.policy.services[index].per_source);
        let totals = same.map(|before| &before.policy.services[index].totals);
        compiled.services[index] = compile_service(service, terms, set, totals, windows);
        if before.is_some() && same.is_none() {
            new.push(index as u32);
        }
        if before
            .is_some_and(|before| before.policy.services[index].totals != compiled.services[index].totals)
        {
            changed_totals.push(index as u32);
        }
    }
    let host_before = before.map(|before| &before.policy.host_totals);
    (compiled.host_total_count, compiled.host_totals) = totals(policy.host().totals(), terms, host_before);
    if host_before.is_some_and(|before| *before != compiled.host_totals) {
        changed_totals.push(HOST_TOTAL);
    }
    ChangedServices { changed_totals, new }
}

/// Users by their places.
struct CompiledUsers {
    sets: Vec<(u32, LimitSet)>,
    /// Users that were not there, or elsewhere.
    new: Vec<u32>,
    sources: Vec<UserSources>,
}

fn compile_users(
    policy: &Policy,
    terms: SetTerms,
    before: Option<Before<'_>>,
    (names, windows): (&Names, &mut Windows),
) -> CompiledUsers {
    let mut users = CompiledUsers { sets: Vec::new(), new: Vec::new(), sources: Vec::new() };
    for (index, user) in in_order(policy.users().iter(), User::name, &names.users) {
        let stays = before.filter(|before| before.names.users.of(user.name()) == Some(index));
        let set = stays.and_then(|before| before.user_set(index));
        users.sets.push((index as u32, set::compile(user.network(), terms, set, windows)));
        if before.is_some() && stays.is_none() {
            users.new.push(index as u32);
        }
        users.sources.push((index as u16 + 1, user.sources().clone()));
    }
    users
}

/// Gives a policy its generation. Answers whether it is the policy before, whose generation it keeps then.
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

/// The tables that stay, or those that the policy in force does not use: nobody reads them until the policy says so.
fn table(in_force: Option<u32>, stays: bool) -> u32 {
    in_force.map_or(0, |table| if stays { table } else { (table + 1) % 2 })
}

/// Everybody by index, which does not depend on the order of the file.
fn in_order<'p, T>(
    all: impl Iterator<Item = &'p T>,
    name: impl Fn(&T) -> &str,
    places: &Places,
) -> BTreeMap<usize, &'p T> {
    all.filter_map(|one| Some((places.of(name(one))?, one))).collect()
}

/// Windows of users that are not those that were counted at their places before.
fn new_user_windows(desired: &Desired, before: Option<Before<'_>>) -> Vec<u32> {
    let Some(before) = before else { return Vec::new() };
    let afresh = |index: u32, set: &LimitSet| {
        let old = before.user_set(index as usize).map_or([0; 8], |set| set.windows);
        if desired.new_users.binary_search(&index).is_ok() {
            return (0..SET_WINDOWS).collect();
        }
        window::afresh((before.policy, &old), (&desired.policy, &set.windows))
    };
    let of_user = |(index, set): &(u32, LimitSet)| {
        let first = index * SET_WINDOWS as u32;
        afresh(*index, set).into_iter().map(move |place| first + place as u32).collect::<Vec<_>>()
    };
    desired.users.iter().flat_map(of_user).collect()
}

fn names(policy: &Policy, before: Option<&Names>) -> Names {
    let none = Names::default();
    let before = before.unwrap_or(&none);
    Names {
        services: Places::after(&before.services, policy.services().iter().map(Service::name), MAX_SERVICES),
        users: Places::after(&before.users, policy.users().iter().map(User::name), MAX_USERS),
    }
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

/// What makes a source, as the kernel has it.
fn source_masks(policy: &Policy) -> [u64; 3] {
    let v6 = v6_mask(policy.source().ipv6_prefix());
    [v6.hi, v6.lo, v4_mask(policy.source().ipv4_prefix()).lo]
}

/// The masks that make sources of addresses, as the kernel has them.
fn masks(source: &SourceLimits) -> [u64; 3] {
    [source.v6_mask_hi, source.v6_mask_lo, source.v4_mask]
}

fn compile_service(
    service: &Service,
    terms: SetTerms,
    before: Option<&LimitSet>,
    totals: Option<&[Total; MAX_TOTALS]>,
    windows: &mut Windows<'_>,
) -> abi::Service {
    let (total_count, totals) = self::totals(service.totals(), terms, totals);
    let mut compiled = abi::Service {
        syn_cookies: service.syn_cookies().map_or(Limit::UNUSED, enforced),
        total_count,
        totals,
        on_limit: service.on_limit() as u32,
        dscp: u32::from(service.dscp()),
        ..abi::Service::UNUSED
    };
    compiled.per_source = set::compile(service.per_source(), terms, before, windows);
    compiled
}

/// The limits of a total, and how many places they take.
fn totals(
    rates: &[Rate],
    terms: SetTerms,
    before: Option<&[Total; MAX_TOTALS]>,
) -> (u64, [Total; MAX_TOTALS]) {
    let places = total::places(rates, before);
    let mut totals = abi::Service::UNUSED.totals;
    for (place, rate) in places.iter().zip(rates) {
        totals[*place] = total::compile(rate, terms.cpus, terms.lag_q8);
    }
    (places.iter().max().map_or(0, |last| *last as u64 + 1), totals)
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
    let buckets = source
        .chain(services)
        .chain(users)
        .chain(policy.host().totals())
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
