//! The engine: rules, and the counters of keys. Any number of threads may ask it at once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use arc_swap::{ArcSwap, Cache, Guard};

use super::{
    cells::Shape,
    counter_keys::{CounterKey, CounterKeys, write},
    decision::Decision,
    judge::{JudgeMode, Moment, judge},
    key::Hash,
    lineage::Inheritance,
    request::{BadRequest, Request},
    rules::Rules,
    table::{Locked, Table, Usage},
    throttle::{self, Throttled},
};
use crate::{
    meter::RequestBucket,
    policy::{OnRefusal, Policy},
};

/// The decision engine: answers questions about requests.
#[derive(Debug)]
pub struct Engine {
    rules: ArcSwap<Rules>,
    table: Table,
    headroom: AtomicBool,
}

/// An engine as one thread uses it: the rules are at hand, and looking for newer rules before each decision costs the read of one number.
#[derive(Debug)]
pub struct Handle<'e> {
    engine: &'e Engine,
    rules: Cache<&'e ArcSwap<Rules>, Arc<Rules>>,
}

impl Handle<'_> {
    /// Decides about a request and counts it.
    #[inline]
    pub fn decide(&mut self, request: &Request<'_>, now_us: u64) -> Result<Decision<'_>, BadRequest> {
        self.engine.decide(self.rules.load(), request, now_us)
    }
}

impl Engine {
    /// An engine for a policy. `now_us` is the time, in microseconds since 1970.
    pub fn new(policy: &Policy, now_us: u64) -> Self {
        Self {
            rules: ArcSwap::from_pointee(Rules::new(policy, now_us)),
            table: Table::new(policy.requests().keys),
            headroom: AtomicBool::new(true),
        }
    }

    /// Follows a policy from the next request on. Counts stay, except those of limits whose algorithm or window changes. Other limits may come, go or move
    /// beside a limit that stays.
    pub fn follow(&self, policy: &Policy, now_us: u64) {
        let next = Rules::new(policy, now_us).following(&self.rules.load(), now_us);
        self.rules.store(Arc::new(next));
    }

    /// Says whether the host has headroom, for elastic limits.
    pub fn set_headroom(&self, headroom: bool) {
        self.headroom.store(headroom, Ordering::Relaxed);
    }

    /// The rules in force, for as long as one decision is looked at.
    pub fn rules(&self) -> Guard<Arc<Rules>> {
        self.rules.load()
    }

