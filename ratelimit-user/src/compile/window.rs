//! Limits that are counted in windows, as the kernel reads them.

use ratelimit_common::{
    abi::{
        WindowLimit,
        policy::Policy,
        window::{MAX_WINDOWS, SET_WINDOWS, WindowKind},
    },
    limit::{manner::Algorithm, rate::Rate, window::Window},
};

/// All windows of a policy, each once. Sets refer to them by number.
#[derive(Debug, Default)]
pub(super) struct Windows(Vec<WindowLimit>);

impl Windows {
    /// The numbers of the windows of one set. In an order that does not depend on how they were written: what was counted stays with
    /// its place.
    pub(super) fn of_set(&mut self, rates: &[Rate], headroom: bool) -> [u8; 8] {
        let mut wanted: Vec<WindowLimit> = rates.iter().flat_map(|rate| compile(rate, headroom)).collect();
        wanted.sort_by_key(|one| (one.window.length_ns, one.meter, one.kind, one.soft, one.window.limit));
        let mut numbers = [0; 8];
        // Policies have been asked whether they fit.
        for (number, window) in numbers.iter_mut().zip(wanted).take(SET_WINDOWS) {
            *number = self.number(window);
        }
        numbers
    }

    fn number(&mut self, wanted: WindowLimit) -> u8 {
        let index = self.0.iter().position(|known| *known == wanted).unwrap_or_else(|| {
            self.0.push(wanted);
            self.0.len() - 1
        });
        index as u8 + 1
    }

    /// Puts them into the policy.
    pub(super) fn write(self, policy: &mut Policy) {
        policy.window_count = self.0.len().min(MAX_WINDOWS) as u64;
        for (place, window) in policy.windows.iter_mut().zip(self.0) {
            *place = window;
        }
    }
}

/// The windows that a rate takes: itself, and one for its margin.
fn compile(rate: &Rate, headroom: bool) -> Vec<WindowLimit> {
    let kind = match rate.manner.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => return Vec::new(),
        Algorithm::FixedWindow => WindowKind::Fixed,
        Algorithm::SlidingWindowWeighted => WindowKind::Weighted,
        // Rates with an algorithm for requests alone are refused when a policy is read.
        _ => WindowKind::Sliding,
    };
    let margin = rate.manner.margin(headroom);
    let parts = if margin == 0 { vec![(0, false)] } else { vec![(0, true), (margin, false)] };
    let limit = |(percent, soft): (u32, bool)| {
        // Rates of a policy have been checked when it was made.
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

/// Everything that words depend on: under another name they are not found, and begin afresh. The limit itself is not part of it.
fn name(limit: &WindowLimit) -> u64 {
    let parts = [limit.meter.into(), limit.kind.into(), limit.soft.into()];
    let parts = limit.window.layout().into_iter().chain(parts);
    // FNV-1a, folded to 32 bits.
    let hash = parts.flat_map(u64::to_le_bytes).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) << 32
}

/// Whether the words of one set mean something else, or nothing, under another.
pub(super) fn differ(before: (&Policy, &[u8; 8]), after: (&Policy, &[u8; 8])) -> bool {
    let names = |(policy, numbers): (&Policy, &[u8; 8])| {
        numbers.map(|number| match number {
            0 => 0,
            number => policy.windows[usize::from(number - 1) % MAX_WINDOWS].name,
        })
    };
    names(before) != names(after)
}
