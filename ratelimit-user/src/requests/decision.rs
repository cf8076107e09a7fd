//! Decisions about requests, and the limits that they come from.

use std::cmp::Reverse;

use super::{
    allowance::{Allowance, AllowanceLimit},
    key::MAX_COUNTER_KEYS,
};
use crate::meter::bit;

/// The answer to one request.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'r> {
    /// What is to be done with the request.
    pub outcome: Outcome,
    /// The limit that decided, or that has least left; none where nothing limits the request.
    pub limit: Option<Nearest<'r>>,
    /// All limits that refuse; none where the request is served.
    pub violated: Violated<'r>,
}

impl<'r> Decision<'r> {
    /// Makes a decision to serve a request.
    pub(super) fn served(outcome: Outcome, limit: Option<Nearest<'r>>) -> Self {
        Self { outcome, limit, violated: Violated::default() }
    }

    /// Joins the decisions about some counter keys of a request and about the others. If both refuse, the longer wait holds; if one refuses, its decision
    /// holds; if both serve, the decision holds that asks more of the request.
    pub fn and(self, other: Self) -> Self {
        let (Outcome::Refused { retry_us: one }, Outcome::Refused { retry_us: two }) =
            (self.outcome, other.outcome)
        else {
            return match (self.outcome.is_served(), other.outcome.is_served()) {
                (true, true) if other.hardness() > self.hardness() => other,
                (true, false) => other,
                _ => self,
            };
        };
        let later = one.is_some_and(|one| two.is_none_or(|two| two > one));
        let Self { outcome, limit, .. } = if later { other } else { self };
        Self { outcome, limit, violated: self.violated.and(other.violated) }
    }

    /// Lets a refused request come back after `us` microseconds at the latest.
    pub(super) fn within(self, us: u64) -> Self {
        let Outcome::Refused { retry_us } = self.outcome else { return self };
        let retry_us = Some(retry_us.map_or(us, |retry_us| retry_us.min(us)));
        let limit = self.limit.map(|near| Nearest { more_us: near.more_us.min(us), ..near });
        Self { outcome: Outcome::Refused { retry_us }, limit, ..self }
    }

    /// Orders decisions to serve a request: the greater asks more of the request, and among equals the greater leaves less.
    fn hardness(&self) -> (usize, u64, Reverse<u64>) {
        let wait_us = match self.outcome {
            Outcome::Delayed { wait_us } => wait_us,
            _ => 0,
        };
        let left = self.limit.map_or(u64::MAX, |near| near.remaining);
        (self.outcome.index(), wait_us, Reverse(left))
    }
}

/// Limits that refuse a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Violated<'r> {
    /// Allowances with limits that refuse, and a bit for each such limit.
    of: [Option<(&'r Allowance, u64)>; MAX_COUNTER_KEYS],
}

impl<'r> Violated<'r> {
    /// Makes a list of one limit, the first of an allowance.
    pub fn first(allowance: &'r Allowance) -> Self {
        let mut violated = Self::default();
        violated.add(allowance, bit(0));
        violated
    }

    /// Adds limits of an allowance, a bit for each.
    pub(super) fn add(&mut self, allowance: &'r Allowance, bits: u64) {
        if bits == 0 {
            return;
        }
        if let Some(place) = self.of.iter_mut().find(|place| place.is_none()) {
            *place = Some((allowance, bits));
        }
    }

    fn and(mut self, other: Self) -> Self {
        other.of.into_iter().flatten().for_each(|(allowance, bits)| self.add(allowance, bits));
        self
    }

    /// The allowances that the limits belong to.
    pub fn allowances(&self) -> impl Iterator<Item = &'r Allowance> {
        self.of.iter().flatten().map(|(allowance, _)| *allowance)
    }

    /// The limits that refuse.
    pub fn limits(&self) -> impl Iterator<Item = &'r AllowanceLimit> {
        let of = |(allowance, bits): &(&'r Allowance, u64)| {
            let bits = *bits;
            let limits = allowance.limits.iter().enumerate();
            limits.filter(move |(nth, _)| bits & bit(*nth) != 0).map(|(_, limit)| limit)
        };
        self.of.iter().flatten().flat_map(of)
    }
}

