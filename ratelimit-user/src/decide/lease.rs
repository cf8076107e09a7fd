//! What this host holds of one key, and what it knows of it. Pure: clock and answers are arguments.

use super::meter::NEVER_US;
use crate::cluster::{
    account::Told,
    exchange::{Entry, Timing},
};

/// What a host asks for at first, as a part of what a key may have. Keys that may have less than this many units are never held beforehand: the
/// store decides about each of their requests.
const PORTION: u64 = 64;
/// The most it asks for, as a part of that.
const MOST: u64 = 8;
/// A refusal is believed for so long at most: others may give something back.
const BELIEVED_US: u64 = 1_000_000;

/// A lease, and what was last heard of its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Units that may be spent.
    held: u64,
    /// Until when.
    expires_us: u64,
    /// Units spent that the store has not heard of.
    used: u64,
    /// What to ask for next; 0 before the first time.
    portion: u64,
    sequence: u64,
    /// What was said and has no answer: it is said again as it was, and counts once.
    unanswered: Option<Entry>,
    /// When that was first said: the store may count from then on.
    said_us: u64,
    under_way: bool,
    denied: Denied,
    /// What was free at the store when it last answered, and which limit was nearest to its end.
    free: u64,
    nearest: usize,
    /// When it was last of use.
    touched_us: u64,
}

/// A refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Denied {
    /// Of requests that need at least so many units.
    needed: u64,
    /// Believed until then.
    until_us: u64,
    /// When they would fit; never, if it is the largest of all numbers.
    fits_us: u64,
}

impl Lease {
    /// Spends units that are held, if there are enough.
    pub fn spend(&mut self, units: u64, now_us: u64) -> bool {
        self.touched_us = now_us;
        let enough = now_us < self.expires_us && self.held >= units;
        if enough {
            self.held -= units;
            self.used += units;
        }
        enough
    }

    /// Takes back units that were spent a moment ago and are not needed.
    pub fn unspend(&mut self, units: u64) {
        // What the store is being told of at this moment is charged there.
        let told = self.unanswered.map_or(0, |said| said.used);
        let back = units.min(self.used.saturating_sub(told));
        self.used -= back;
        self.held += back;
    }

    /// How long a request that needs so many units is still refused, if the store has said so.
    pub fn denies(&self, needed: u64, now_us: u64) -> Option<u64> {
        let denied = &self.denied;
        let wait_us =
            if denied.fits_us == NEVER_US { NEVER_US } else { denied.fits_us.saturating_sub(now_us) };
        (needed >= denied.needed && now_us < denied.until_us).then_some(wait_us)
    }

    /// What to tell the store about it now, of a key that may have so many units at once. Nothing while an answer is under way.
    pub fn ask(&mut self, capacity: u64, now_us: u64) -> Entry {
        self.touched_us = now_us;
        if self.under_way {
            return Entry::default();
        }
        if let Some(unanswered) = self.unanswered {
            self.under_way = true;
            return unanswered;
        }
        if now_us >= self.expires_us {
            // Less was needed than was held.
            if self.held > self.portion / 2 {
                self.portion /= 2;
            }
            self.held = 0;
        } else {
            self.portion *= 2;
        }
        self.portion = self.portion.clamp(capacity / PORTION, (capacity / MOST).max(capacity / PORTION));
        if self.portion == 0 && self.used == 0 && self.sequence == 0 {
            return Entry::default();
        }
        self.sequence += 1;
        self.under_way = true;
        let entry = Entry { sequence: self.sequence, used: self.used, held: self.held, wanted: self.portion };
        (self.unanswered, self.said_us) = (Some(entry), now_us);
        entry
    }

    /// Takes in the answer to what [`Lease::ask`] said at `sent_us`, or earlier: what is said again is granted from the first time on.
    pub fn answer(&mut self, said: &Entry, told: &Told, sent_us: u64, now_us: u64, timing: &Timing) {
        (self.free, self.nearest) = (told.free, told.nearest);
        if said.sequence == 0 || self.unanswered != Some(*said) {
            return;
        }
        (self.unanswered, self.under_way) = (None, false);
        self.used -= said.used.min(self.used);
        let said_us = sent_us.min(self.said_us);
        let expires_us =
            said_us + timing.lifetime_us.saturating_sub(timing.margin_us + spread_us(said_us, timing));
        if now_us >= self.expires_us {
            // What was left ran out while the answer was under way.
            self.held = 0;
        }
        if now_us < expires_us {
            self.held += told.granted;
            self.expires_us = expires_us;
        }
    }

    /// There was no answer.
    pub fn failed(&mut self, said: &Entry) {
        if said.sequence > 0 && self.unanswered == Some(*said) {
            self.under_way = false;
        }
    }

    /// Believes a refusal.
    pub fn deny(&mut self, needed: u64, wait_us: u64, now_us: u64) {
        let until_us = now_us + wait_us.min(BELIEVED_US);
        self.denied = Denied { needed, until_us, fits_us: now_us.saturating_add(wait_us) };
    }

    /// Forgets everything that was said about it: somebody has reset the key.
    pub fn forget(&mut self) {
        (self.held, self.used, self.denied) = (0, 0, Denied::default());
    }

    /// What was last known to be left, with what is held here, and which limit is nearest to its end.
    pub fn left(&self) -> (u64, usize) {
        (self.free + self.held, self.nearest)
    }

    /// Whether nothing is lost without it.
    pub fn is_idle(&self, now_us: u64, timing: &Timing) -> bool {
        let settled = self.touched_us + 2 * timing.longest_us() < now_us;
        settled && !self.under_way
    }
}

