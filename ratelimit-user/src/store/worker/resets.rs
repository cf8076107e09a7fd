//! Resets that the store has not confirmed. They are kept, by key, until it does: their callers have been told that they are done.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::Worker;
use crate::{
    log,
    store::{backend::Backend, deadline::Deadline, record, redis::Call},
};

/// The most keys whose resets are kept, some 12 MB with the longest names.
pub const MOST_KEPT: usize = 10_000;
/// Resets that are sent before a batch of inquiries. They take as long as the inquiries.
const TOLD_AT_ONCE: usize = 250;
/// Time from an attempt that failed to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// Resets of too many keys are kept already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Resets that the store has not confirmed.
#[derive(Debug, Default)]
pub(super) struct KeptResets {
    /// The number of the newest reset of each key. The store carries out one number once, whether or not its answer arrives here.
    kept: BTreeMap<String, u64>,
    /// How many resets are on their way to the store, and may come back.
    told: usize,
    /// The moment before which no resets are sent, because an attempt has failed.
    next: Option<Instant>,
    /// When to look whether a store that is away is back. A question to the store before then looks, too.
    look: Option<Instant>,
    /// Whether the log was told that the store does not take resets.
    is_noted: bool,
}

impl KeptResets {
    /// Keeps resets of these keys: all of them or none.
    pub(super) fn keep(&mut self, keys: Vec<String>) -> Result<(), Full> {
        let new = keys.iter().filter(|key| !self.kept.contains_key(*key)).count();
        if self.kept.len() + self.told + new > MOST_KEPT {
            return Err(Full);
        }
        self.kept.extend(keys.into_iter().map(|key| (key, made_up_number())));
        Ok(())
    }

    /// Returns when to send resets; `None` if there are none.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.next.max(self.look);
        (!self.kept.is_empty()).then(|| due.unwrap_or_else(Instant::now))
    }

    /// Takes out some resets whose server can be told, or none before it is time.
    fn take(&mut self, now: Instant, can_be_told: impl Fn(&Call<'_>) -> bool) -> Vec<(String, u64)> {
        if self.next.is_some_and(|next| now < next) {
            return Vec::new();
        }
        let all = self.kept.iter().map(|(key, number)| (key.clone(), *number));
        let due = all.filter(|(key, number)| can_be_told(&record::reset_once(key, *number)));
        let due: Vec<(String, u64)> = due.take(TOLD_AT_ONCE).collect();
        due.iter().for_each(|(key, _)| _ = self.kept.remove(key));
        self.told = due.len();
        // If nothing can be sent, the kept resets need not be gone through for every batch.
        self.next = (due.is_empty() && !self.kept.is_empty()).then(|| now + PAUSE);
        due
    }

    /// Records that the store is away.
    fn put_off(&mut self, now: Instant) {
        (self.next, self.look) = (None, Some(now + PAUSE));
    }

    /// Keeps again what the store has not confirmed. A newer reset of a key takes the place of an older one.
    fn put_back(&mut self, failed: Vec<(String, u64)>, now: Instant) {
        self.told = 0;
        self.next = (!failed.is_empty()).then(|| now + PAUSE);
        for (key, number) in failed {
            self.kept.entry(key).or_insert(number);
        }
    }
}

/// Returns a number that no other reset of any host has.
fn made_up_number() -> u64 {
    use std::hash::BuildHasher as _;
    std::collections::hash_map::RandomState::new().hash_one(std::process::id())
}

