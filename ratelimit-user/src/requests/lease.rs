//! What this host holds of one key, and what it knows of it. Pure: clock and answers are arguments.

use crate::{
    meter::NEVER_US,
    store::{
        ask::Told,
        exchange::{Entry, margin_us},
    },
};

/// What a host asks for at first, as a part of what a key may have. Keys that may have less than this many units are never held beforehand: the
/// store decides about each of their requests.
pub const PORTION: u64 = 64;
/// The most it asks for, as a part of that.
pub(super) const MOST: u64 = 8;
/// How long a lease of the smallest portion lasts. Most users call seldom, and each of them costs the store one question in that time. The more is
/// held, the shorter: what a host does not need keeps others from it.
const LIFE_US: u64 = 240_000_000;
/// A lease of which less than this part is left is renewed before somebody has to wait for it,
const LOW: u64 = 4;
/// and so is one that ends within this part of its life.
const LATE: u64 = 16;
/// A refusal is believed for so long at most: others may give something back.
const BELIEVED_US: u64 = 1_000_000;

/// A lease, and what was last heard of its key. What every decision looks at is here and small: most of them wait for memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Units that may be spent.
    held: u64,
    /// Units spent that the store has not heard of.
    used: u64,
    /// Until when they may be.
    expires_us: u64,
    /// The lease is renewed from this moment on,
    renew_us: u64,
    /// or when less than this is held.
    renew_below: u64,
    /// Until when a refusal is believed.
    denied_until_us: u64,
    /// What was free at the store when it last answered, when that was, and which limit was nearest to its end.
    free: u64,
    told_us: u64,
    nearest: u32,
    under_way: bool,
    talk: Box<Talk>,
}

/// What a host and the store have said to each other about a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Talk {
    /// What to ask for next; 0 before the first time.
    portion: u64,
    /// How long a lease of that lasts.
    life_us: u64,
    sequence: u64,
    /// What was said and has no answer: it is said again as it was, and counts once.
    unanswered: Option<Entry>,
    /// When that was first said: the store may count from then on.
    said_us: u64,
    /// When something was last said.
    spoke_us: u64,
    /// What was granted by a later word of the store, while the answer is under way.
    coming: u64,
    /// The last number that the store had heard when it said what is free.
    free_since: u64,
    denied: Denied,
}

/// A refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Denied {
    /// Requests that need at least this many units are refused.
    needed: u64,
    /// When they would fit; never, if it is the largest of all numbers.
    fits_us: u64,
    /// A bit for each limit that refused.
    violated: u64,
    /// The [`terms`](super::allowance::Allowance::terms) that they were refused under.
    terms: u64,
}

/// What is left of a key as far as a host knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Here.
    pub held: u64,
    /// Spent, and not yet told the store.
    pub used: u64,
    /// At the store,
    pub free: u64,
    /// which said so then.
    pub told_us: u64,
    /// The limit that was nearest to its end.
    pub nearest: usize,
}

impl Lease {
    /// Spends units that are held, if there are enough.
    pub fn spend(&mut self, units: u64, now_us: u64) -> bool {
        let enough = self.has(units, now_us);
        if enough {
            self.held -= units;
            self.used += units;
        }
        enough
    }

    fn has(&self, units: u64, now_us: u64) -> bool {
        now_us < self.expires_us && self.held >= units
    }

    /// Takes back units that were spent a moment ago and are not needed.
    pub fn unspend(&mut self, units: u64) {
        // What the store is being told of at this moment is charged there.
        let told = self.talk.unanswered.map_or(0, |said| said.used);
        let back = units.min(self.used.saturating_sub(told));
        self.used -= back;
        self.held += back;
    }

    /// Takes back units that were spent on a request that was not served, if the store has not heard of them and they may still be spent.
    pub fn refund(&mut self, units: u64, now_us: u64) -> bool {
        let told = self.talk.unanswered.map_or(0, |said| said.used);
        let known_here = now_us < self.expires_us && self.used.saturating_sub(told) >= units;
        if known_here {
            self.unspend(units);
        }
        known_here
    }