/// How much earlier than it must a lease of this moment ends: up to a quarter of its life, as good as at random. Those that were taken at once,
/// after a start or after the store was away, are not all renewed at once.
fn spread_us(sent_us: u64, timing: &Timing) -> u64 {
    const STEPS: u64 = 1_024;
    timing.lifetime_us / 4 * (sent_us % STEPS) / STEPS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const TIMING: Timing = Timing { lifetime_us: 8 * SECOND, margin_us: SECOND, recent_us: SECOND };

    fn told(granted: u64) -> Told {
        Told { spent: true, wait_us: 0, granted, free: 100, nearest: 0 }
    }

    #[test]
    fn what_is_granted_is_spent_here_until_it_runs_out() {
        let mut lease = Lease::default();
        let said = lease.ask(640, SECOND);
        assert_eq!(said, Entry { sequence: 1, used: 0, held: 0, wanted: 10 });
        lease.answer(&said, &told(10), SECOND, SECOND + 5, &TIMING);
        assert!((0..10).all(|_| lease.spend(1, 2 * SECOND)));
        assert!(!lease.spend(1, 2 * SECOND), "nothing is left");
        let said = lease.ask(640, 2 * SECOND);
        assert_eq!(said, Entry { sequence: 2, used: 10, held: 0, wanted: 20 }, "twice as much");
        lease.answer(&said, &told(20), 2 * SECOND, 2 * SECOND, &TIMING);
        assert!(!lease.spend(1, 9 * SECOND), "a margin before the store writes it off");
    }

    #[test]
    fn leases_of_one_second_end_over_a_quarter_of_their_life() {
        let ends = |sent_us: u64| {
            let mut lease = Lease::default();
            let said = lease.ask(640, sent_us);
            lease.answer(&said, &told(10), sent_us, sent_us, &TIMING);
            (0..8 * SECOND).step_by(10_000).find(|after| !lease.spend(0, sent_us + after)).unwrap()
        };
        let ends: Vec<u64> = (0..100).map(|n| ends(SECOND + n * 9_973)).collect();
        let (first, last) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
        assert!(*last <= 7 * SECOND && *first >= 5 * SECOND, "{first} to {last}");
        assert!(last - first > 3 * SECOND / 2, "{first} to {last}");
    }

    #[test]
    fn what_has_no_answer_is_said_again_as_it_was() {
        let mut lease = Lease::default();
        let said = lease.ask(640, SECOND);
        assert_eq!(lease.ask(640, SECOND), Entry::default(), "one at a time");
        lease.failed(&said);
        assert_eq!(lease.ask(6_400, 2 * SECOND), said);
        lease.answer(&said, &told(10), 2 * SECOND, 2 * SECOND, &TIMING);
        lease.answer(&said, &told(10), 2 * SECOND, 2 * SECOND, &TIMING);
        assert!(lease.spend(10, 2 * SECOND));
        assert!(!lease.spend(1, 2 * SECOND), "an answer that comes twice counts once");
    }

    #[test]
    fn what_is_said_again_lasts_no_longer_than_from_the_first_time_on() {
        let mut lease = Lease::default();
        let said = lease.ask(640, 0);
        lease.failed(&said);
        assert_eq!(lease.ask(640, 6 * SECOND), said);
        lease.answer(&said, &told(10), 6 * SECOND, 6 * SECOND, &TIMING);
        assert!(lease.spend(1, 7 * SECOND - 1));
        assert!(!lease.spend(1, 7 * SECOND), "the store writes it off a margin later");
    }

    #[test]
    fn units_that_the_store_is_being_told_of_are_not_taken_back() {
        let mut lease = Lease::default();
        let said = lease.ask(640, 0);
        lease.answer(&said, &told(10), 0, 0, &TIMING);
        assert!(lease.spend(4, 1));
        let said = lease.ask(640, 1);
        assert_eq!((said.used, said.held), (4, 6));
        lease.unspend(4);
        lease.answer(&said, &told(0), 1, 1, &TIMING);
        assert!(lease.spend(6, 1));
        assert!(!lease.spend(1, 1), "the four are charged");
    }

    #[test]
    fn units_that_are_taken_back_are_held_again_and_not_reported() {
        let mut lease = Lease::default();
        let said = lease.ask(640, 0);
        lease.answer(&said, &told(10), 0, 0, &TIMING);
        assert!(lease.spend(4, 1));
        lease.unspend(4);
        assert!(lease.spend(10, 1));
        assert_eq!(lease.ask(640, 1).used, 10);
    }

    #[test]
    fn a_key_of_few_units_is_never_held_beforehand() {
        let mut lease = Lease::default();
        assert_eq!(lease.ask(63, SECOND), Entry::default());
        assert_eq!(lease.ask(64, SECOND).wanted, 1);
    }

    #[test]
    fn a_refusal_is_believed_for_those_who_need_as_much_and_not_for_long() {
        let mut lease = Lease::default();
        lease.deny(5, 300_000, SECOND);
        assert_eq!(lease.denies(5, SECOND + 100_000), Some(200_000));
        assert_eq!(lease.denies(4, SECOND + 100_000), None, "less may fit");
        assert_eq!(lease.denies(5, SECOND + 300_000), None);
        lease.deny(1, 3_600 * SECOND, SECOND);
        assert_eq!(lease.denies(1, 2 * SECOND - 1), Some(3_599 * SECOND + 1), "how long it really takes");
        assert_eq!(lease.denies(1, 2 * SECOND), None, "somebody may have given something back");
    }
}
