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
    /// The index of the allowance among all of them.
    pub id: usize,
    /// The name of the allowance.
    pub name: String,
    /// The limits, all of which must hold.
    pub limits: Vec<AllowanceLimit>,
    /// What a key needs in the table.
    pub shape: Shape,
    /// What happens above a limit.
    pub on_limit: OnRefusal,
    /// How hosts count together.
    pub sharing: Sharing,
    /// What a host does that cannot reach the store.
    pub without_store: Alone,
    /// Names and limits as the `RateLimit-Policy` field has them.
    pub header: String,
    pub(super) reserved: Reserved,
    /// Tells keys of this allowance from all others. The same as long as names and layouts are: a change of numbers keeps what was counted.
    pub(super) seed: u64,
    /// Tells its limits, numbers and all, from others that keys of this allowance had before: a refusal holds under the limits that it was made under.
    pub(super) terms: u64,
    /// Tells keys of its list of limits from those of lists that it had before.
    pub(super) salt: u64,
    /// The name that the allowance keeps through changes of the policy; `None` if the store counts it.
    pub(super) ancestry: Option<String>,
    /// Whether this is the part that this host gives by itself of an allowance that hosts count together.
    pub(super) is_for_one_host: bool,
    /// What was counted under lists that it had before, the newest first.
    pub(super) inherits: Vec<Inheritance>,
    /// What keys of this allowance are called in the store.
    pub(super) store_name: String,
    /// What this host gives of it when it cannot reach the store.
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
    /// Whether requests wait in it for their turn.
    pub queue: bool,
    /// The index of the limit's first word among the words of the key.
    pub at: usize,
    /// The algorithm and window as the policy has them: a limit that has the same goes on with what was counted.
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
    /// Units that are above the limit itself.
    pub margin: u64,
    /// Whether more is given than the limit itself: a small bucket's margin may be in its rate alone.
    pub is_wide: bool,
}

impl AllowanceLimit {
    /// How its words are laid out: as those of the limit with its margin, if it has one.
    pub(super) fn widest(&self) -> &Meter {
        self.margin.as_ref().map_or(&self.meter, |margin| &margin.meter)
    }

    /// How the limit is counted while the host has headroom, or has none.
    #[inline]
    pub fn in_force(&self, headroom: bool) -> InForce<'_> {
        match &self.margin {
            None => InForce { meter: &self.meter, held_back: 0, margin: 0, is_wide: false },
            Some(Margin { meter, elastic }) if headroom || !elastic => {
                let margin = meter.capacity() - self.meter.capacity();
                InForce { meter, held_back: 0, margin, is_wide: true }
            }
            // Words of a bucket mean the same at any rate; those of others are counted as they are, up to the limit.
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
    /// Units that a key may have now.
    #[inline]
    pub fn left(&self, words: &[u64], now_us: u64) -> u64 {
        self.meter.left(words, now_us).saturating_sub(self.held_back)
    }

    /// Units of the limit itself among those that a key may have now: none of the margin.
    #[inline]
    pub fn below(&self, words: &[u64], now_us: u64, left: u64) -> u64 {
        match self.meter {
            Meter::Soft(soft) => soft.below(words, now_us),
            _ => left.saturating_sub(self.margin),
        }
    }

    /// How long until a key has one unit more than it has now, be it of the margin; 0 if it has everything.
    #[inline]
    pub fn more(&self, words: &[u64], now_us: u64) -> u64 {
        self.meter.more(words, now_us, self.held_back)
    }

    /// How long until a key has one unit more of the limit itself than it has now; 0 if it has everything.
    #[inline]
    pub fn more_below(&self, words: &[u64], now_us: u64) -> u64 {
        match self.meter {
            Meter::Soft(soft) => soft.more_below(words, now_us),
            _ => self.meter.more(words, now_us, self.held_back.max(self.margin)),
        }
    }

    /// How long until so many units are there.
    #[inline]
    pub fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64 {
        self.meter.wait(words, now_us, units.saturating_add(self.held_back))
    }
}

impl Allowance {
    /// Whether something may still count that was counted under lists that it had before.
    #[inline]
    pub(super) fn inherits(&self, now_us: u64) -> bool {
        self.inherits.iter().any(|inheritance| now_us < inheritance.until_us)
    }

    /// Units of a limit of this capacity that a request of this priority leaves alone.
    #[inline]
    pub fn reserved(&self, priority: Priority, capacity: u64) -> u64 {
        let percent = match priority {
            Priority::Critical => 0,
            Priority::Normal => self.reserved.critical,
            Priority::Background => self.reserved.critical + self.reserved.normal,
        };
        match percent {
            // Mostly; a division of this width would be a third of a decision.
            0 => 0,
            percent => (u128::from(capacity) * u128::from(percent)).div_ceil(100) as u64,
        }
    }

    /// What keys of this allowance are called in the store.
    pub fn store_name(&self) -> &str {
        &self.store_name
    }

    /// Whether what is held beforehand is below every margin. Of a bucket nobody knows without asking, and of a window only while the margin is
    /// smaller than what stays with the store ([`super::lease::MOST`]): above that, hosts would serve what they cannot tell from the rest.
    pub(super) fn may_hold(&self) -> bool {
        self.limits.iter().all(|limit| match &limit.margin {
            None => true,
            Some(Margin { meter: Meter::Soft(_), .. }) => false,
            Some(Margin { meter, .. }) => {
                meter.capacity() - limit.meter.capacity() <= meter.capacity() / super::lease::MOST
            }
        })
    }

    /// The most that a key may have at once.
    pub fn capacity(&self) -> u64 {
        self.limits.iter().map(|limit| limit.meter.capacity()).min().unwrap_or(0)
    }
}

/// Says where the words of each limit begin, and what a key needs for all of them. What keeps every unit comes first: [`Shape`].
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

/// A limit of a list of limits; where its words begin is for whoever puts the list together.
pub(super) fn limit_of(
    of: &str,
    nth: usize,
    all: &[RequestLimit],
    limit: &RequestLimit,
    on_limit: OnRefusal,
    now_us: u64,
) -> AllowanceLimit {
    let rate = &limit.rate;
    // One name for one limit, and a number where several have the same period.
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
