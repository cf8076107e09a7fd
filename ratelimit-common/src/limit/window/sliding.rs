//! Sliding window with sub-windows: K counters, of which the oldest counts in full although part of it has expired.
//!
//! ```text
//!             |<-------------- one real window --------------->|
//!   |......|######|######|######|######|######|######|######|##....|-->  time
//!     s-8    s-7    s-6    s-5    s-4    s-3    s-2    s-1     s
//!          all of these count, K = 8: the window is 7 of them  ^ now
//! ```
//!
//! A sub-window lasts 1/(K - 1) of the window, rounded up to a nanosecond, and sub-window `s` is counted in word `s mod K`.
//! A packet is admitted if the K latest sub-windows, with it, hold at most the limit.
//!
//! # Bound
//! **At most the limit in any real window**, both its ends included, with any number of CPUs. From below: a packet is
//! refused for the limit only if the K sub-windows that end with its own would hold more than the limit with it. So a sender that
//! keeps to the limit in every K/(K - 1) windows is never refused, and a sender that always sends gets at least the limit
//! in each of them: 7/8 of the rate for K = 8, 59/60 for K = 60.
//!
//! # Several CPUs at an edge
//! CPU A reads the clock just before an edge, B just after it. If B adds up the words and admits the last packet of the
//! limit, and A then charges the word of before the edge, both have admitted it. So a word can be *closed*:
//!
//! ```text
//!   open s-1 --- charge ---> open s-1 --- close ---> closed s-1 --- K - 1 sub-windows later ---> open s-1+K
//!    ^                                                 ^
//!   absent ----------------- close --------------------+        a closed word is never charged again
//! ```
//!
//! - Before a packet charges word s, it has seen each of the K - 1 words before it closed: it closes those that are not closed,
//!   and also the absent ones, as empty. Their sum can therefore not grow any more, and the exchange that charges
//!   word s proves that this last one has not grown either.
//! - A packet that finds its own word closed, or any of the words further ahead than expected, is late and refused.
//!
//! So let p be the packet of a real window that was charged last to the latest sub-window s of that window's packets.
//! All the others are in words s-K+1 to s, and p saw all of them: with p they are at most the limit.
//! No step relies on the order in which other words were read, so plain loads do.
//!
//! # Steps
//! 1 load for the word itself, and for each of the others one load and, only when a sub-window is opened, an exchange
//! that may be retried [`ATTEMPTS`] - 1 times; then up to [`ATTEMPTS`] exchanges to charge. When these run out, the packet is
//! refused. Refused packets of a flood write nothing once a sub-window's predecessors are closed.
//!
//! # Worked numbers
//! 700 packets/s, K = 8: sub-windows of 142.857143 ms. A source that sends 700 at once at 0.1 s is refused until 8 x 142.86 ms =
//! 1.143 s, when sub-window 0 leaves the sum; the exact log would admit it again at 1.1 s.

use super::Window;
use super::word::{Age, Slot, read, write};

/// Words of a source in the packet path: the window is seven sub-windows long.
pub const SUB_WINDOWS: usize = 8;

/// Exchanges that are tried on one word before a packet is refused.
pub const ATTEMPTS: usize = 4;

/// The words of one source, shared by all CPUs.
pub trait Words {
    /// The word at `slot`, which is below the K that [`take`] was called with.
    fn load(&self, slot: usize) -> u64;

    /// Stores `new` at `slot` in one step if the word there is `seen`; otherwise returns the word that is there.
    fn compare_exchange(&self, slot: usize, seen: u64, new: u64) -> Result<(), u64>;

    /// Returns the sum. In the kernel program the verifier is made to forget how the sum came about: it would otherwise check the rest once for each way.
    #[inline(always)]
    fn forget(&self, sum: u64) -> u64 {
        sum
    }
}

/// Why a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The window is used up.
    Limit,
    /// Another CPU has opened a later sub-window than the one this clock reading lies in.
    Late,
    /// Other CPUs changed the word too often.
    Contended,
}

/// A packet that conforms and is yet to be charged.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    slot: usize,
    index: u64,
    seen: u64,
    /// The sum of the closed words, which cannot change any more.
    others: u64,
    units: u64,
}

/// Charges a packet if it conforms.
#[inline(always)]
pub fn take<const K: usize>(
    words: &impl Words,
    window: &Window,
    now_ns: u64,
    amount: u64,
) -> Result<(), Refusal> {
    match evaluate::<K>(words, window, now_ns, amount) {
        Ok(charge) => charge.commit(words, window),
        Err(refusal) => Err(refusal),
    }
}