    /// How long a request that needs so many units is still refused, if the store has said so under the terms that hold now, and a bit for each limit that refuses
    /// it. Under other terms the store has to be asked.
    pub fn denies(&self, needed: u64, terms: u64, now_us: u64) -> Option<(u64, u64)> {
        if now_us >= self.denied_until_us {
            return None;
        }
        let Denied { needed: at_least, fits_us, violated, terms: refused_under } = self.talk.denied;
        let wait_us = if fits_us == NEVER_US { NEVER_US } else { fits_us.saturating_sub(now_us) };
        (needed >= at_least && terms == refused_under).then_some((wait_us, violated))
    }

    /// What to tell the store about it now that it is asked about a request that needs so many units, if the key may have `capacity` at once.
    /// Nothing while an answer is under way, and if there is enough for that request and for long: others may lack something.
    pub fn ask(&mut self, units: u64, capacity: u64, now_us: u64) -> Entry {
        if self.under_way || self.talk.unanswered.is_some() {
            return self.say_again(now_us).unwrap_or_default();
        }
        if self.has(units, now_us) {
            return self.renew(capacity, now_us).unwrap_or_default();
        }
        if now_us >= self.expires_us {
            self.shrink();
            self.held = 0;
        } else {
            self.talk.portion *= 2;
        }
        self.fit(capacity);
        if self.talk.portion == 0 && self.used == 0 && self.talk.sequence == 0 {
            return Entry::default();
        }
        self.say(self.talk.portion, capacity, now_us)
    }

    /// Whether there is enough for now and not for long.
    pub fn is_due(&self, now_us: u64) -> bool {
        !self.under_way && (now_us >= self.renew_us || self.held < self.renew_below)
    }

    /// What to tell the store about a lease that is due. Nobody waits for the answer: what is held may be spent in the meantime.
    pub fn renew(&mut self, capacity: u64, now_us: u64) -> Option<Entry> {
        if !self.is_due(now_us) {
            return None;
        }
        if self.talk.unanswered.is_some() {
            return self.say_again(now_us);
        }
        if self.held < self.renew_below {
            self.talk.portion *= 2;
        } else {
            self.shrink();
        }
        self.fit(capacity);
        // What is too much goes back.
        self.held = self.held.min(self.talk.portion);
        Some(self.say(self.talk.portion - self.held, capacity, now_us))
    }

    /// Less was needed than was held.
    fn shrink(&mut self) {
        if self.held > self.talk.portion / 2 {
            self.talk.portion /= 2;
        }
    }

    fn fit(&mut self, capacity: u64) {
        let (least, most) = (capacity / PORTION, capacity / MOST);
        self.talk.portion = self.talk.portion.clamp(least, most.max(least));
    }

    /// How long what was last said of lasts.
    pub fn life_us(&self) -> u64 {
        self.talk.life_us
    }

    fn say(&mut self, wanted: u64, capacity: u64, now_us: u64) -> Entry {
        self.talk.sequence += 1;
        (self.under_way, self.talk.spoke_us) = (true, now_us);
        let least = (capacity / PORTION).max(1);
        self.talk.life_us = LIFE_US / self.talk.portion.max(1).div_ceil(least);
        // If that is shorter than before, it is so from when the store hears of it, which may be long before the answer comes.
        self.expires_us = self.expires_us.min(now_us + self.talk.life_us - margin_us(self.talk.life_us));
        let entry = Entry { sequence: self.talk.sequence, used: self.used, held: self.held, wanted };
        (self.talk.unanswered, self.talk.said_us) = (Some(entry), now_us);
        entry
    }

    /// What had no answer, unless that is under way.
    fn say_again(&mut self, now_us: u64) -> Option<Entry> {
        let entry = self.talk.unanswered.filter(|_| !self.under_way)?;
        (self.under_way, self.talk.spoke_us) = (true, now_us);
        Some(entry)
    }

