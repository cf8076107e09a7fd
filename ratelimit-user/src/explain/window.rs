//! What is left of limits that are counted in windows.

use std::sync::atomic::AtomicU64;

use ratelimit_common::{
    abi::{
        EntryKey, LimitSet, WindowLimit, WindowState,
        window::{MAX_WINDOWS, SET_WINDOWS, WindowKind},
    },
    limit::{
        rate::Rate,
        window::{fixed, sliding, sliding::SUB_WINDOWS, weighted},
    },
};

use super::{
    Ledger, Setting,
    account::{counts_every_packet, ms},
    report::LimitState,
    source::{Group, Source},
};

/// The windows of a source.
pub(super) struct Windows {
    pub(super) states: Vec<LimitState>,
    /// Whether one of them is to be made for the next packet, of the smallest kind that is counted at all. A soft one refuses nothing, not
    /// even for want of room.
    pub(super) wanted: bool,
}

/// The windows of one source in a group.
pub(super) fn of_source<L: Ledger>(
    ledger: &L,
    setting: &Setting<'_>,
    source: &Source,
    group: &Group<'_>,
) -> Result<Windows, L::Error> {
    let plain = group.rates.iter().any(|rate| counts_every_packet(rate.meter as u32));
    let mut wanted = false;
    let states = states(setting, group.set, group.rates, |place, limit| {
        let name = limit.name | (place as u64) << 16 | group.number;
        let state = ledger.window(&EntryKey { hi: source.key.hi, lo: source.key.lo, group: name })?;
        let applies = !plain || counts_every_packet(u32::from(limit.meter));
        wanted |= state.is_none() && limit.soft == 0 && applies;
        Ok(state.unwrap_or(WindowState::FRESH))
    })?;
    Ok(Windows { states, wanted })
}

/// The windows of a user.
pub(super) fn of_user<L: Ledger>(
    ledger: &L,
    setting: &Setting<'_>,
    user: u32,
    set: &LimitSet,
    rates: &[Rate],
) -> Result<Vec<LimitState>, L::Error> {
    states(setting, set, rates, |place, _| ledger.user_window(user * SET_WINDOWS as u32 + place as u32))
}

fn states<E>(
    setting: &Setting<'_>,
    set: &LimitSet,
    rates: &[Rate],
    mut words: impl FnMut(usize, &WindowLimit) -> Result<WindowState, E>,
) -> Result<Vec<LimitState>, E> {
    let mut states = Vec::new();
    for rate in rates.iter().filter(|rate| rate.manner.algorithm.is_window()) {
        let Ok(window) = rate.window(0) else { continue };
        let place = (0..SET_WINDOWS).find_map(|place| {
            let index = usize::from(set.windows[place].checked_sub(1)?) % MAX_WINDOWS;
            let limit = &setting.kernel.windows[index];
            (limit.window == window && limit.meter == rate.meter as u16).then_some((place, limit))
        });
        let Some((place, limit)) = place else { continue };
        states.push(state(rate, limit, &words(place, limit)?, setting.now_ns));
    }
    Ok(states)
}

fn state(rate: &Rate, limit: &WindowLimit, state: &WindowState, now_ns: u64) -> LimitState {
    let window = &limit.window;
    let length_ns = window.length_ns.max(1);
    let rest_ns = length_ns - now_ns % length_ns;
    // Until nothing of it counts any more.
    let (used, full_ns) = match limit.kind {
        kind if kind == WindowKind::Fixed as u16 => (fixed::used(state.words[0], window, now_ns), rest_ns),
        kind if kind == WindowKind::Weighted as u16 => {
            (weighted::used(state.words[0], window, now_ns), rest_ns + length_ns)
        }
        _ => {
            let words = state.words.map(AtomicU64::new);
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
