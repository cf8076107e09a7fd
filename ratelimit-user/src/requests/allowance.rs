//! What one key may have, made ready from the limits of a policy.

use ratelimit_common::limit::manner::{Algorithm, Throttle};

use super::{cells::Shape, lineage::Inheritance, request::Priority};
use crate::{
    meter::Meter,
    policy::{Alone, OnRefusal, RequestLimit, Reserved, Sharing},
};

/// What one key may have: limits that all hold.
#[derive(Debug)]
pub struct Allowance {
    /// The index of the allowance among all allowances.
    pub id: usize,
    /// The name of the allowance.
    pub name: String,
    /// The limits, all of which must hold.
    pub limits: Vec<AllowanceLimit>,
    /// The words that a key of this allowance takes in the table.
    pub shape: Shape,
    /// What happens above a limit.
    pub on_limit: OnRefusal,
    /// How hosts count together.
    pub sharing: Sharing,
    /// What a host does while it cannot reach the store.
    pub without_store: Alone,
    /// Names and limits, as the `RateLimit-Policy` field shows them.
    pub header: String,
    pub(super) reserved: Reserved,
    /// The seed of the hashes of this allowance's keys. It depends on names and layouts only, so that a change of numbers keeps what was counted.
    pub(super) seed: u64,
    /// A hash of the limits with all their numbers. A remembered refusal holds only under the terms that it was made under.
    pub(super) terms: u64,
    /// Separates the keys of this list of limits from the keys of lists that the allowance had before.
    pub(super) salt: u64,
    /// The name that the allowance keeps through changes of the policy; `None` if the store counts it.
    pub(super) ancestry: Option<String>,
    /// Whether this allowance is the part of a shared allowance that this host gives by itself.
    pub(super) is_for_one_host: bool,
    /// The lists of limits that the allowance had before and whose counts it takes over, the newest first.
    pub(super) inherits: Vec<Inheritance>,
    /// The name of the allowance in the keys of the store.
    pub(super) store_name: String,
    /// The index of the allowance that this host gives by itself while it cannot reach the store.
    pub(super) alone: Option<usize>,
}

/// One limit of an allowance.
#[derive(Debug)]
pub struct AllowanceLimit {
    /// The name of the limit.
    pub name: String,
    /// Units in a window, for people and headers.
    pub quota: u64,
    /// The window, for people and headers.
    pub window_s: u64,
    /// The algorithm that counts the limit.
    pub meter: Meter,
    /// The limit with its soft margin, if it has one.
    pub(super) margin: Option<Margin>,
    /// Whether requests wait in the limit for their turn.
    pub queue: bool,
    /// The index of the limit's first word among the words of the key.
    pub at: usize,
    /// Algorithm and window, as [`Meter::kin`] names them: a limit with an equal name takes over the counts.
    pub(super) kin: String,
}

#[derive(Debug)]
pub(super) struct Margin {
    pub(super) meter: Meter,
    elastic: bool,
}

/// How a limit is counted at the moment.
#[derive(Clone, Copy, Debug)]
pub struct InForce<'r> {
    /// The algorithm that counts the limit.
    pub meter: &'r Meter,
    /// Units of the meter that are held back.
    pub held_back: u64,
    /// Units of the soft margin, above the limit itself.
    pub margin: u64,
    /// Whether the meter admits more than the limit itself. The margin of a small bucket may be in its rate alone, so that `margin` is 0.
    pub is_wide: bool,
}

impl AllowanceLimit {
    /// Returns the meter that the words are laid out for: with the soft margin, if the limit has one.
    pub(super) fn widest(&self) -> &Meter {
        self.margin.as_ref().map_or(&self.meter, |margin| &margin.meter)
    }

    /// Returns how the limit is counted while the host has headroom, or has none.
    #[inline]
    pub fn in_force(&self, headroom: bool) -> InForce<'_> {
        match &self.margin {
            None => InForce { meter: &self.meter, held_back: 0, margin: 0, is_wide: false },
            Some(Margin { meter, elastic }) if headroom || !elastic => {
                let margin = meter.capacity() - self.meter.capacity();
                InForce { meter, held_back: 0, margin, is_wide: true }
            }
            // The words of a bucket mean the same at any rate, so the bucket without the margin reads them. Other words are counted with the margin held back.
            Some(Margin { meter, .. }) => match &self.meter {
                plain @ Meter::Soft(_) => InForce { meter: plain, held_back: 0, margin: 0, is_wide: false },
                _ => {
                    let held_back = meter.capacity() - self.meter.capacity();
                    InForce { meter, held_back, margin: 0, is_wide: false }
                }
            },
        }
    }
}