    /// Takes in the answer to what was said. What is said again is granted from the first time on.
    pub fn answer(&mut self, said: &Entry, told: &Told, now_us: u64) {
        if said.sequence == 0 || self.talk.unanswered != Some(*said) {
            // Answers may be taken in later than those that the store gave after them, which count what these do.
            if told.heard < self.answered() {
                return;
            }
            self.talk.coming = self.coming(told);
            self.talk.free_since = told.heard;
            (self.free, self.told_us, self.nearest) = (told.free, now_us, told.nearest as u32);
            return;
        }
        if self.talk.free_since >= said.sequence {
            // What is known was said after this. What is granted was not free any more by then.
            self.free = (self.free + self.talk.coming).saturating_sub(told.granted);
        } else {
            self.talk.free_since = said.sequence;
            (self.free, self.told_us, self.nearest) = (told.free, now_us, told.nearest as u32);
        }
        self.talk.coming = 0;
        (self.talk.unanswered, self.under_way) = (None, false);
        self.used -= said.used.min(self.used);
        let said_us = self.talk.said_us;
        let expires_us = said_us + self.talk.life_us - margin_us(self.talk.life_us);
        if now_us >= self.expires_us {
            // What was left ran out while the answer was under way.
            self.held = 0;
        }
        if now_us < expires_us {
            self.held += told.granted;
            self.expires_us = expires_us;
            self.renew_us = expires_us - self.talk.life_us / LATE - spread_us(said_us, self.talk.life_us);
            // Who was given less than it wanted is near the limit, where the store decides.
            self.renew_below = if told.granted == said.wanted { self.talk.portion / LOW } else { 0 };
        }
    }

    /// The number of what the store was last told and has answered.
    fn answered(&self) -> u64 {
        self.talk.sequence - u64::from(self.talk.unanswered.is_some())
    }

    /// What the store has granted by what it says now, and whose answer is still under way.
    fn coming(&self, told: &Told) -> u64 {
        let Some(said) = self.talk.unanswered else { return 0 };
        let reported = if told.heard >= said.sequence { said.used } else { 0 };
        let known = self.held + self.used.saturating_sub(reported);
        told.holds.saturating_sub(known)
    }

    /// There was no answer.
    pub fn failed(&mut self, said: &Entry) {
        if said.sequence > 0 && self.talk.unanswered == Some(*said) {
            self.under_way = false;
        }
    }

    /// Believes a refusal under these terms.
    pub fn deny(&mut self, needed: u64, terms: u64, (wait_us, violated): (u64, u64), now_us: u64) {
        self.denied_until_us = now_us + wait_us.min(BELIEVED_US);
        self.talk.denied = Denied { needed, fits_us: now_us.saturating_add(wait_us), violated, terms };
    }

    /// Believes no refusal any more: something has been given back.
    pub fn hope(&mut self) {
        self.denied_until_us = 0;
    }

    /// Forgets everything that was said about it: somebody has reset the key.
    pub fn forget(&mut self) {
        (self.held, self.used, self.denied_until_us) = (0, 0, 0);
    }

    /// What was last known to be left.
    pub fn left(&self, now_us: u64) -> Left {
        let held = if now_us < self.expires_us { self.held } else { 0 };
        let held = if self.under_way { held + self.talk.coming } else { held };
        Left { held, used: self.used, free: self.free, told_us: self.told_us, nearest: self.nearest as usize }
    }

    /// Whether nothing is lost without it.
    pub fn is_idle(&self, now_us: u64) -> bool {
        // The store forgets what was said before, and its numbers, a margin after its life.
        let settled = self.talk.spoke_us + 2 * (self.talk.life_us + margin_us(self.talk.life_us)) < now_us;
        settled && !self.under_way && self.denied_until_us < now_us
    }
}

