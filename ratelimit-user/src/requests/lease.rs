//! The lease of one key on this host: units that may be spent without asking, until when, and when to ask for more. Pure: clock and answers are arguments.

mod denied;
mod talk;
#[cfg(test)]
mod tests;

use self::{denied::Denied, talk::Talk};
use crate::store::{ask::Told, exchange::Entry};

/// A host asks at first for one part in this many of the units that a key may have at once. A key that may have fewer units than this is never leased:
/// the store decides about each of its requests.
pub const PORTION: u64 = 64;
/// A host asks at most for one part in this many of the units that a key may have at once.
pub(super) const MOST: u64 = 8;
/// A lease is renewed when less than one part in this many of its units is left, before somebody has to wait for more.
const LOW: u64 = 4;
/// A lease is renewed when less than one part in this many of its life is left.
const LATE: u64 = 16;
/// Microseconds that a refusal is believed at most: others may give something back.
const BELIEVED_US: u64 = 1_000_000;

/// A lease, and the last answer of the store about its key. All that every decision looks at is here and small, because most decisions wait for memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestLease {
    /// Units that may be spent.
    held: u64,
    /// Units spent that the store has not heard of.
    used: u64,
    /// Until when held units may be spent.
    expires_us: u64,
    /// The lease is renewed from this moment on.
    renew_us: u64,
    /// The lease is renewed when less than this is held.
    renew_below: u64,
    /// Until when a refusal is believed.
    denied_until_us: u64,
    /// Units of the nearest limit that were free at the store when it last answered.
    free: u64,
    /// When the store last answered, in microseconds since 1970.
    told_us: u64,
    /// The index of the nearest limit when the store last answered.
    nearest: u32,
    /// Whether an entry is on its way to the store, or its answer on the way back.
    under_way: bool,
    talk: Box<Talk>,
}

/// What is left of a key as far as a host knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Units that the host holds.
    pub held: u64,
    /// Units that are spent, and that the store has not been told of.
    pub used: u64,
    /// Units that were free at the store when it last answered.
    pub free: u64,
    /// When the store last answered, in microseconds since 1970.
    pub told_us: u64,
    /// The limit that was nearest to its end.
    pub nearest: usize,
}

impl RequestLease {
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

    /// Spent units that the store is not hearing of at this moment: what it hears of is charged there.
    fn used_untold(&self) -> u64 {
        self.used.saturating_sub(self.talk.used_unanswered())
    }

    /// Takes back units that were spent a moment ago and are not needed.
    pub fn unspend(&mut self, units: u64) {
        let back = units.min(self.used_untold());
        self.used -= back;
        self.held += back;
    }

    /// Takes back units that were spent on a request that was not served, if the store has not heard of them and they may still be spent.
    pub fn refund(&mut self, units: u64, now_us: u64) -> bool {
        let known_here = now_us < self.expires_us && self.used_untold() >= units;
        if known_here {
            self.unspend(units);
        }
        known_here
    }

    /// Returns for how many microseconds a request that needs `needed` units is still refused, and a bit for each limit that refuses it, if the store has
    /// refused it under these terms. Under other terms the store has to be asked.
    pub fn denies(&self, needed: u64, terms: u64, now_us: u64) -> Option<(u64, u64)> {
        if now_us >= self.denied_until_us {
            return None;
        }
        self.talk.denied.of(needed, terms, now_us)
    }

    /// Whether the store has refused a request that needs `needed` units under these terms before, for longer than until now. The refusal need not be believed
    /// any more: the store was asked again, and says no once more.
    pub fn recalls(&self, needed: u64, terms: u64, now_us: u64) -> bool {
        self.talk.denied.of(needed, terms, now_us).is_some_and(|(wait_us, _)| wait_us > 0)
    }

    /// Returns the entry about this key for a question about a request of `units` units, if the key may have `capacity` at once. The entry is empty while
    /// an answer is under way, and while enough is held for that request and for long, because other hosts may lack units.
    pub fn ask(&mut self, units: u64, capacity: u64, now_us: u64) -> Entry {
        if self.under_way || self.talk.unanswered.is_some() {
            return self.say_again(now_us).unwrap_or_default();
        }
        if self.has(units, now_us) {
            return self.renew(capacity, now_us).unwrap_or_default();
        }
        if now_us >= self.expires_us {
            self.talk.shrink(self.held);
            self.held = 0;
        } else {
            self.talk.grow();
        }
        self.talk.fit(capacity);
        if self.talk.portion == 0 && self.used == 0 && self.talk.sequence == 0 {
            return Entry::default();
        }
        self.say(self.talk.portion, capacity, now_us)
    }

    /// Whether the lease ends soon, or little of it is left, and no entry is under way.
    pub fn is_due(&self, now_us: u64) -> bool {
        !self.under_way && (now_us >= self.renew_us || self.held < self.renew_below)
    }