/// Whether a packet conforms; for packets that must conform to other limits too before any limit is charged.
#[inline(always)]
pub fn evaluate<const K: usize>(
    words: &impl Words,
    window: &Window,
    now_ns: u64,
    amount: u64,
) -> Result<Charge, Refusal> {
    const { assert!(K >= 2, "the current sub-window and at least one before it") };
    let index = window.index(now_ns);
    let slot = slot::<K>(index);
    let seen = words.load(slot);
    let count = match chargeable(seen, window, index) {
        Some(count) => words.forget(count),
        None => return Err(Refusal::Late),
    };
    let units = words.forget(window.units(amount));
    let mut others: u64 = 0;
    for back in 0..K as u64 {
        if back > 0 {
            // Window 0 has no window before it.
            let Some(earlier) = index.checked_sub(back) else { break };
            match close(words, window, self::slot::<K>(earlier), earlier) {
                Ok(count) => others = words.forget(others.saturating_add(count)),
                Err(refusal) => return Err(refusal),
            }
        }
        // Checked inside the loop: a packet over the limit need not read the other words.
        if others.saturating_add(count).saturating_add(units) > window.limit {
            return Err(Refusal::Limit);
        }
    }
    Ok(Charge { slot, index, seen, others, units })
}

impl Charge {
    /// Charges the packet, if it still conforms.
    #[inline(always)]
    pub fn commit(self, words: &impl Words, window: &Window) -> Result<(), Refusal> {
        let mut seen = self.seen;
        for _ in 0..ATTEMPTS {
            let count = match chargeable(seen, window, self.index) {
                Some(count) => count.saturating_add(self.units),
                None => return Err(Refusal::Late),
            };
            if self.others.saturating_add(count) > window.limit {
                return Err(Refusal::Limit);
            }
            let new = write(window, self.index, false, count);
            match words.compare_exchange(self.slot, seen, new) {
                Ok(()) => return Ok(()),
                Err(found) => seen = found,
            }
        }
        Err(Refusal::Contended)
    }
}

/// How much of the limit is used up, in the units of the meter, for people to read.
pub fn used<const K: usize>(words: &impl Words, window: &Window, now_ns: u64) -> u64 {
    let index = window.index(now_ns);
    let mut sum: u64 = 0;
    for back in 0..K as u64 {
        let Some(earlier) = index.checked_sub(back) else { break };
        let read = read(words.load(slot::<K>(earlier)), window, earlier);
        sum = sum.saturating_add(if matches!(read.age, Age::Same | Age::Ahead) { read.count } else { 0 });
    }
    sum << (window.shift & 63)
}

/// The word that counts a sub-window.
#[inline(always)]
const fn slot<const K: usize>(index: u64) -> usize {
    (index % K as u64) as usize
}

/// The count in a word, if the word may be charged for sub-window `index`.
#[inline(always)]
const fn chargeable(word: u64, window: &Window, index: u64) -> Option<u64> {
    match read(word, window, index) {
        Slot { age: Age::Ahead, .. } | Slot { age: Age::Same, marked: true, .. } => None,
        Slot { age: Age::Same, count, .. } => Some(count),
        _ => Some(0),
    }
}

/// Closes an earlier sub-window, so that it cannot be charged any more, and returns its count.
#[inline(always)]
fn close(words: &impl Words, window: &Window, slot: usize, earlier: u64) -> Result<u64, Refusal> {
    let mut seen = words.load(slot);
    for _ in 0..ATTEMPTS {
        let count = match read(seen, window, earlier) {
            Slot { age: Age::Ahead, .. } => return Err(Refusal::Late),
            Slot { age: Age::Same, marked: true, count } => return Ok(count),
            Slot { age: Age::Same, count, .. } => count,
            _ => 0,
        };
        match words.compare_exchange(slot, seen, write(window, earlier, true, count)) {
            Ok(()) => return Ok(count),
            Err(found) => seen = found,
        }
    }
    Err(Refusal::Contended)
}

// In the kernel program the words are in a map, which has its own implementation.
#[cfg(not(target_arch = "bpf"))]
impl<const K: usize> Words for [core::sync::atomic::AtomicU64; K] {
    fn load(&self, slot: usize) -> u64 {
        self[slot].load(core::sync::atomic::Ordering::Relaxed)
    }

