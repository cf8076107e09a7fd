//! Limits that are counted in windows, in the form that the kernel program reads.

use std::{collections::BTreeSet, sync::atomic::AtomicU64};

use ratelimit_common::{
    abi::{
        LimitSet, Meter, WindowLimit, WindowState,
        policy::Policy,
        window::{MAX_WINDOWS, SET_WINDOWS, WindowKind},
    },
    limit::{
        manner::{Algorithm, Manner},
        rate::{Period, Rate},
        window::{
            Window, WindowOutcome, fixed,
            sliding::{self, Refusal, SUB_WINDOWS},
            weighted,
        },
    },
};

/// The parts of the key's third word for what a source has used of a window.
const NAME_BITS: u64 = !0 << 32;
const PLACE_AT: u32 = 16;
const SERVICE_BITS: u64 = 0xffff;

/// Fragments that no source or user sends in a month, and few enough to be counted.
const NOBODYS_AMOUNT: u64 = 1 << 42;

/// All windows of a policy, each once. Sets refer to them by number.
#[derive(Debug)]
pub(super) struct Windows<'b> {
    of_policy: Vec<WindowLimit>,
    /// The policy in force, whose sets refer to its own windows.
    before: Option<&'b Policy>,
    /// Whether a place of a set may be left without a window: an empty place needs a number too.
    leaves_places: bool,
}

impl<'b> Windows<'b> {
    /// No windows yet. `different` is how many different ones the policy will have.
    pub(super) fn after(before: Option<&'b Policy>, different: usize) -> Self {
        Self { of_policy: Vec::new(), before, leaves_places: different < MAX_WINDOWS }
    }

    /// The numbers of the windows of one set, by place. `before` are the numbers of the set that it replaces: what was counted stays at its place, so a window keeps its
    /// place whatever windows come and go beside it. Otherwise the order does not depend on the order in the file.
    pub(super) fn of_set(&mut self, rates: &[Rate], headroom: bool, before: Option<&[u8; 8]>) -> [u8; 8] {
        let mut wanted: Vec<WindowLimit> = rates.iter().flat_map(|rate| compile(rate, headroom)).collect();
        wanted.sort_by_key(|one| (one.window.length_ns, one.meter, one.kind, one.soft, one.window.limit));
        // A policy has been checked for room, so nothing is cut off.
        wanted.truncate(SET_WINDOWS);
        let old = match (self.before, before.filter(|_| self.leaves_places)) {
            (Some(policy), Some(numbers)) => counted(policy, numbers),
            _ => [None; SET_WINDOWS],
        };
        let places = places(&wanted, &old);
        let mut numbers = [0; 8];
        // The kernel reads numbers up to the first 0.
        let behind_the_last = places.iter().max().map_or(0, |last| last + 1);
        for (place, number) in numbers.iter_mut().enumerate().take(behind_the_last) {
            let here = places.iter().position(|one| *one == place).map_or_else(nobodys, |at| wanted[at]);
            *number = self.number(here);
        }
        numbers
    }

    fn number(&mut self, wanted: WindowLimit) -> u8 {
        let index = self.of_policy.iter().position(|known| *known == wanted).unwrap_or_else(|| {
            self.of_policy.push(wanted);
            self.of_policy.len() - 1
        });
        index as u8 + 1
    }

    /// Writes the windows into the policy.
    pub(super) fn write(self, policy: &mut Policy) {
        policy.window_count = self.of_policy.len().min(MAX_WINDOWS) as u64;
        for (place, window) in policy.windows.iter_mut().zip(self.of_policy) {
            *place = window;
        }
    }
}

/// The place of each window: where the same window was before, or else one with another limit, or else a place that had none, because the policy in force still counts at
/// the others.
fn places(wanted: &[WindowLimit], old: &[Option<WindowLimit>; SET_WINDOWS]) -> Vec<usize> {
    let mut places: Vec<Option<usize>> = vec![None; wanted.len()];
    let mut free: BTreeSet<usize> = (0..SET_WINDOWS).collect();
    let mut settle = |like: &dyn Fn(&WindowLimit, Option<WindowLimit>) -> bool| {
        for (window, place) in wanted.iter().zip(&mut places).filter(|(_, place)| place.is_none()) {
            *place = free.iter().find(|place| like(window, old[**place])).copied();
            free.retain(|one| Some(*one) != *place);
        }
    };
    settle(&|window, old| old == Some(*window));
    settle(&|window, old| old.is_some_and(|old| old.name == window.name));
    settle(&|_, old| old.is_none());
    settle(&|_, _| true);
    places.into_iter().flatten().collect()
}

/// The windows of a set by place.
fn counted(policy: &Policy, numbers: &[u8; 8]) -> [Option<WindowLimit>; SET_WINDOWS] {
    std::array::from_fn(|place| {
        let index = usize::from(numbers[place].checked_sub(1)?) % MAX_WINDOWS;
        Some(policy.windows[index]).filter(|window| window.name != nobodys().name)
    })
}

/// The windows of a set, each with its place.
pub fn of_set(policy: &Policy, set: &LimitSet) -> impl Iterator<Item = (usize, WindowLimit)> {
    counted(policy, &set.windows).into_iter().enumerate().filter_map(|(place, limit)| Some((place, limit?)))
}

