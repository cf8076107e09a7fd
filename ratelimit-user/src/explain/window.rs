//! What is left of limits that are counted in windows.

use std::sync::atomic::AtomicU64;

use ratelimit_common::{
    abi::{
        LimitSet, Meter, WindowLimit,
        service::NO_SERVICE,
        window::{MAX_WINDOWS, SET_WINDOWS, WindowKind},
    },
    limit::{
        rate::Rate,
        window::{Window, fixed, sliding, sliding::SUB_WINDOWS, weighted},
    },
};

use super::{
    ExplainContext,
    record::ReadRecord,
    remembered::{Remembered, Row, RowWords},
    report::LimitState,
    scratch::{ScratchWord, all_words},
    source::{Group, Source},
    source_state::{Wait, ms},
};

/// The state of the windows of one source in a group.
pub(super) fn of_source<R: Remembered>(
    record: &ReadRecord<'_, R>,
    setting: &ExplainContext<'_>,
    source: &Source,
    group: &Group<'_>,
    wait: &Wait<'_>,
) -> Vec<LimitState> {
    let row = |place: usize, limit: &WindowLimit| {
        let name = limit.name | (place as u64) << 16 | group.number;
        Row::Window([source.key.hi, source.key.lo, name])
    };
    states(record, setting, (group.set, group.rates), row, |meter, words| {
        wait(group.number as u32, meter, words)
    })
}

/// The state of the windows of a user.
pub(super) fn of_user<R: Remembered>(
    record: &ReadRecord<'_, R>,
    setting: &ExplainContext<'_>,
    user: u32,
    rates: &[Rate],
    wait: &Wait<'_>,
) -> Vec<LimitState> {
    let row = |place: usize, _: &WindowLimit| Row::UserWindow(user * SET_WINDOWS as u32 + place as u32);
    states(record, setting, (&record.user_limits, rates), row, |meter, words| wait(NO_SERVICE, meter, words))
}

fn states<R: Remembered>(
    record: &ReadRecord<'_, R>,
    setting: &ExplainContext<'_>,
    (set, rates): (&LimitSet, &[Rate]),
    row: impl Fn(usize, &WindowLimit) -> Row,
    wait: impl Fn(Meter, Vec<ScratchWord>) -> Option<u64>,
) -> Vec<LimitState> {
    // All windows of the set that count a rate with these window parameters.
    let counted_in = |window: Window, rate: &Rate| {
        let meter = rate.meter as u16;
        (0..SET_WINDOWS).filter_map(move |place| {
            let index = usize::from(set.windows[place].checked_sub(1)?) % MAX_WINDOWS;
            let limit = &setting.kernel.windows[index];
            (limit.window == window && limit.meter == meter).then_some((place, limit))
        })
    };
    let mut states = Vec::new();
    for rate in rates.iter().filter(|rate| rate.manner.algorithm.is_window()) {
        let Ok(window) = rate.window(0) else { continue };
        let Some((place, limit)) = counted_in(window, rate).next() else { continue };
        let mut state = state(rate, limit, record.place(row(place, limit)), setting.now_ns);
        // Packets above a soft limit are refused by the window of its margin.
        let margin =
            rate.window(rate.manner.margin(true)).into_iter().flat_map(|wide| counted_in(wide, rate));
        let all = margin.chain([(place, limit)]).flat_map(|(place, limit)| all_words(row(place, limit)));
        state.refused_for_ms = wait(rate.meter, all.collect());
        states.push(state);
    }
    states
}

fn state(rate: &Rate, limit: &WindowLimit, words: RowWords, now_ns: u64) -> LimitState {
    let window = &limit.window;
    let length_ns = window.length_ns.max(1);
    let rest_ns = length_ns - now_ns % length_ns;
    // The time until nothing that is counted now counts any more.
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
        refused_for_ms: None,
        leased: None,
    }
}