impl<B: Backend> Worker<B> {
    /// Sends resets that the store has not confirmed, before anything else is asked of it.
    pub(super) async fn forget(&self) {
        let is_answering = self.state().servers.condition().answering > 0;
        let Some(link) = self.link().filter(|_| is_answering) else {
            return self.known.resets().put_off(Instant::now());
        };
        let can_be_told = |call: &Call<'_>| {
            link.server_of(call).is_some_and(|server| !self.state().servers.is_left_alone(&server))
        };
        let due = self.known.resets().take(Instant::now(), can_be_told);
        if due.is_empty() {
            return;
        }
        let calls: Vec<Call<'_>> = due.iter().map(|(key, number)| record::reset_once(key, *number)).collect();
        let answers = link.run(&calls, Deadline::after(self.deadline)).await;
        let mut failed = Vec::new();
        let mut why = None;
        for ((reset, call), answer) in due.into_iter().zip(&calls).zip(answers) {
            let Err(error) = answer else { continue };
            failed.push(reset);
            why.get_or_insert((link.server_of(call), error));
        }
        let mut resets = self.known.resets();
        resets.put_back(failed, Instant::now());
        let was_noted = std::mem::replace(&mut resets.is_noted, why.is_some());
        drop(resets);
        let Some((server, error)) = why else { return };
        if !was_noted {
            log::warning(format!(
                "keys were not reset in the store, and will be when it takes that: {error}"
            ));
        }
        // Requests are behind the resets in the queue, so a server that is late with resets is late.
        if let Some(server) = server.filter(|_| error.is_late()) {
            self.state().servers.heard(&server, Some(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("k{n}")).collect()
    }

    #[test]
    fn what_the_store_has_not_confirmed_is_told_again_with_its_number_and_not_at_once() {
        let (mut resets, now) = (KeptResets::default(), Instant::now());
        assert_eq!(resets.due(), None);
        resets.keep(vec!["a".into(), "b".into()]).unwrap();
        let told = resets.take(now, |_| true);
        assert_eq!((told.len(), resets.due()), (2, None), "they are on their way");
        resets.put_back(told[..1].to_vec(), now);
        assert_eq!(resets.due(), Some(now + PAUSE));
        assert_eq!(resets.take(now, |_| true), []);
        assert_eq!(resets.take(now + PAUSE, |_| true), told[..1], "of that number");
    }

    #[test]
    fn a_newer_reset_of_a_key_is_not_lost_to_an_older_one_that_comes_back() {
        let (mut resets, now) = (KeptResets::default(), Instant::now());
        resets.keep(vec!["a".into()]).unwrap();
        let older = resets.take(now, |_| true);
        resets.keep(vec!["a".into()]).unwrap();
        resets.put_back(older.clone(), now);
        let newer = resets.take(now + PAUSE, |_| true);
        assert_eq!(newer.len(), 1);
        assert_ne!(newer, older);
    }

    #[test]
    fn so_many_are_kept_and_all_of_a_request_or_none() {
        let (mut resets, now) = (KeptResets::default(), Instant::now());
        resets.keep(keys(MOST_KEPT - 1)).unwrap();
        let told = resets.take(now, |_| true);
        assert_eq!(told.len(), TOLD_AT_ONCE);
        assert_eq!(resets.keep(vec!["x".into(), "y".into()]), Err(Full), "those on their way may come back");
        assert_eq!(resets.keep(vec!["x".into()]), Ok(()));
        assert_eq!(resets.keep(vec!["x".into()]), Ok(()), "it is kept already");
        resets.put_back(told, now);
        assert_eq!(resets.kept.len(), MOST_KEPT);
        assert!(!resets.kept.contains_key("y"));
    }

    #[test]
    fn a_store_that_is_away_is_looked_for_and_whoever_finds_it_first_tells_it() {
        let (mut resets, now) = (KeptResets::default(), Instant::now());
        resets.keep(keys(2)).unwrap();
        resets.put_off(now);
        assert_eq!(resets.due(), Some(now + PAUSE));
        assert_eq!(resets.take(now, |_| true).len(), 2, "an inquiry has found it back");
        resets.put_back(Vec::new(), now);
        assert_eq!(resets.due(), None);
        // Resets for servers that are away are not sent, and not gone through again at once.
        resets.keep(keys(2)).unwrap();
        assert_eq!(resets.take(now, |call| call.keys[0] == b"k1").len(), 1);
        resets.put_back(Vec::new(), now);
        assert_eq!(
            (resets.take(now, |call| call.keys[0] == b"k1").len(), resets.due()),
            (0, Some(now + PAUSE))
        );
    }
}
