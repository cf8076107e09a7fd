//! What holds for packets to one service.

use ratelimit_common::{
    abi::{
        Share, Total,
        service::{HOST_TOTAL, MAX_TOTALS, OnLimit, Party},
    },
    limit::{
        gcra::{self, Start},
        level::{self, Level},
        rate::Rate,
    },
};

use super::{
    Ledger, Setting,
    account::{limit_state, ms, unit_q8},
    newcomers::Newcomers,
    report::{LimitState, ServiceState, SynCookies},
    source::{Group, Source},
};
use crate::policy::Service;

/// The state of a service; `None` if it limits nothing. A packet has made as many entries as `before` says when it comes to this one.
pub(super) fn state<L: Ledger>(
    ledger: &L,
    setting: &Setting<'_>,
    source: &Source,
    party: Party,
    (newcomers, before): (&Newcomers<'_>, u64),
    service: &Service,
) -> Result<Option<ServiceState>, L::Error> {
    let Some(index) = setting.names.services.of(service.name()) else { return Ok(None) };
    let kernel = &setting.kernel.services[index];
    let number = index as u32;
    let per_source = if service.per_source().is_empty() {
        None
    } else {
        let group =
            Group { number: u64::from(number) + 1, set: &kernel.per_source, rates: service.per_source() };
        Some(source.account_in(ledger, setting, &group, newcomers, before)?)
    };
    let totals = if service.totals().is_empty() {
        Vec::new()
    } else {
        totals(ledger, setting, number, (service.totals(), &kernel.totals), party)?
    };
    let syn_cookies = syn_cookies(ledger, setting, number, service)?;
    if per_source.is_none() && totals.is_empty() && syn_cookies.is_none() {
        return Ok(None);
    }
    let on_limit = service.on_limit().name().to_owned();
    Ok(Some(ServiceState { service: service.name().to_owned(), on_limit, per_source, totals, syn_cookies }))
}

/// What is left of the total of the host for one party.
pub(super) fn host<L: Ledger>(
    ledger: &L,
    setting: &Setting<'_>,
    party: Party,
) -> Result<Vec<LimitState>, L::Error> {
    let rates = setting.policy.host().totals();
    if rates.is_empty() {
        return Ok(Vec::new());
    }
    totals(ledger, setting, HOST_TOTAL, (rates, &setting.kernel.host_totals), party)
}

/// What is left of the totals for one party: of the shared buckets, and of what CPUs have taken from them.
fn totals<L: Ledger>(
    ledger: &L,
    setting: &Setting<'_>,
    number: u32,
    (rates, kernel): (&[Rate], &[Total; MAX_TOTALS]),
    party: Party,
) -> Result<Vec<LimitState>, L::Error> {
    let words = ledger.total(number)?.tat_q8;
    let shares = ledger.shares(number)?;
    let mut totals = Vec::new();
    for rate in rates {
        // Places are kept from one policy to the next: there is one per meter, and their order says nothing.
        let place = kernel.iter().position(|total| total.limit.meter == rate.meter as u32);
        let Some((place, total)) = place.map(|place| (place, &kernel[place])) else { continue };
        let tolerance_q8 = match party {
            Party::Tracked | Party::Proven => total.limit.tolerance_q8,
            Party::Untracked => total.untracked_tolerance_q8,
        };
        let level = Level::of(words[place], tolerance_q8, setting.now_q8(), Start::FULL);
        let pools = || shares.iter().map(|share| share.pool_q8[Share::place(place, party)]);
        let price_q8 = unit_q8(&total.limit);
        // A CPU that has nothing takes a whole portion, or nothing.
        let wait_ns = level.wait_ns(price_q8.max(total.portion_q8));
        let refused = wait_ns > 0 && pools().all(|pool| pool < price_q8);
        let mut state = limit_state(rate, &total.limit, level);
        let held = pools().map(|pool| level::units(pool, &total.limit)).sum::<u64>();
        state.left = (state.left + held).min(state.capacity);
        state.refused_for_ms = refused.then(|| ms(wait_ns));
        totals.push(state);
    }
    Ok(totals)
}

fn syn_cookies<L: Ledger>(
    ledger: &L,
    setting: &Setting<'_>,
    number: u32,
    service: &Service,
) -> Result<Option<SynCookies>, L::Error> {
    let Some(threshold) = service.syn_cookies() else { return Ok(None) };
    let until_q8 = ledger.syns(number)?.cookies_until_q8;
    let left_ns = gcra::ahead_q8(until_q8, setting.now_q8()) >> gcra::TIME_FRAC_BITS;
    let possible = setting.kernel.cookie_services > 0 && service.on_limit() != OnLimit::Monitor;
    let active_for_ms = (possible && left_ns > 0).then(|| ms(left_ns));
    Ok(Some(SynCookies { threshold: threshold.to_string(), active_for_ms }))
}