    fn compare_exchange(&self, slot: usize, seen: u64, new: u64) -> Result<(), u64> {
        use core::sync::atomic::Ordering::{AcqRel, Relaxed};
        self[slot].compare_exchange(seen, new, AcqRel, Relaxed).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use core::sync::atomic::AtomicU64;

    use super::*;
    use crate::abi::Meter;
    use crate::limit::{manner::Manner, rate::Period, rate::Rate};

    const K: usize = SUB_WINDOWS;

    fn window(meter: Meter, amount: u64, period: Period) -> Window {
        Window::sliding::<K>(&Rate {
            meter,
            amount,
            period,
            burst: amount,
            manner: Manner::PLAIN,
            units: Rate::UNTYPED,
        })
        .unwrap()
    }

    fn seven() -> Window {
        window(Meter::Packets, 7, Period::Second)
    }

    fn empty() -> [AtomicU64; K] {
        core::array::from_fn(|_| AtomicU64::new(0))
    }

    #[test]
    fn what_was_spent_counts_until_its_part_has_left_the_window_and_the_limit_is_never_exceeded() {
        let (window, words) = (seven(), empty());
        let at = |part: u64| (1_000 + part) * window.length_ns;
        let take = |part, amount| take::<K>(&words, &window, at(part), amount);
        let used = |now_ns| used::<K>(&words, &window, now_ns);
        assert_eq!((take(0, 3), take(0, 1), used(at(0))), (Ok(()), Ok(()), 4));
        assert_eq!((take(3, 4), used(at(3))), (Err(Refusal::Limit), 4));
        assert_eq!((take(3, 3), used(at(3))), (Ok(()), 7));
        assert_eq!((take(7, 1), used(at(8) - 1)), (Err(Refusal::Limit), 7), "the first part is still inside");
        assert_eq!((used(at(8)), take(8, 5)), (3, Err(Refusal::Limit)));
        assert_eq!((take(8, 4), used(at(8))), (Ok(()), 7));
        assert_eq!((used(at(11)), used(at(16))), (4, 0));
    }

    #[test]
    fn who_comes_from_a_part_that_another_cpu_has_closed_or_gone_beyond_is_late() {
        let (window, words) = (seven(), empty());
        let at = |part: u64| (1_000 + part) * window.length_ns;
        assert_eq!(take::<K>(&words, &window, at(8), 1), Ok(()));
        for earlier in 0..8 {
            assert_eq!(take::<K>(&words, &window, at(earlier), 1), Err(Refusal::Late), "{earlier}");
        }
        // Another CPU is at part 8 and has closed part 7, in the word that this CPU takes for part -1.
        let words = empty();
        words[slot::<K>(1_007)].store(write(&window, 1_007, true, 2), core::sync::atomic::Ordering::Relaxed);
        assert_eq!(take::<K>(&words, &window, at(0), 1), Err(Refusal::Late));
        assert_eq!(used::<K>(&words, &window, at(8)), 2, "what that one has closed is not written over");
    }

    #[test]
    fn a_part_that_another_cpu_has_closed_takes_nothing_more_even_before_that_one_has_charged() {
        let (window, words) = (seven(), empty());
        let at = |part: u64| (1_000 + part) * window.length_ns;
        assert_eq!(take::<K>(&words, &window, at(7), 3), Ok(()));
        let charge = evaluate::<K>(&words, &window, at(8), 4).unwrap();
        assert_eq!(take::<K>(&words, &window, at(7), 1), Err(Refusal::Late));
        assert_eq!((charge.commit(&words, &window), used::<K>(&words, &window, at(8))), (Ok(()), 7));
    }

    #[test]
    fn of_two_packets_that_conform_alone_and_not_together_the_second_to_be_charged_is_refused() {
        let (window, words) = (seven(), empty());
        let now_ns = 1_000 * window.length_ns;
        let charge = |amount| evaluate::<K>(&words, &window, now_ns, amount).unwrap();
        let (first, second, third) = (charge(4), charge(4), charge(3));
        assert_eq!(first.commit(&words, &window), Ok(()));
        assert_eq!(second.commit(&words, &window), Err(Refusal::Limit));
        assert_eq!(third.commit(&words, &window), Ok(()));
        assert_eq!(used::<K>(&words, &window, now_ns), 7);
    }

    /// Words that count how often they are written.
    struct Watched([AtomicU64; K], Cell<u32>);

    impl Words for Watched {
        fn load(&self, slot: usize) -> u64 {
            self.0.load(slot)
        }

        fn compare_exchange(&self, slot: usize, seen: u64, new: u64) -> Result<(), u64> {
            self.1.set(self.1.get() + 1);
            self.0.compare_exchange(slot, seen, new)
        }
    }

    #[test]
    fn a_flood_that_is_refused_writes_nothing_once_the_parts_before_are_closed() {
        let (window, words) = (seven(), Watched(empty(), Cell::new(0)));
        let now_ns = 1_000 * window.length_ns;
        assert_eq!(take::<K>(&words, &window, now_ns, 7), Ok(()));
        assert_eq!(take::<K>(&words, &window, now_ns + window.length_ns, 1), Err(Refusal::Limit));
        let closed = words.1.get();
        for _ in 0..100 {
            assert_eq!(take::<K>(&words, &window, now_ns + window.length_ns, 1), Err(Refusal::Limit));
        }
        assert_eq!(words.1.get(), closed);
    }

    #[test]
    fn large_windows_of_bytes_say_bytes() {
        let (window, words) = (window(Meter::Bytes, 1 << 45, Period::Day), empty());
        assert_eq!(take::<K>(&words, &window, window.length_ns, 1514), Ok(()));
        assert_eq!(used::<K>(&words, &window, window.length_ns), 1520, "190 units of eight bytes");
    }
}