    /// Makes a handle for a thread that decides often.
    pub fn handle(&self) -> Handle<'_> {
        Handle { engine: self, rules: Cache::new(&self.rules) }
    }

    /// Decides about a request and counts it.
    #[inline]
    pub fn decide<'r>(
        &self,
        rules: &'r Rules,
        request: &Request<'_>,
        now_us: u64,
    ) -> Result<Decision<'r>, BadRequest> {
        Ok(self.judge(&self.counter_keys(rules, request, now_us)?, request, now_us, JudgeMode::Take))
    }

    /// Decides about a request without counting it.
    pub fn peek<'r>(
        &self,
        rules: &'r Rules,
        request: &Request<'_>,
        now_us: u64,
    ) -> Result<Decision<'r>, BadRequest> {
        Ok(self.judge(&self.counter_keys(rules, request, now_us)?, request, now_us, JudgeMode::Peek))
    }

    /// The rules in force, for longer than one decision.
    pub fn rules_for_long(&self) -> Arc<Rules> {
        self.rules.load_full()
    }

    /// Whether the host has headroom, for elastic limits.
    pub fn headroom(&self) -> bool {
        self.headroom.load(Ordering::Relaxed)
    }

    /// Returns the counter keys of a request. If the user has logged in from the address lately, the key that other addresses share is left out.
    #[inline]
    pub fn counter_keys<'r>(
        &self,
        rules: &'r Rules,
        request: &Request<'_>,
        now_us: u64,
    ) -> Result<CounterKeys<'r>, BadRequest> {
        let mut counters = rules.counter_keys(request)?;
        if counters.known.is_some() && self.is_known(&counters, now_us) {
            counters.forget_other_addresses();
        }
        Ok(counters)
    }

    /// Decides from the counters of this host alone.
    #[inline]
    pub fn judge<'r>(
        &self,
        counters: &CounterKeys<'r>,
        request: &Request<'_>,
        now_us: u64,
        mode: JudgeMode,
    ) -> Decision<'r> {
        let moment = Moment { now_us, headroom: self.headroom() };
        let mut locked = self.lock(counters, request, now_us);
        judge(counters, &mut locked, request, moment, mode)
    }

    /// Gives back what a request was charged lately, because it was not served or because a login succeeded. From then on the address of a login is known
    /// to its user. Returns whether anything was given back.
    pub fn refund(&self, rules: &Rules, request: &Request<'_>, now_us: u64) -> Result<bool, BadRequest> {
        let counters = self.counter_keys(rules, request, now_us)?;
        let back = self.give_back(&counters, request, 0, now_us);
        if back {
            self.know(&counters, now_us);
        }
        Ok(back)
    }

    /// Gives back what counter keys of this host alone were charged `age_us` ago; 0 is any age. Returns whether anything was given back.
    pub fn give_back(
        &self,
        counters: &CounterKeys<'_>,
        request: &Request<'_>,
        age_us: u64,
        now_us: u64,
    ) -> bool {
        let headroom = self.headroom();
        let mut locked = self.lock(counters, request, now_us);
        let mut back = false;
        for counter in counters.iter() {
            let cells = locked.of(counter);
            let Some(place) = cells.find(counter.hash.fingerprint) else { continue };
            for limit in &counter.allowance.limits {
                let (meter, words) = (limit.in_force(headroom).meter, cells.part_mut(place, limit.at));
                let somebody_waits = match meter.bucket() {
                    Some(bucket) if matches!(counter.allowance.on_limit, OnRefusal::Delay(_)) => {
                        bucket.is_waited_for(words, now_us, request.cost, limit.queue)
                    }
                    _ => false,
                };
                // While somebody waits in a queue, nothing is given back: the end of the queue would move to a moment at which somebody has a turn already.
                if !somebody_waits {
                    back |= meter.refund(words, now_us, age_us, request.cost);
                }
            }
        }
        back
    }

    /// Remembers that the user has logged in from the address of the request.
    pub fn know(&self, counters: &CounterKeys<'_>, now_us: u64) {
        let Some(known) = &counters.known else { return };
        let mut locked = self.table.lock(std::iter::once(&known.hash));
        let cells = locked.cells(known.hash, KNOWN);
        let place = cells.find_or_insert(known.hash.fingerprint);
        cells.words_mut(place)[0] = now_us + known.for_us;
    }

    /// Forgets what this host has counted under the keys of a request, also what it counted alone while the store was away.
    pub fn reset(&self, rules: &Rules, request: &Request<'_>) -> Result<(), BadRequest> {
        let counters = rules.counter_keys(request)?;
        self.forget(&counters, request);
        // Each key by itself: there is no key of this host alone where the host refuses everything without the store, and the other keys are still forgotten.
        for counter in counters.iter() {
            let one = counters
                .only(|other| other.hash == counter.hash && std::ptr::eq(other.allowance, counter.allowance));
            if let Some(alone) = rules.alone(&one) {
                self.forget(&alone, request);
            }
        }
        Ok(())
    }

    fn forget(&self, counters: &CounterKeys<'_>, request: &Request<'_>) {
        let mut locked = self.table.lock(counters.iter().map(|counter| &counter.hash));
        for counter in counters.iter() {
            locked.of(counter).remove(counter.hash.fingerprint);
        }
        drop(locked);
        for counter in counters.iter() {
            for inheritance in &counter.allowance.inherits {
                let Some(hash) = self.past_hash(counter, request, inheritance) else { continue };
                let mut locked = self.table.lock(std::iter::once(&hash));
                locked.cells(hash, inheritance.list.shape).remove(hash.fingerprint);
            }
        }
    }

    /// Locks the keys of a request. After a change of its list of limits, a key without counts first takes over the counts of lists before.
    #[inline]
    fn lock(&self, counters: &CounterKeys<'_>, request: &Request<'_>, now_us: u64) -> Locked<'_> {
        let lock = || self.table.lock(counters.iter().map(|counter| &counter.hash));
        let mut locked = lock();
        let mut is_there = |counter: &CounterKey<'_>| {
            !counter.allowance.inherits(now_us) || locked.of(counter).find(counter.hash.fingerprint).is_some()
        };
        if counters.iter().all(&mut is_there) {
            return locked;
        }
        drop(locked);
        for counter in counters.iter().filter(|counter| counter.allowance.inherits(now_us)) {
            self.carry_over(counter, request, now_us);
        }
        lock()
    }

    #[cold]
    fn carry_over(&self, counter: &CounterKey<'_>, request: &Request<'_>, now_us: u64) {
        let (allowance, hash) = (counter.allowance, counter.hash);
        if self.table.lock(std::iter::once(&hash)).of(counter).find(hash.fingerprint).is_some() {
            return;
        }
        let mut found = vec![None; allowance.limits.len()];
        for inheritance in allowance.inherits.iter().filter(|inheritance| now_us < inheritance.until_us) {
            let Some(past) = self.past_hash(counter, request, inheritance) else { continue };
            // Takes one lock at a time: decisions take their locks in an order that these keys do not follow.
            let mut locked = self.table.lock(std::iter::once(&past));
            let cells = locked.cells(past, inheritance.list.shape);
            if let Some(place) = cells.find(past.fingerprint) {
                inheritance.carry(cells, place, allowance, &mut found, now_us);
            }
        }
        if found.iter().all(Option::is_none) {
            return;
        }
        let mut locked = self.table.lock(std::iter::once(&hash));
        let cells = locked.of(counter);
        // Another thread may have carried the counts over meanwhile, and charged the key.
        if cells.find(hash.fingerprint).is_none() {
            let place = cells.insert(hash.fingerprint);
            for (limit, words) in allowance.limits.iter().zip(found) {
                words.into_iter().for_each(|words| cells.set_part(place, limit.at, words));
            }
            locked.bound_logs(counter);
        }
    }

    /// Returns the hash that a counter key had under a list of limits before.
    fn past_hash(
        &self,
        counter: &CounterKey<'_>,
        request: &Request<'_>,
        inheritance: &Inheritance,
    ) -> Option<Hash> {
        let mut key = self.rules.load().hasher().begin(inheritance.list.seed);
        write(counter.subject, request, &mut key).ok()?;
        Some(key.finish().salted(inheritance.list.salt))
    }

    /// Whether this user has logged in from this address lately.
    fn is_known(&self, counters: &CounterKeys<'_>, now_us: u64) -> bool {
        let Some(known) = &counters.known else { return false };
        let mut locked = self.table.lock(std::iter::once(&known.hash));
        let cells = locked.cells(known.hash, KNOWN);
        cells.find(known.hash.fingerprint).is_some_and(|place| now_us < cells.words(place)[0])
    }

    /// Takes from a bucket that the caller describes, under a key of its own: what `CL.THROTTLE` does.
    pub fn throttle(&self, key: &[u8], bucket: &RequestBucket, quantity: u64, now_us: u64) -> Throttled {
        let hash = throttle::hash(self.rules.load().hasher(), key);
        let mut locked = self.table.lock(std::iter::once(&hash));
        let cells = locked.cells(hash, throttle::SHAPE);
        throttle::take(cells, hash, bucket, quantity, now_us)
    }

    /// Returns how full the table is.
    pub fn usage(&self) -> Usage {
        self.table.usage()
    }
}

/// The words of a user and address that are known: until when, in microseconds since 1970.
const KNOWN: Shape = Shape { words: 1, logs: 0 };
