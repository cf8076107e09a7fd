//! What becomes of the next packet, from everything that is known.

use ratelimit_common::abi::{
    ListEntry, Meter, Mode, OnLimit, Reason, Verdict,
    list::{ALLOWED, FOREVER_NS},
};

use super::{
    Setting,
    account::ms,
    report::{Account, Explanation, LimitState, Refusal},
};

/// In place of a meter: all packets.
const EVERY_PACKET: &str = Meter::Packets.name();

/// Fills in what refuses packets now, and the verdict. `entry` is what the lists answer.
pub(super) fn conclude(explanation: &mut Explanation, entry: Option<&ListEntry>, setting: &Setting<'_>) {
    let monitor = setting.policy.mode() == Mode::Monitor;
    if entry.is_some_and(|entry| entry.allowed == ALLOWED) {
        explanation.verdict = Verdict::Pass.name().to_owned();
        explanation.reason = Reason::Allowed.name().to_owned();
        return;
    }
    let mut refusals = Vec::new();
    if let Some(entry) = entry.filter(|entry| entry.blocked_until_ns > setting.now_ns) {
        let left_ns = entry.blocked_until_ns - setting.now_ns;
        let for_ms = (entry.blocked_until_ns != FOREVER_NS).then(|| ms(left_ns));
        refusals.push(Refusal { for_ms, ..refusal(Reason::Blocked, EVERY_PACKET, 0) });
    }
    refusals.extend(of_account(&explanation.own));
    if let Some(user) = &explanation.user {
        refusals.extend(user.limits.iter().filter_map(|limit| of_limit(limit, |_| Reason::LimitUser)));
    }
    // A prefix is charged for what the source is charged for.
    let applies_to = applies_to(&explanation.own.limits);
    let prefixes = explanation.prefixes.iter().filter_map(|prefix| prefix.refused_for_ms);
    refusals.extend(prefixes.map(|for_ms| refusal(Reason::LimitPrefix, applies_to, for_ms)));
    refusals.extend(explanation.host.iter().filter_map(|limit| of_limit(limit, |_| Reason::HostTotal)));
    for service in &explanation.services {
        let account = service.per_source.iter().flat_map(of_account);
        let totals = service.totals.iter().filter_map(|limit| of_limit(limit, |_| Reason::ServiceTotal));
        refusals.extend(account.chain(totals).map(|refusal| Refusal {
            service: Some(service.service.clone()),
            waived: service.on_limit == OnLimit::Monitor.name(),
            ..refusal
        }));
    }
    for refusal in &mut refusals {
        refusal.waived |= monitor;
    }
    let first = refusals.iter().find(|one| one.service.is_none() && one.applies_to == EVERY_PACKET);
    let (verdict, reason) = match first {
        None => (Verdict::Pass.name(), Reason::Conforming.name()),
        Some(refusal) if refusal.waived => ("would_drop", refusal.reason.as_str()),
        Some(refusal) => (Verdict::Drop.name(), refusal.reason.as_str()),
    };
    explanation.verdict = verdict.to_owned();
    explanation.reason = reason.to_owned();
    explanation.refusals = refusals;
}

/// A negative entry stands for the limits behind it: it is asked first, and for every packet.
fn of_account(account: &Account) -> Vec<Refusal> {
    let mut refusals: Vec<Refusal> = Vec::new();
    if let Some(denied) = &account.denied {
        let reason = denied.reason.clone();
        refusals.push(Refusal { reason, ..refusal(Reason::LimitPackets, EVERY_PACKET, denied.for_ms) });
    }
    for limit in account.limits.iter().filter_map(|limit| of_limit(limit, reason)) {
        if refusals.iter().all(|known| known.reason != limit.reason) {
            refusals.push(limit);
        }
    }
    if refusals.is_empty()
        && let Some(for_ms) = account.no_room_for_ms
    {
        refusals.push(refusal(Reason::NewSourceBudget, applies_to(&account.limits), for_ms));
    }
    refusals
}

fn of_limit(limit: &LimitState, reason: impl Fn(&LimitState) -> Reason) -> Option<Refusal> {
    Some(refusal(reason(limit), applies_to(std::slice::from_ref(limit)), limit.refused_for_ms?))
}

/// Which packets limits count: every one, unless all of them count SYNs or fragments alone.
fn applies_to(limits: &[LimitState]) -> &str {
    let every =
        |limit: &LimitState| [Meter::Packets.name(), Meter::Bytes.name()].contains(&limit.meter.as_str());
    match limits.first() {
        Some(first) if !limits.iter().any(every) => &first.meter,
        _ => EVERY_PACKET,
    }
}

/// The reason of a limit's refusal.
fn reason(limit: &LimitState) -> Reason {
    match Meter::ALL.into_iter().find(|meter| meter.name() == limit.meter) {
        Some(Meter::Bytes) => Reason::LimitBytes,
        Some(Meter::Syns) => Reason::LimitSyns,
        Some(Meter::Fragments) => Reason::LimitFragments,
        Some(Meter::Packets) | None => Reason::LimitPackets,
    }
}

fn refusal(reason: Reason, applies_to: &str, for_ms: u64) -> Refusal {
    Refusal {
        reason: reason.name().to_owned(),
        applies_to: applies_to.to_owned(),
        service: None,
        for_ms: Some(for_ms),
        waived: false,
    }
}