/// How much earlier than it must a lease of this moment is renewed: up to half of its life, as good as at random. Those that were taken at
/// once, after a start or after the store was away, are not all renewed at once.
fn spread_us(sent_us: u64, life_us: u64) -> u64 {
    const STEPS: u64 = 1_024;
    life_us / 2 * (sent_us % STEPS) / STEPS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    /// When a lease of the smallest portion ends: a margin before the store writes it off.
    const END: u64 = 210 * SECOND;

    fn told(granted: u64) -> Told {
        Told {
            spent: true,
            wait_us: 0,
            granted,
            free: 100,
            nearest: 0,
            more_us: 0,
            violated: 0,
            above: false,
            holds: 0,
            heard: 0,
        }
    }

    #[test]
    fn an_answer_that_is_taken_in_after_a_later_one_changes_nothing() {
        let mut lease = Lease::default();
        let said = lease.ask(1, 640, SECOND);
        lease.answer(&said, &Told { free: 629, heard: 1, ..told(10) }, SECOND);
        assert!(lease.spend(9, SECOND));
        let renewal = lease.renew(640, SECOND).unwrap();
        lease.answer(&renewal, &Told { free: 600, heard: 2, ..told(19) }, SECOND);
        lease.answer(&Entry::default(), &Told { free: 628, heard: 1, ..told(0) }, SECOND);
        assert_eq!(lease.left(SECOND).free, 600);
        lease.answer(&Entry::default(), &Told { free: 598, heard: 2, ..told(0) }, SECOND);
        assert_eq!(lease.left(SECOND).free, 598);
    }

    #[test]
    fn what_is_granted_is_spent_here_until_it_runs_out() {
        let mut lease = Lease::default();
        let said = lease.ask(1, 640, SECOND);
        assert_eq!(said, Entry { sequence: 1, used: 0, held: 0, wanted: 10 });
        lease.answer(&said, &told(10), SECOND + 5);
        assert!((0..10).all(|_| lease.spend(1, 2 * SECOND)));
        assert!(!lease.spend(1, 2 * SECOND), "nothing is left");
        let said = lease.ask(1, 640, 2 * SECOND);
        assert_eq!(said, Entry { sequence: 2, used: 10, held: 0, wanted: 20 }, "twice as much");
        lease.answer(&said, &told(20), 2 * SECOND);
        assert!(lease.spend(1, END / 2), "half as long: it is twice as much");
        assert!(!lease.spend(1, 2 * SECOND + END / 2), "a margin before the store writes it off");
    }

    /// A lease of ten units out of 640.
    fn ten(now_us: u64) -> Lease {
        let mut lease = Lease::default();
        let said = lease.ask(1, 640, now_us);
        lease.answer(&said, &told(10), now_us);
        lease
    }

    #[test]
    fn leases_of_one_second_are_renewed_over_half_of_their_life_while_they_last() {
        let due = |sent_us: u64| {
            let lease = ten(sent_us);
            (0..END).step_by(10_000).find(|after| lease.is_due(sent_us + after)).unwrap()
        };
        let due: Vec<u64> = (0..100).map(|n| due(SECOND + n * 9_973)).collect();
        let (first, last) = (due.iter().min().unwrap(), due.iter().max().unwrap());
        assert!(*last <= 195 * SECOND + 10_000 && *first >= 75 * SECOND, "{first} to {last}");
        assert!(last - first > 110 * SECOND, "{first} to {last}");
    }

    #[test]
    fn a_lease_that_is_nearly_spent_is_renewed_and_goes_on_being_spent() {
        let mut lease = ten(0);
        assert!(lease.spend(8, 1));
        assert_eq!(lease.renew(640, 1), None, "two of ten are a fourth, rounded down");
        assert!(lease.spend(1, 1));
        let said = lease.renew(640, 1).unwrap();
        assert_eq!(said, Entry { sequence: 2, used: 9, held: 1, wanted: 19 }, "twice as much, with the one");
        assert_eq!(lease.renew(640, 1), None, "one at a time");
        assert!(lease.spend(1, 2), "nobody waits");
        lease.answer(&said, &told(19), 3);
        assert!(lease.spend(19, 3));
        assert!(!lease.spend(1, 3));
        assert_eq!(lease.ask(1, 640, 3).used, 20);
    }

    #[test]
    fn the_more_is_held_the_shorter() {
        let mut lease = Lease::default();
        for (nth, life) in [240, 120, 60, 30, 30].into_iter().enumerate() {
            let said = lease.ask(1, 640, SECOND);
            assert_eq!(lease.life_us(), life * SECOND);
            lease.answer(&said, &told(said.wanted), SECOND);
            assert!(lease.spend(10 << nth.min(3), SECOND), "all of it");
        }
    }

    #[test]
    fn a_life_that_gets_shorter_does_so_before_the_answer_comes() {
        let mut lease = ten(0);
        assert!(lease.spend(9, 1));
        let said = lease.renew(640, 1).unwrap();
        lease.answer(&said, &told(19), 1);
        assert!(lease.spend(16, 2));
        lease.renew(640, 2).unwrap();
        assert_eq!(lease.life_us(), 60 * SECOND, "four times as much");
        assert!(lease.spend(1, 2 + END / 4 - 1));
        assert!(
            !lease.spend(1, 2 + END / 4),
            "the store may have heard of it, and writes it off after a margin"
        );
    }

    #[test]
    fn a_lease_that_is_renewed_for_its_age_asks_for_no_more_than_before() {
        let mut lease = ten(0);
        // A fourth is left, and less than that would be little.
        assert!(lease.spend(8, 1));
        assert_eq!(lease.renew(640, 1), None, "neither old nor low");
        let said = lease.renew(640, END - SECOND).expect("it ends soon");
        assert_eq!((said.held, said.wanted), (2, 8), "as much as before");
    }

    #[test]
    fn what_was_granted_on_the_way_is_counted_as_held_until_its_answer_comes_and_free_is_what_the_store_said_last()
     {
        let mut lease = Lease::default();
        let said = lease.ask(1, 640, SECOND);
        assert_eq!((said.sequence, said.wanted), (1, 10));
        // Another question was answered after this one, and its answer is here first: ten units are this host's, and 500 are free beside them.
        let later = Told { free: 500, heard: 1, holds: 10, ..told(0) };
        lease.answer(&Entry::default(), &later, SECOND);
        let left = lease.left(SECOND);
        assert_eq!((left.held, left.free), (10, 500));
        lease.answer(&said, &Told { free: 510, heard: 1, holds: 10, ..told(10) }, SECOND);
        let left = lease.left(SECOND);
        assert_eq!((left.held, left.free), (10, 500), "granted, and no longer free");
    }

    #[test]
    fn a_question_about_other_keys_takes_no_more_of_one_that_has_enough() {
        let mut lease = ten(0);
        for n in 1..100 {
            assert_eq!(lease.ask(5, 640, n), Entry::default());
        }
        assert_eq!(lease.ask(11, 640, 100).wanted, 20, "too little for this one");
    }

    #[test]
    fn what_was_never_leased_is_not_kept_for_long() {
        let mut lease = Lease::default();
        assert_eq!(lease.ask(1, 15, 0), Entry::default());
        lease.deny(1, 0, (SECOND, 1), 0);
        assert!(!lease.is_idle(SECOND));
        assert!(lease.is_idle(SECOND + 1));
        let mut lease = ten(0);
        assert!(!lease.is_idle(2 * 270 * SECOND));
        assert!(lease.is_idle(2 * 270 * SECOND + 1));
        let _under_way = lease.ask(1, 640, END);
        assert!(!lease.is_idle(u64::MAX));
    }

    #[test]
    fn a_lease_that_is_hardly_used_does_not_grow_when_it_is_renewed() {
        let mut lease = ten(0);
        for renewal in 1..10 {
            let now_us = renewal * 195 * SECOND;
            assert!(lease.spend(1, now_us), "it lasts");
            let said = lease.renew(640, now_us).unwrap();
            assert!(said.held + said.wanted <= 10, "{said:?}");
            lease.answer(&said, &told(said.wanted), now_us);
        }
    }

    #[test]
    fn a_lease_of_which_more_than_half_is_left_when_it_gets_old_is_half_as_large_from_then_on() {
        for (spent, held, wanted) in [(9, 10, 0), (10, 10, 10)] {
            let mut lease = ten(0);
            assert!(lease.spend(9, 1));
            let said = lease.renew(640, 1).unwrap();
            lease.answer(&said, &told(19), 1);
            // Of these twenty, and half of twenty is not more than half.
            assert!(lease.spend(spent, 2));
            let said = lease.renew(640, 100 * SECOND).expect("it ends soon");
            assert_eq!((said.held, said.wanted), (held, wanted), "{spent}");
        }
        // One that has run out is halved too, whatever was left of it.
        let mut lease = ten(0);
        assert!(lease.spend(9, 1));
        let said = lease.renew(640, 1).unwrap();
        lease.answer(&said, &told(19), 1);
        assert_eq!(lease.ask(1, 640, END).wanted, 10);
    }

    #[test]
    fn units_come_back_to_a_lease_for_as_long_as_they_may_be_spent() {
        let spent = || {
            let mut lease = ten(0);
            assert!(lease.spend(4, 1));
            lease
        };
        assert!(spent().refund(4, END - 1));
        assert!(!spent().refund(4, END), "the store writes them off");
        assert!(!spent().refund(5, 1), "more than was spent");
    }

    #[test]
    fn who_was_given_less_than_it_wanted_asks_again_when_it_must() {
        let mut lease = Lease::default();
        let said = lease.ask(1, 640, 0);
        lease.answer(&said, &told(3), 0);
        assert!(lease.spend(3, 1));
        assert!(!lease.is_due(1));
        assert!(lease.is_due(195 * SECOND));
    }

    #[test]
    fn a_renewal_that_had_no_answer_is_said_again_and_counts_once() {
        let mut lease = ten(0);
        assert!(lease.spend(9, 1));
        let said = lease.renew(640, 1).unwrap();
        lease.failed(&said);
        assert!(lease.spend(1, 2));
        assert_eq!(lease.renew(640, 2), Some(said), "what was spent since is told the next time");
        lease.answer(&said, &told(19), 2);
        assert_eq!(lease.ask(20, 640, 3).used, 1);
    }

    #[test]
    fn what_has_no_answer_is_said_again_as_it_was() {
        let mut lease = Lease::default();
        let said = lease.ask(1, 640, SECOND);
        assert_eq!(lease.ask(1, 640, SECOND), Entry::default(), "one at a time");
        lease.failed(&said);
        assert_eq!(lease.ask(1, 6_400, 2 * SECOND), said);
        lease.answer(&said, &told(10), 2 * SECOND);
        lease.answer(&said, &told(10), 2 * SECOND);
        assert!(lease.spend(10, 2 * SECOND));
        assert!(!lease.spend(1, 2 * SECOND), "an answer that comes twice counts once");
    }

    #[test]
    fn what_is_said_again_lasts_no_longer_than_from_the_first_time_on() {
        let mut lease = Lease::default();
        let said = lease.ask(1, 640, 0);
        lease.failed(&said);
        assert_eq!(lease.ask(1, 640, 60 * SECOND), said);
        lease.answer(&said, &told(10), 60 * SECOND);
        assert!(lease.spend(1, END - 1));
        assert!(!lease.spend(1, END), "the store writes it off a margin later");
    }

    #[test]
    fn units_that_the_store_is_being_told_of_are_not_taken_back() {
        let mut lease = Lease::default();
        let said = lease.ask(1, 640, 0);
        lease.answer(&said, &told(10), 0);
        assert!(lease.spend(4, 1));
        let said = lease.ask(7, 640, 1);
        assert_eq!((said.used, said.held), (4, 6));
        lease.unspend(4);
        lease.answer(&said, &told(0), 1);
        assert!(lease.spend(6, 1));
        assert!(!lease.spend(1, 1), "the four are charged");
    }

    #[test]
    fn units_that_are_taken_back_are_held_again_and_not_reported() {
        let mut lease = Lease::default();
        let said = lease.ask(1, 640, 0);
        lease.answer(&said, &told(10), 0);
        assert!(lease.spend(4, 1));
        lease.unspend(4);
        assert!(lease.spend(10, 1));
        assert_eq!(lease.ask(1, 640, 1).used, 10);
    }

    #[test]
    fn a_key_of_few_units_is_never_held_beforehand() {
        let mut lease = Lease::default();
        assert_eq!(lease.ask(1, 63, SECOND), Entry::default());
        assert_eq!(lease.ask(1, 64, SECOND).wanted, 1);
    }

    #[test]
    fn a_refusal_is_believed_for_those_who_need_as_much_and_not_for_long() {
        let mut lease = Lease::default();
        lease.deny(5, 7, (300_000, 1), SECOND);
        assert_eq!(lease.denies(5, 7, SECOND + 100_000), Some((200_000, 1)));
        assert_eq!(lease.denies(5, 8, SECOND + 100_000), None, "under other limits it may fit");
        assert_eq!(lease.denies(4, 7, SECOND + 100_000), None, "less may fit");
        assert_eq!(lease.denies(5, 7, SECOND + 300_000), None);
        lease.deny(1, 7, (3_600 * SECOND, 1), SECOND);
        assert_eq!(
            lease.denies(1, 7, 2 * SECOND - 1),
            Some((3_599 * SECOND + 1, 1)),
            "how long it really takes"
        );
        assert_eq!(lease.denies(1, 7, 2 * SECOND), None, "somebody may have given something back");
    }
}
