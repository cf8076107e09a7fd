//! Turns in queues: a turn that was charged, and whose caller has hung up, goes to the next caller that asks for the same units.
//!
//! A refund would move the end of the queue to a moment at which somebody else has a turn, and two requests would be served at once. A free turn keeps
//! its moment: whoever takes it, each turn is used once at most, and turns are as far apart as the limit says.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{Priority, Request, counter_keys::CounterKeys, key::MAX_COUNTER_KEYS};
use crate::clock::Clock;

/// The most turns that are free. A turn beyond them is lost, and nobody is served at its moment.
const MOST: usize = 100_000;

/// The requests that a turn is good for: all that would be charged alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seat {
    keys: [u64; MAX_COUNTER_KEYS],
    cost: u64,
    priority: Priority,
}

impl Seat {
    /// Returns the seat of a request.
    pub(super) fn of(counters: &CounterKeys<'_>, request: &Request<'_>) -> Self {
        let mut keys = [0; MAX_COUNTER_KEYS];
        keys.iter_mut().zip(counters.iter()).for_each(|(key, counter)| *key = counter.hash.fingerprint);
        Self { keys, cost: request.cost, priority: request.priority }
    }
}

/// The free turns of each seat, in microseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Turns {
    free: Mutex<HashMap<Seat, BTreeSet<u64>>>,
    count: AtomicUsize,
}

impl Turns {
    /// Whether no turn is free.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Makes the turn of a caller that has left the queue free, if its moment is still to come.
    pub(super) fn leave(&self, seat: Seat, turn_us: u64, now_us: u64) {
        let mut free = self.lock();
        if self.count.load(Ordering::Relaxed) >= MOST {
            free.retain(|_, turns| {
                *turns = turns.split_off(&now_us);
                !turns.is_empty()
            });
            self.count.store(free.values().map(BTreeSet::len).sum(), Ordering::Relaxed);
        }
        if turn_us > now_us && self.count.load(Ordering::Relaxed) < MOST {
            self.insert(&mut free, seat, turn_us);
        }
    }

    /// Takes the first free turn, if it is before `instead_of`, which is the caller's own turn and becomes free then. Turns that have passed are dropped.
    pub(super) fn take(&self, seat: Seat, instead_of: Option<u64>, now_us: u64) -> Option<u64> {
        let mut free = self.lock();
        let turns = free.get_mut(&seat)?;
        let before = turns.len();
        *turns = turns.split_off(&now_us);
        let first = turns.first().copied().filter(|turn| instead_of.is_none_or(|own| *turn < own));
        if let Some(first) = first {
            turns.remove(&first);
        }
        let gone = before - turns.len();
        if turns.is_empty() {
            free.remove(&seat);
        }
        self.count.fetch_sub(gone, Ordering::Relaxed);
        if let (Some(_), Some(own)) = (first, instead_of) {
            self.insert(&mut free, seat, own);
        }
        first
    }

    /// Returns the first free turn, without taking it.
    pub(super) fn first(&self, seat: Seat, now_us: u64) -> Option<u64> {
        self.lock().get(&seat)?.range(now_us..).next().copied()
    }

    fn insert(&self, free: &mut HashMap<Seat, BTreeSet<u64>>, seat: Seat, turn_us: u64) {
        // Two turns of one moment count as one: turns are at least a microsecond apart, and one turn too few harms nobody.
        if free.entry(seat).or_default().insert(turn_us) {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Seat, BTreeSet<u64>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of a caller that waits. If it is dropped before it is served, it is free for others.
#[derive(Debug)]
pub struct Turn {
    turns: Arc<Turns>,
    clock: Clock,
    seat: Seat,
    turn_us: u64,
    is_served: bool,
}

impl Turn {
    pub(super) fn new(turns: &Arc<Turns>, clock: Clock, seat: Seat, turn_us: u64) -> Self {
        Self { turns: Arc::clone(turns), clock, seat, turn_us, is_served: false }
    }

    /// Marks the turn as used: its moment has come, and its caller was there.
    pub fn serve(mut self) {
        self.is_served = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_served {
            self.turns.leave(self.seat, self.turn_us, self.clock.now_us());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(cost: u64) -> Seat {
        Seat { keys: [1, 2, 0, 0], cost, priority: Priority::Normal }
    }

    #[test]
    fn each_turn_is_taken_once_the_first_one_first_and_never_when_it_has_passed() {
        let turns = Turns::default();
        for turn in [300, 100, 200, 50] {
            turns.leave(seat(1), turn, 0);
        }
        assert_eq!(turns.take(seat(2), None, 60), None, "another cost");
        assert_eq!(turns.first(seat(1), 60), Some(100));
        // The caller with the turn at 400 gets the turn at 100 instead, and leaves its own.
        assert_eq!(turns.take(seat(1), Some(400), 60), Some(100));
        assert_eq!(turns.take(seat(1), Some(150), 60), None, "none is before its own");
        assert_eq!([(); 4].map(|()| turns.take(seat(1), None, 60)), [Some(200), Some(300), Some(400), None]);
        assert!(turns.is_empty());
    }

    #[test]
    fn the_turn_of_whoever_leaves_is_free_and_that_of_whoever_was_served_is_not() {
        let (turns, clock) = (Arc::new(Turns::default()), Clock::start());
        let now_us = clock.now_us();
        let turn = |turn_us| Turn::new(&turns, clock, seat(1), turn_us);
        turn(u64::MAX - 1).serve();
        assert!(turns.is_empty());
        drop(turn(u64::MAX));
        assert_eq!(turns.take(seat(1), None, now_us), Some(u64::MAX));
        drop(turn(now_us));
        assert!(turns.is_empty(), "it has passed");
    }

    #[test]
    fn there_are_never_more_than_a_number_of_them() {
        let turns = Turns::default();
        for turn in 1..=MOST as u64 + 10 {
            turns.leave(seat(turn), turn, 0);
        }
        assert_eq!(turns.count.load(Ordering::Relaxed), MOST);
        // Half of the turns have passed.
        turns.leave(seat(1), u64::MAX, MOST as u64 / 2);
        assert_eq!(turns.count.load(Ordering::Relaxed), MOST / 2 + 2);
    }
}
