//! What is left of the limits of many sources: a few look-ups for each, without running the packet path.

use std::net::IpAddr;

use ratelimit_common::{
    abi::{list::ALLOWED, service::Party},
    limit::rate::Rate,
};

use super::{
    ExplainContext,
    record::ReadRecord,
    remembered::Remembered,
    report::LimitState,
    service,
    source::{Group, Source},
    source_state::Wait,
    user,
};

/// Does not ask the packet path how long a limit refuses.
const NO_WAIT: &Wait<'static> = &|_, _, _| None;

/// What is left of each limit on packets of a source, with the owner of the limit: every source, a service for each of its
/// sources, or the user. Empty for a source on the allow list.
pub fn of_source<R: Remembered>(
    remembered: &R,
    setting: &ExplainContext<'_>,
    address: IpAddr,
    service: Option<&str>,
) -> Result<Vec<(&'static str, LimitState)>, R::Error> {
    let address = address.to_canonical();
    let record = ReadRecord::new(remembered, setting, address)?;
    if record.listed.is_some_and(|entry| entry.allowed == ALLOWED) {
        return Ok(Vec::new());
    }
    let source = Source::of(address, setting.kernel);
    let rates: Vec<Rate> = setting.policy.source().limits().iter().map(|limit| *limit.rate()).collect();
    let own = Group { number: 0, service: None, set: &setting.kernel.source.set, rates: &rates };
    let mut left: Vec<(&'static str, LimitState)> = Vec::new();
    left.extend(
        source.levels_in(&record, setting, &own, NO_WAIT).limits.into_iter().map(|limit| ("source", limit)),
    );
    if let Some(group) = service.and_then(|name| service::group(setting, name)) {
        let levels = source.levels_in(&record, setting, &group, NO_WAIT);
        left.extend(levels.limits.into_iter().map(|limit| ("service", limit)));
    }
    let user = user::state(&record, setting, address, NO_WAIT);
    left.extend(user.into_iter().flat_map(|user| user.limits).map(|limit| ("user", limit)));
    record.finish(left)
}

/// What is left of the totals of a service for tracked sources.
pub fn of_service<R: Remembered>(
    remembered: &R,
    setting: &ExplainContext<'_>,
    name: &str,
) -> Result<Vec<LimitState>, R::Error> {
    let record = ReadRecord::of_nobody(remembered, setting);
    let service = setting.policy.services().iter().find(|service| service.name() == name);
    let index = setting.names.services.of(name);
    let totals = match (service, index) {
        (Some(service), Some(index)) if !service.totals().is_empty() => {
            let kernel = &setting.kernel.services[index].totals;
            let rates = (service.totals(), kernel);
            service::totals(&record, setting, index as u32, rates, Party::Tracked, NO_WAIT)
        }
        _ => Vec::new(),
    };
    record.finish(totals)
}