/// The third word of the key of what a source has used of a window (name, place and service), with the place that a window of this name has in `policy`,
/// if it has one.
pub fn group_under(policy: &Policy, group: u64) -> u64 {
    let (name, place, service) = (group & NAME_BITS, (group >> PLACE_AT) as u16, group & SERVICE_BITS);
    let set = policy.service(service as u32).map_or(&policy.source.set, |(_, service)| &service.per_source);
    let mut places: Vec<usize> =
        of_set(policy, set).filter(|(_, limit)| limit.name == name).map(|(place, _)| place).collect();
    places.sort_by_key(|one| *one != usize::from(place));
    let place = places.first().map_or(u64::from(place), |place| *place as u64);
    name | place << PLACE_AT | service
}

/// Whether the third word of a key is of one of these services, which are given by index in order. That holds for windows, and for buckets, whose
/// other parts are above these bits too.
pub fn is_of_service(group: u64, services: &[u32]) -> bool {
    let number = (group & SERVICE_BITS) as u32;
    number.checked_sub(1).is_some_and(|index| services.binary_search(&index).is_ok())
}

/// The count of one window among the counts at a user's places, if the policy that they were counted under cannot be read any more: the one at the window's place, or
/// else the first that has a count for it. A word has the number of its period in it, so words of windows of other lengths have no count for this one.
pub fn words_of(limit: &WindowLimit, own: usize, all: &[WindowState], now_ns: u64) -> Option<WindowState> {
    let mut places: Vec<usize> = (0..all.len()).collect();
    places.sort_by_key(|place| *place != own);
    let says_something = |state: &&WindowState| {
        let first = state.words[0];
        let (is_late, used) = match limit.kind {
            kind if kind == WindowKind::Fixed as u16 => (
                fixed::take(first, &limit.window, now_ns, 1) == WindowOutcome::Late,
                fixed::used(first, &limit.window, now_ns),
            ),
            kind if kind == WindowKind::Weighted as u16 => (
                weighted::take(first, &limit.window, now_ns, 1) == WindowOutcome::Late,
                weighted::used(first, &limit.window, now_ns),
            ),
            _ => {
                let words = state.words.map(AtomicU64::new);
                let answer = sliding::evaluate::<SUB_WINDOWS>(&words, &limit.window, now_ns, 1);
                let words = state.words.map(AtomicU64::new);
                (
                    matches!(answer, Err(Refusal::Late)),
                    sliding::used::<SUB_WINDOWS>(&words, &limit.window, now_ns),
                )
            }
        };
        !is_late && used > 0
    };
    places.into_iter().map(|place| &all[place]).find(says_something).copied()
}

/// A window for a place that has none. It refuses nothing, and counts only fragments, which are rare. No policy can have a limit of its name: packets
/// are not limited by the month.
fn nobodys() -> WindowLimit {
    let rate = Rate {
        meter: Meter::Fragments,
        amount: NOBODYS_AMOUNT,
        period: Period::Month,
        burst: NOBODYS_AMOUNT,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    let window = Window::fixed(&rate).unwrap_or(Window::UNUSED);
    let (meter, kind) = (Meter::Fragments as u16, WindowKind::Fixed as u16);
    let mut limit = WindowLimit { window, name: 0, meter, kind, soft: 1 };
    limit.name = name(&limit);
    limit
}

/// The windows of a rate: one for the limit, and one for its margin if it has one.
fn compile(rate: &Rate, headroom: bool) -> Vec<WindowLimit> {
    let kind = match rate.manner.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => return Vec::new(),
        Algorithm::FixedWindow => WindowKind::Fixed,
        Algorithm::SlidingWindowWeighted => WindowKind::Weighted,
        // Other algorithms are for requests, and are refused for packets when a policy is read.
        _ => WindowKind::Sliding,
    };
    let margin = rate.manner.margin(headroom);
    let parts = if margin == 0 { vec![(0, false)] } else { vec![(0, true), (margin, false)] };
    let limit = |(percent, soft): (u32, bool)| {
        // Rates of a policy are checked already, so the fallback is never used.
        let window = rate.window(percent).unwrap_or(Window::UNUSED);
        let mut limit = WindowLimit {
            window,
            name: 0,
            meter: rate.meter as u16,
            kind: kind as u16,
            soft: u32::from(soft),
        };
        limit.name = name(&limit);
        limit
    };
    parts.into_iter().map(limit).collect()
}

/// A hash of everything that the meaning of words depends on: under another name they are not found, and counting starts from zero. The amount is not part of it.
fn name(limit: &WindowLimit) -> u64 {
    let parts = [limit.meter.into(), limit.kind.into(), limit.soft.into()];
    let parts = limit.window.layout().into_iter().chain(parts);
    // FNV-1a, folded to 32 bits.
    let hash = parts.flat_map(u64::to_le_bytes).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) << 32
}

/// The places of a set whose words have another meaning, or none, under the policy before: counting starts from zero there.
pub(super) fn afresh(before: (&Policy, &[u8; 8]), after: (&Policy, &[u8; 8])) -> Vec<usize> {
    let [old, new] = [before, after].map(|(policy, numbers)| counted(policy, numbers));
    let differs = |place: &usize| {
        let [old, new] = [old, new].map(|windows| windows[*place].map(|window| window.name));
        new.is_some() && new != old
    };
    (0..SET_WINDOWS).filter(differs).collect()
}
