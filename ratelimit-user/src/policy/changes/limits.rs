//! Differences between the limits of sources.

use ratelimit_common::abi::Meter;

use super::PolicyChange;
use crate::policy::NamedLimit;

/// Limits are compared by value: names number the limits of a meter by their position in the file, so they are no identity. Equal limits
/// cancel out; the others are paired, slowest first.
pub(super) fn limits(before: &[NamedLimit], after: &[NamedLimit]) -> Vec<PolicyChange> {
    let mut rows = Vec::new();
    for meter in Meter::ALL {
        let gone = only_in(before, after, meter);
        let come = only_in(after, before, meter);
        for at in 0..gone.len().max(come.len()) {
            let (old, new) = (gone.get(at), come.get(at));
            let Some(named) = old.or(new) else { continue };
            rows.push(PolicyChange {
                subject: format!("limit {}", named.name()),
                field: None,
                before: old.map(|limit| limit.rate().to_string()),
                after: new.map(|limit| limit.rate().to_string()),
                needs_restart: false,
            });
        }
    }
    rows
}

fn only_in<'a>(these: &'a [NamedLimit], those: &[NamedLimit], meter: Meter) -> Vec<&'a NamedLimit> {
    let absent = |limit: &&NamedLimit| those.iter().all(|other| other.rate() != limit.rate());
    let mut only: Vec<_> = these.iter().filter(|limit| limit.rate().meter == meter).filter(absent).collect();
    // The sort key: nanoseconds per 1000 units, so that slow limits come first in whatever period they are written.
    only.sort_by_key(|limit| {
        let rate = limit.rate();
        let price = u128::from(rate.period.ns()) * 1000 / u128::from(rate.amount.max(1));
        (std::cmp::Reverse(price), rate.burst)
    });
    only
}
