//! APIs in words.

use std::{cmp::Reverse, time::Duration};

use super::{Fields, followed, restarted};
use crate::policy::{Api, Escalation, KeyPart, NONE, OnRefusal, RequestLimit, RequestPolicy, Reserved};

/// What holds for all of them: what there is room for is laid out at the start.
pub(super) fn of_requests(requests: &RequestPolicy) -> Fields {
    let threads = requests.threads.map_or_else(|| "one per CPU".to_owned(), |threads| threads.to_string());
    restarted([("keys", requests.keys.to_string()), ("threads", threads)])
}

pub(super) fn of_api(api: &Api) -> Fields {
    let mut fields = followed([
        ("on_limit", on_limit(api.on_limit)),
        ("sharing", api.sharing.name().to_owned()),
        ("without_store", api.without_store.name().to_owned()),
        ("ipv4_prefix", api.ipv4_prefix.to_string()),
        ("ipv6_prefix", api.ipv6_prefix.to_string()),
    ]);
    match &api.login {
        None => {
            let key: Vec<&str> = api.key.iter().map(KeyPart::name).collect();
            fields.extend(followed([("key", key.join(", ")), ("limits", in_order(&api.limits))]));
        }
        Some(login) => fields.extend(followed([
            ("preset", "login".to_owned()),
            ("per_ip", in_order(&login.per_ip)),
            ("per_user_and_ip", in_order(&login.per_user_and_ip)),
            ("per_user", in_order(&login.per_user)),
            ("known_for", time(login.known_for)),
        ])),
    }
    for (whose, lists) in [("plans", &api.by_plan), ("users", &api.by_user)] {
        for (name, limits) in lists {
            fields.insert(format!("{whose}.{name}").into(), (given(limits), false));
        }
    }
    if api.reserved != Reserved::default() {
        let Reserved { critical, normal } = api.reserved;
        fields.extend(followed([("reserved", format!("critical {critical}%, normal {normal}%"))]));
    }
    if let Some(escalation) = &api.escalation {
        fields.extend(followed([("escalate", escalate(escalation))]));
    }
    fields
}

/// Limits of a list, the slowest first, however they stand in the file.
pub(super) fn in_order(limits: &[RequestLimit]) -> String {
    let mut limits: Vec<&RequestLimit> = limits.iter().collect();
    limits.sort_by_key(|limit| (Reverse(limit.rate.period), limit.rate.amount, limit.to_string()));
    let words: Vec<String> = limits.iter().map(ToString::to_string).collect();
    if words.is_empty() { NONE.to_owned() } else { words.join(", ") }
}

/// Limits of a list that counts instead of another: where there is none at all, that is another thing than an empty one.
pub(super) fn given(limits: &[RequestLimit]) -> String {
    if limits.is_empty() { "no limits".to_owned() } else { in_order(limits) }
}

fn on_limit(on_limit: OnRefusal) -> String {
    match on_limit {
        OnRefusal::Refuse => "refuse".to_owned(),
        OnRefusal::Delay(most) => format!("delay {}", time(most)),
        OnRefusal::Deprioritise => "deprioritise".to_owned(),
    }
}

fn escalate(escalation: &Escalation) -> String {
    let Escalation { above, lasting, block_for, ipv4_prefix, ipv6_prefix } = escalation;
    let (amount, period) = (above.amount, above.period.name());
    let (lasting, block_for) = (time(*lasting), time(*block_for));
    format!("above {amount}/{period} for {lasting}: block {block_for} of /{ipv4_prefix} or /{ipv6_prefix}")
}

/// A time as it is typed, in the largest unit that it is a whole number of.
fn time(time: Duration) -> String {
    let ms = time.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let unit = units.into_iter().find(|(length, _)| ms.is_multiple_of(*length));
    unit.map_or_else(|| format!("{ms}ms"), |(length, name)| format!("{}{name}", ms / length))
}
