//! What is left of limits that are counted in windows.

use std::sync::atomic::AtomicU64;

use ratelimit_common::{
    abi::{
        LimitSet, WindowLimit,
        window::{MAX_WINDOWS, SET_WINDOWS, WindowKind},
    },
    limit::{
        rate::Rate,
        window::{fixed, sliding, sliding::SUB_WINDOWS, weighted},
    },
};

use super::{
    ExplainContext,
    record::ReadRecord,
    remembered::{Remembered, Row, RowWords},
    report::LimitState,
    source::{Group, Source},
    source_state::ms,
};

/// The windows of one source in a group.
pub(super) fn of_source<R: Remembered>(
    record: &ReadRecord<'_, R>,
    setting: &ExplainContext<'_>,
    source: &Source,
    group: &Group<'_>,
) -> Vec<LimitState> {
    states(setting, group.set, group.rates, |place, limit| {
        let name = limit.name | (place as u64) << 16 | group.number;
        record.place(Row::Window([source.key.hi, source.key.lo, name]))
    })
}

/// The windows of the user whose address it is.
pub(super) fn of_user<R: Remembered>(
    record: &ReadRecord<'_, R>,
    setting: &ExplainContext<'_>,
    user: u32,
    rates: &[Rate],
) -> Vec<LimitState> {
    states(setting, &record.user_limits, rates, |place, _| {
        record.place(Row::UserWindow(user * SET_WINDOWS as u32 + place as u32))
    })
}

fn states(
    setting: &ExplainContext<'_>,
    set: &LimitSet,
    rates: &[Rate],
    words: impl Fn(usize, &WindowLimit) -> RowWords,
) -> Vec<LimitState> {
    let mut states = Vec::new();
    for rate in rates.iter().filter(|rate| rate.manner.algorithm.is_window()) {
        let Ok(window) = rate.window(0) else { continue };
        let place = (0..SET_WINDOWS).find_map(|place| {
            let index = usize::from(set.windows[place].checked_sub(1)?) % MAX_WINDOWS;
            let limit = &setting.kernel.windows[index];
            (limit.window == window && limit.meter == rate.meter as u16).then_some((place, limit))
        });
        let Some((place, limit)) = place else { continue };
        states.push(state(rate, limit, words(place, limit), setting.now_ns));
    }
    states
}

fn state(rate: &Rate, limit: &WindowLimit, words: RowWords, now_ns: u64) -> LimitState {
    let window = &limit.window;
    let length_ns = window.length_ns.max(1);
    let rest_ns = length_ns - now_ns % length_ns;
    // Until nothing of it counts any more.
    let (used, full_ns) = match limit.kind {
        kind if kind == WindowKind::Fixed as u16 => (fixed::used(words[0], window, now_ns), rest_ns),
        kind if kind == WindowKind::Weighted as u16 => {
            (weighted::used(words[0], window, now_ns), rest_ns + length_ns)
        }
        _ => {
            let words = words.map(AtomicU64::new);
            let sub_windows = (SUB_WINDOWS as u64 - 1) * length_ns;
            (sliding::used::<SUB_WINDOWS>(&words, window, now_ns), rest_ns + sub_windows)
        }
    };
    let capacity = window.limit_amount();
    let left = capacity.saturating_sub(used);
    LimitState {
        rate: rate.to_string(),
        meter: rate.meter.name().to_owned(),
        burst: rate.amount,
        capacity,
        left,
        full_in_ms: if used == 0 { 0 } else { ms(full_ns) },
        refused_for_ms: (left == 0).then(|| ms(full_ns)),
        leased: None,
    }
}
