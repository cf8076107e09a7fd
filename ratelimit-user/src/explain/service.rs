//! The state of one service: its limits per source, its totals, and its SYN cookies.

use ratelimit_common::{
    abi::{
        Share, Total,
        service::{HOST_TOTAL, MAX_TOTALS, NO_SERVICE, OnLimit, Party},
    },
    limit::{
        gcra::{self, Start},
        level::{self, Level},
        rate::Rate,
    },
};

use super::{
    ExplainContext,
    record::ReadRecord,
    refusals::Refusals,
    remembered::{Remembered, Row},
    report::{LimitState, ServiceState, SynCookies},
    source::{Group, Source},
    source_state::{Wait, limit_state, ms},
};
use crate::policy::Service;

/// The state of a service; `None` if it has no limits.
pub(super) fn state<R: Remembered>(
    record: &ReadRecord<'_, R>,
    setting: &ExplainContext<'_>,
    source: &Source,
    party: Party,
    refusals: &Refusals,
    wait: &Wait<'_>,
    service: &Service,
) -> Option<ServiceState> {
    let index = setting.names.services.of(service.name())?;
    let kernel = &setting.kernel.services[index];
    let number = index as u32;
    let per_source = group(setting, service.name())
        .map(|group| source.account_in(record, setting, &group, refusals, wait));
    let totals = if service.totals().is_empty() {
        Vec::new()
    } else {
        totals(record, setting, number, (service.totals(), &kernel.totals), party, wait)
    };
    let syn_cookies = syn_cookies(record, setting, number, service);
    if per_source.is_none() && totals.is_empty() && syn_cookies.is_none() {
        return None;
    }
    let on_limit = service.on_limit().name().to_owned();
    Some(ServiceState { service: service.name().to_owned(), on_limit, per_source, totals, syn_cookies })
}

/// The limits of a service per source; `None` if it has none.
pub(super) fn group<'p>(setting: &ExplainContext<'p>, name: &str) -> Option<Group<'p>> {
    let index = setting.names.services.of(name)?;
    let service = setting.policy.services().iter().find(|service| service.name() == name)?;
    let set = &setting.kernel.services[index].per_source;
    (!service.per_source().is_empty()).then(|| Group {
        number: index as u64 + 1,
        service: Some(service.name()),
        set,
        rates: service.per_source(),
    })
}

/// What is left of the totals of the host for one party.
pub(super) fn host<R: Remembered>(
    record: &ReadRecord<'_, R>,
    setting: &ExplainContext<'_>,
    party: Party,
    wait: &Wait<'_>,
) -> Vec<LimitState> {
    let rates = setting.policy.host().totals();
    if rates.is_empty() {
        return Vec::new();
    }
    totals(record, setting, HOST_TOTAL, (rates, &setting.kernel.host_totals), party, wait)
}

/// What is left of totals for one party: in the shared buckets, and in what CPUs hold of them.
pub(super) fn totals<R: Remembered>(
    record: &ReadRecord<'_, R>,
    setting: &ExplainContext<'_>,
    number: u32,
    (rates, kernel): (&[Rate], &[Total; MAX_TOTALS]),
    party: Party,
    wait: &Wait<'_>,
) -> Vec<LimitState> {
    let packets_for = if number == HOST_TOTAL { NO_SERVICE } else { number + 1 };
    let words = record.place(Row::Total(number));
    let shares = record.shares(number);
    let mut totals = Vec::new();
    for rate in rates {
        // Places are kept from one policy to the next: there is one per meter, and their order means nothing.
        let place = kernel.iter().position(|total| total.limit.meter == rate.meter as u32);
        let Some((place, total)) = place.map(|place| (place, &kernel[place])) else { continue };
        let tolerance_q8 = match party {
            Party::Tracked | Party::Proven => total.limit.tolerance_q8,
            Party::Untracked => total.untracked_tolerance_q8,
        };
        let level = Level::of(words[place], tolerance_q8, setting.now_q8(), Start::FULL);
        let pools = || shares.iter().map(|share| share.pool_q8[Share::place(place, party)]);
        let mut state = limit_state(rate, &total.limit, level);
        let held = pools().map(|pool| level::units(pool, &total.limit)).sum::<u64>();
        state.left = (state.left + held).min(state.capacity);
        let of_parties = [Party::Tracked, Party::Untracked].map(|party| Share::place(place, party));
        let pools = of_parties.map(|place| (Row::Share(number), place)).to_vec();
        state.refused_for_ms = wait(packets_for, rate.meter, pools);
        totals.push(state);
    }
    totals
}

fn syn_cookies<R: Remembered>(
    record: &ReadRecord<'_, R>,
    setting: &ExplainContext<'_>,
    number: u32,
    service: &Service,
) -> Option<SynCookies> {
    let threshold = service.syn_cookies()?;
    let [_, until_q8, ..] = record.place(Row::Syn(number));
    let left_ns = gcra::ahead_q8(until_q8, setting.now_q8()) >> gcra::TIME_FRAC_BITS;
    // Cookies of a service may be off although the policy has them.
    let compiled = setting.kernel.services.get(number as usize)?;
    let possible = setting.kernel.cookie_services > 0
        && service.on_limit() != OnLimit::Monitor
        && compiled.syn_cookies.cost_fp != 0;
    let active_for_ms = (possible && left_ns > 0).then(|| ms(left_ns));
    Some(SynCookies { threshold: threshold.to_string(), active_for_ms })
}