impl InForce<'_> {
    /// Returns the units that a key may have now.
    #[inline]
    pub fn left(&self, words: &[u64], now_us: u64) -> u64 {
        self.meter.left(words, now_us).saturating_sub(self.held_back)
    }

    /// Returns the units of `left` that belong to the limit itself and not to the margin.
    #[inline]
    pub fn below(&self, words: &[u64], now_us: u64, left: u64) -> u64 {
        match self.meter {
            Meter::Soft(soft) => soft.below(words, now_us),
            _ => left.saturating_sub(self.margin),
        }
    }

    /// Returns the microseconds until a key has one unit more than now, be it of the margin; 0 if it has everything.
    #[inline]
    pub fn more(&self, words: &[u64], now_us: u64) -> u64 {
        self.meter.more(words, now_us, self.held_back)
    }

    /// Returns the microseconds until a key has one unit more of the limit itself than now; 0 if it has everything.
    #[inline]
    pub fn more_below(&self, words: &[u64], now_us: u64) -> u64 {
        match self.meter {
            Meter::Soft(soft) => soft.more_below(words, now_us),
            _ => self.meter.more(words, now_us, self.held_back.max(self.margin)),
        }
    }

    /// Returns the microseconds until a key has `units`.
    #[inline]
    pub fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64 {
        self.meter.wait(words, now_us, units.saturating_add(self.held_back))
    }
}

impl Allowance {
    /// Whether counts of lists of limits before this one may still count.
    #[inline]
    pub(super) fn inherits(&self, now_us: u64) -> bool {
        self.inherits.iter().any(|inheritance| now_us < inheritance.until_us)
    }

    /// Returns the units, of a limit with this capacity, that a request of this priority leaves to requests that matter more.
    #[inline]
    pub fn reserved(&self, priority: Priority, capacity: u64) -> u64 {
        let percent = match priority {
            Priority::Critical => 0,
            Priority::Normal => self.reserved.critical,
            Priority::Background => self.reserved.critical + self.reserved.normal,
        };
        match percent {
            // The usual case. The division below takes a third as long as a whole decision.
            0 => 0,
            percent => (u128::from(capacity) * u128::from(percent)).div_ceil(100) as u64,
        }
    }

    /// The name of the allowance in the keys of the store.
    pub fn store_name(&self) -> &str {
        &self.store_name
    }

    /// Whether a host may hold units ahead although requests in a soft margin are told apart. Not of a soft bucket: only the store sees its margin. Of a
    /// window if the margin is at most one [`super::lease::MOST`]th of it; with a larger margin, hosts would serve units of the margin as if they were below.
    pub(super) fn may_hold(&self) -> bool {
        self.limits.iter().all(|limit| match &limit.margin {
            None => true,
            Some(Margin { meter: Meter::Soft(_), .. }) => false,
            Some(Margin { meter, .. }) => {
                meter.capacity() - limit.meter.capacity() <= meter.capacity() / super::lease::MOST
            }
        })
    }

    /// Returns the most that a key may have at once.
    pub fn capacity(&self) -> u64 {
        self.limits.iter().map(|limit| limit.meter.capacity()).min().unwrap_or(0)
    }
}

/// Sets where the words of each limit begin, and returns the [`Shape`] of a key with all limits. Logs come first.
pub(super) fn lay_out(limits: &mut [AllowanceLimit]) -> Shape {
    let mut shape = Shape::default();
    for keeps_every_unit in [true, false] {
        for limit in limits.iter_mut() {
            let meter = limit.widest();
            if meter.keeps_every_unit() == keeps_every_unit {
                let words = meter.words_in_table();
                limit.at = shape.words;
                shape.words += words;
                shape.logs += usize::from(keeps_every_unit);
            }
        }
    }
    shape
}

/// Makes one limit of a list of limits. [`lay_out`] says later where its words begin.
pub(super) fn limit_of(
    of: &str,
    nth: usize,
    all: &[RequestLimit],
    limit: &RequestLimit,
    on_limit: OnRefusal,
    now_us: u64,
) -> AllowanceLimit {
    let rate = &limit.rate;
    // A single limit has the plain name. In a list, the period is added, and a number from the second limit with the same period on.
    let same = all[..nth].iter().filter(|other| other.rate.period == rate.period).count();
    let name = match (all.len(), same) {
        (1, _) => of.to_owned(),
        (_, 0) => format!("{of}-{}", rate.period.name()),
        (_, same) => format!("{of}-{}-{}", rate.period.name(), same + 1),
    };
    let percent = rate.manner.margin(true);
    let margin = (percent > 0).then(|| Margin {
        meter: Meter::of(limit, percent, now_us),
        elastic: matches!(rate.manner.throttle, Throttle::Elastic(_)),
    });
    let meter = Meter::of(limit, 0, now_us);
    let leaky = rate.manner.algorithm == Algorithm::LeakyBucket;
    AllowanceLimit {
        name,
        quota: rate.amount,
        window_s: rate.period.ns() / 1_000_000_000,
        kin: meter.kin(),
        meter,
        margin,
        queue: leaky && matches!(on_limit, OnRefusal::Delay(_)),
        at: 0,
    }
}