/// What is to be done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request is to be served.
    Allowed,
    /// The request is to be served. It is above a soft or elastic limit, in its margin.
    InMargin,
    /// The request is to be served after others, because it is above its limit.
    Deprioritised,
    /// The request is to be served after a wait. Its turn in the queue is held.
    Delayed {
        /// Microseconds that the request waits.
        wait_us: u64,
    },
    /// The request is to be refused.
    Refused {
        /// Microseconds until the request would fit if nobody else takes anything; none if it never will.
        retry_us: Option<u64>,
    },
}

impl Outcome {
    /// Whether the request is to be served.
    pub const fn is_served(self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// The word for the outcome in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::InMargin => "in_margin",
            Self::Deprioritised => "deprioritised",
            Self::Delayed { .. } => "delayed",
            Self::Refused { .. } => "refused",
        }
    }

    /// All words, in the order of [`Outcome::index`].
    pub const NAMES: [&'static str; 5] = ["allowed", "in_margin", "deprioritised", "delayed", "refused"];

    /// The index of the outcome among [`Outcome::NAMES`].
    pub const fn index(self) -> usize {
        match self {
            Self::Allowed => 0,
            Self::InMargin => 1,
            Self::Deprioritised => 2,
            Self::Delayed { .. } => 3,
            Self::Refused { .. } => 4,
        }
    }
}

/// Converts microseconds to whole seconds, rounded up so that nobody comes back too early.
pub const fn seconds(us: u64) -> u64 {
    us.div_ceil(1_000_000)
}

/// The state of a limit.
#[derive(Clone, Copy, Debug)]
pub struct Nearest<'r> {
    /// The allowance that the limit belongs to.
    pub allowance: &'r Allowance,
    /// The limit that decided, or that has least left.
    pub limit: &'r AllowanceLimit,
    /// The units that are left of the limit.
    pub remaining: u64,
    /// Microseconds until the limit has its whole capacity again.
    pub reset_us: u64,
    /// Microseconds until one unit more is left than now; 0 if the whole capacity is left.
    pub more_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Outcome; 5] = [
        Outcome::Allowed,
        Outcome::InMargin,
        Outcome::Deprioritised,
        Outcome::Delayed { wait_us: 1 },
        Outcome::Refused { retry_us: None },
    ];

    #[test]
    fn each_outcome_has_a_place_and_the_word_of_that_place_and_all_but_refusals_are_served() {
        assert_eq!(ALL.map(Outcome::index), [0, 1, 2, 3, 4]);
        assert_eq!(ALL.map(Outcome::name), Outcome::NAMES);
        assert_eq!(ALL.map(Outcome::is_served), [true, true, true, true, false]);
    }

    #[test]
    fn of_two_decisions_the_refusal_that_lasts_longest_is_told() {
        let refused = |retry_us| Outcome::Refused { retry_us };
        let decision = |outcome| Decision { outcome, limit: None, violated: Violated::default() };
        let allowed = Outcome::Allowed;
        for (one, two, told) in [
            (allowed, Outcome::InMargin, Outcome::InMargin),
            (allowed, refused(Some(5)), refused(Some(5))),
            (refused(Some(5)), allowed, refused(Some(5))),
            (refused(Some(5)), refused(Some(7)), refused(Some(7))),
            (refused(Some(7)), refused(Some(5)), refused(Some(7))),
            (refused(Some(7)), refused(None), refused(None)),
            (refused(None), refused(Some(7)), refused(None)),
        ] {
            assert_eq!(decision(one).and(decision(two)).outcome, told, "{one:?} and {two:?}");
        }
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!([0, 1, 1_000_000, 1_000_001].map(seconds), [0, 1, 1, 2]);
    }
}
