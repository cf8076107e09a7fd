//! Services and the totals of the host, in the form that the kernel program reads.

use ratelimit_common::{
    abi::{
        self, Limit, LimitSet, Mode, Total,
        service::{Challenge, HOST_TOTAL, KNOWN_PARTS, MAX_TOTALS, NO_CLIENTS, OnLimit},
    },
    limit::rate::Rate,
};

use super::{
    desired::Before,
    facts::HostFacts,
    names::{Names, in_order},
    set::{self, enforced},
    succession::SetTerms,
    total,
    window::Windows,
};
use crate::policy::{Policy, Service};

/// Indices of services whose state in the kernel must begin from nothing.
pub(super) struct ChangedServices {
    /// Services whose totals change, and [`HOST_TOTAL`] if the host's change.
    pub(super) changed_totals: Vec<u32>,
    /// Services that are new at their index.
    pub(super) new: Vec<u32>,
}

/// Writes services at their indices, and the totals of the host.
pub(super) fn write_services(
    compiled: &mut abi::Policy,
    policy: &Policy,
    (facts, terms): (&HostFacts, SetTerms),
    before: Option<Before<'_>>,
    (names, windows): (&Names, &mut Windows),
) -> ChangedServices {
    let (mut changed_totals, mut new) = (Vec::new(), Vec::new());
    for (index, service) in in_order(policy.services().iter(), Service::name, &names.services) {
        let same = before.filter(|before| before.names.services.of(service.name()) == Some(index));
        let set = same.map(|before| &before.policy.services[index].per_source);
        let totals = same.map(|before| &before.policy.services[index].totals);
        compiled.services[index] = compile_service(service, terms, set, totals, windows);
        if is_translated(service, facts) {
            compiled.services[index].syn_cookies = Limit::UNUSED;
        }
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
    (compiled.host_total_count, compiled.host_totals) =
        totals((policy.host().totals(), KNOWN_PARTS), terms, host_before);
    if host_before.is_some_and(|before| *before != compiled.host_totals) {
        changed_totals.push(HOST_TOTAL);
    }
    ChangedServices { changed_totals, new }
}

fn compile_service(
    service: &Service,
    terms: SetTerms,
    before: Option<&LimitSet>,
    totals: Option<&[Total; MAX_TOTALS]>,
    windows: &mut Windows<'_>,
) -> abi::Service {
    let (total_count, totals) = self::totals((service.totals(), service.known_parts()), terms, totals);
    let mut compiled = abi::Service {
        syn_cookies: service.syn_cookies().map_or(Limit::UNUSED, enforced),
        total_count,
        totals,
        on_limit: service.on_limit() as u32,
        dscp: u16::from(service.dscp()),
        challenge: service.challenge() as u16,
        clients_group: if service.remembers_clients() { clients_group(service.name()) } else { NO_CLIENTS },
        ..abi::Service::UNUSED
    };
    compiled.per_source = set::compile(service.per_source(), terms, before, windows);
    compiled
}

/// The number that known clients of a service are remembered by, from its name: FNV-1a, cut to the 32 bits that a hash takes. Its lower seven bits can be told from a hash; they
/// are never 0, which stands for no service.
fn clients_group(name: &str) -> u64 {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    u64::from(if hash & 0x7f == 0 { hash | 1 } else { hash })
}

/// The compiled limits of a total, and how many places they take.
fn totals(
    (rates, known_parts): (&[Rate], u64),
    terms: SetTerms,
    before: Option<&[Total; MAX_TOTALS]>,
) -> (u64, [Total; MAX_TOTALS]) {
    let places = total::places(rates, before);
    let mut totals = abi::Service::UNUSED.totals;
    for (place, rate) in places.iter().zip(rates) {
        totals[*place] = total::compile(rate, terms.cpus, terms.lag_q8, known_parts);
    }
    (places.iter().max().map_or(0, |last| *last as u64 + 1), totals)
}

/// How many services, plus the policy itself, do more with refused packets than dropping them.
pub(super) fn lenient(policy: &Policy) -> u32 {
    let does_more =
        |service: &&Service| service.on_limit() != OnLimit::Drop || service.challenge() != Challenge::None;
    let services = policy.services().iter().filter(does_more).count();
    services as u32 + u32::from(policy.mode() == Mode::Monitor)
}

/// Whether the host translates the destination of the service, so that no cookie may be the answer to its SYNs.
fn is_translated(service: &Service, facts: &HostFacts) -> bool {
    facts.translated.iter().any(|name| name == service.name())
}

/// How many services answer SYNs with cookies. A service or policy on trial answers no SYNs.
pub(super) fn cookie_services(policy: &Policy, facts: &HostFacts) -> u32 {
    let on_trial = |service: &&Service| service.on_limit() == OnLimit::Monitor;
    let cookies = policy.services().iter().filter(|service| {
        service.syn_cookies().is_some() && !on_trial(service) && !is_translated(service, facts)
    });
    if facts.cookies && policy.mode() == Mode::Enforce { cookies.count() as u32 } else { 0 }
}