    /// Returns the entry for a lease that is due. Nobody waits for the answer: held units may be spent in the meantime.
    pub fn renew(&mut self, capacity: u64, now_us: u64) -> Option<Entry> {
        if !self.is_due(now_us) {
            return None;
        }
        if self.talk.unanswered.is_some() {
            return self.say_again(now_us);
        }
        if self.held < self.renew_below {
            self.talk.grow();
        } else {
            self.talk.shrink(self.held);
        }
        self.talk.fit(capacity);
        // Units beyond the portion go back to the store.
        self.held = self.held.min(self.talk.portion);
        Some(self.say(self.talk.portion - self.held, capacity, now_us))
    }

    /// How long the lease lasts that the store grants for the last entry, in microseconds.
    pub fn life_us(&self) -> u64 {
        self.talk.life_us
    }

    fn say(&mut self, wanted: u64, capacity: u64, now_us: u64) -> Entry {
        self.under_way = true;
        let unnumbered = Entry { sequence: 0, used: self.used, held: self.held, wanted };
        let entry = self.talk.say(unnumbered, capacity, now_us);
        // A life that is shorter than the last one counts from when the store hears of it, which may be long before the answer comes.
        self.expires_us = self.expires_us.min(self.talk.expires_us());
        entry
    }

    /// The entry that has no answer, unless it is under way.
    fn say_again(&mut self, now_us: u64) -> Option<Entry> {
        if self.under_way {
            return None;
        }
        let entry = self.talk.say_again(now_us)?;
        self.under_way = true;
        Some(entry)
    }

    /// Takes the answer to an entry. What is granted for an entry that was sent again lasts from when it was first sent.
    pub fn answer(&mut self, said: &Entry, told: &Told, now_us: u64) {
        if !self.talk.awaits(said) {
            // An answer may arrive here after answers that the store gave later, and those include it.
            if told.heard >= self.talk.answered() {
                self.talk.coming = self.talk.granted_unanswered(told, self.held, self.used);
                self.learn(told, told.heard, now_us);
            }
            return;
        }
        if self.talk.free_since >= said.sequence {
            // The number of free units is from after this grant, and does not count the granted units as free.
            self.free = (self.free + self.talk.coming).saturating_sub(told.granted);
        } else {
            self.learn(told, said.sequence, now_us);
        }
        self.talk.coming = 0;
        (self.talk.unanswered, self.under_way) = (None, false);
        self.used -= said.used.min(self.used);
        if now_us >= self.expires_us {
            // The held units have expired while the answer was under way.
            self.held = 0;
        }
        let expires_us = self.talk.expires_us();
        if now_us < expires_us {
            self.held += told.granted;
            self.expires_us = expires_us;
            let life_us = self.talk.life_us;
            self.renew_us = expires_us - life_us / LATE - spread_us(self.talk.said_us, life_us);
            // A host that was given less than it wanted is near the limit, where the store decides.
            self.renew_below = if told.granted == said.wanted { self.talk.portion / LOW } else { 0 };
        }
    }

    /// Remembers what the store told of the key when `heard` was the last entry that it had heard.
    fn learn(&mut self, told: &Told, heard: u64, now_us: u64) {
        self.talk.free_since = heard;
        (self.free, self.told_us, self.nearest) = (told.free, now_us, told.nearest as u32);
    }

    /// Notes that an entry had no answer.
    pub fn failed(&mut self, said: &Entry) {
        if self.talk.awaits(said) {
            self.under_way = false;
        }
    }

    /// Remembers a refusal under these terms.
    pub fn deny(&mut self, needed: u64, terms: u64, (wait_us, violated): (u64, u64), now_us: u64) {
        self.denied_until_us = now_us + wait_us.min(BELIEVED_US);
        self.talk.denied = Denied::new(needed, terms, (wait_us, violated), now_us);
    }

    /// Forgets the last refusal, because something has been given back.
    pub fn hope(&mut self) {
        self.denied_until_us = 0;
        self.talk.denied = Denied::default();
    }

    /// Forgets what is held, used and refused: somebody has reset the key.
    pub fn forget(&mut self) {
        (self.held, self.used) = (0, 0);
        self.hope();
    }

    /// Returns what is left of the key as far as this host knows.
    pub fn left(&self, now_us: u64) -> Left {
        let held = if now_us < self.expires_us { self.held } else { 0 };
        let held = if self.under_way { held + self.talk.coming } else { held };
        Left { held, used: self.used, free: self.free, told_us: self.told_us, nearest: self.nearest as usize }
    }

    /// Whether the lease can be dropped and nothing is lost.
    pub fn is_idle(&self, now_us: u64) -> bool {
        self.talk.is_forgotten(now_us) && !self.under_way && self.denied_until_us < now_us
    }
}

/// Returns how many microseconds earlier than necessary a lease is renewed: up to half of its life, as good as at random. Leases that were taken at one
/// moment, after a start or after the store was away, are so not all renewed at one moment.
fn spread_us(sent_us: u64, life_us: u64) -> u64 {
    const STEPS: u64 = 1_024;
    life_us / 2 * (sent_us % STEPS) / STEPS
}
