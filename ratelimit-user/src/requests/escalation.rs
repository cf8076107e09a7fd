//! Callers that stay above their limits: when one has been refused too often for too long, its address is to be blocked in the packet path.
//!
//! ```text
//! refusals -> a bucket of what is tolerable --empty--> since when? --long enough--> block
//!                                           --half full again--> forgotten
//! ```

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use ratelimit_common::limit::rate::Rate;
use tokio::sync::mpsc;

use super::{
    api_rules::ApiRules,
    cells::{Cells, Shape},
    key::{KeyHasher, KeyWriter as _},
};
use crate::{
    meter::{Meter, RequestBucket},
    policy::{Escalation, Prefix},
};

/// The most addresses whose refusals are counted.
const KEYS: usize = 100_000;
/// Words of an address: two of a bucket, and one for the moment since which the bucket has been empty.
const WORDS: usize = 3;
/// The most blocks that wait to be made. An address beyond them is an offence again at its next refusal.
const QUEUE: usize = 1_000;

/// An order to block addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// The addresses that are to be blocked.
    pub prefix: Prefix,
    /// How long the addresses are blocked, in nanoseconds.
    pub for_ns: u64,
    /// Why the addresses are blocked.
    pub reason: String,
}

/// Counts refusals of each address.
#[derive(Debug)]
pub(super) struct Offenders {
    hasher: KeyHasher,
    cells: Mutex<Cells>,
    found: mpsc::Sender<Offence>,
    to_be_taken: Mutex<Option<mpsc::Receiver<Offence>>>,
}

impl Default for Offenders {
    fn default() -> Self {
        let (found, taken) = mpsc::channel(QUEUE);
        let cells = Mutex::new(Cells::new(Shape { words: WORDS, logs: 0 }, KEYS));
        Self { hasher: KeyHasher::default(), cells, found, to_be_taken: Mutex::new(Some(taken)) }
    }
}

impl Offenders {
    /// Takes the receiver of offences; `None` if somebody has taken it already.
    pub(super) fn take(&self) -> Option<mpsc::Receiver<Offence>> {
        self.to_be_taken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Counts a refusal of an address. If the address has been refused too often for long enough, it becomes an offence.
    pub(super) fn refused(&self, api: &ApiRules, escalation: &Escalation, ip: IpAddr, now_us: u64) {
        let ip = ip.to_canonical();
        let length = if ip.is_ipv4() { escalation.ipv4_prefix } else { escalation.ipv6_prefix };
        let prefix = Prefix::masked(ip, length);
        let mut key = self.hasher.begin(api.index as u64);
        key.text(&prefix.to_string());
        let fingerprint = key.finish().fingerprint;
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let place = cells.find_or_insert(fingerprint);
        if !persists(cells.words_mut(place), escalation, now_us) {
            return;
        }
        // An address for which the queue has no room keeps its count, and is an offence again at its next refusal.
        let Ok(place) = self.found.try_reserve() else { return };
        cells.remove(fingerprint);
        drop(cells);
        let for_ns = escalation.block_for.as_nanos() as u64;
        place.send(Offence { prefix, for_ns, reason: format!("refused by api {}", api.name) });
    }
}

/// Counts one refusal, and returns whether there have been too many for long enough.
fn persists(words: &mut [u64], escalation: &Escalation, now_us: u64) -> bool {
    let Rate { amount, period, burst, .. } = escalation.above;
    // With a burst of 1, the unit that comes back between two refusals would look like a pause, even at twice the rate.
    let burst = burst.max(2);
    let meter = Meter::Bucket(RequestBucket::new(amount, period.ns() / 1_000, burst));
    let left = meter.left(words, now_us);
    if left > 0 {
        meter.charge(words, now_us, 1);
        if left > burst / 2 {
            words[2] = 0;
        }
        return false;
    }
    if words[2] == 0 {
        words[2] = now_us.max(1);
    }
    now_us.saturating_sub(words[2]) >= escalation.lasting.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use ratelimit_common::limit::text::parse_rate;

    use super::*;
    use crate::requests::api_rules::{Named, Prefixes};

    const SECOND: u64 = 1_000_000;

    fn escalation() -> Escalation {
        above("10/s")
    }

    fn above(rate: &str) -> Escalation {
        Escalation {
            above: parse_rate(rate).unwrap(),
            lasting: Duration::from_secs(30),
            block_for: Duration::from_secs(600),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
        }
    }

    /// Returns when a caller that is refused every `every_us` is found, in microseconds; `None` if never.
    fn found_after(every_us: u64) -> Option<u64> {
        found_above(&escalation(), every_us)
    }

    fn found_above(escalation: &Escalation, every_us: u64) -> Option<u64> {
        let mut words = [0; WORDS];
        (1..2_000).map(|n| n * every_us).find(|now_us| persists(&mut words, escalation, SECOND + now_us))
    }

    #[test]
    fn only_who_is_refused_faster_than_the_rate_and_for_long_enough_is_found() {
        let found = found_after(SECOND / 20).unwrap();
        assert!((30 * SECOND..33 * SECOND).contains(&found), "{found}");
        assert_eq!(found_after(SECOND / 9), None);
    }

    #[test]
    fn a_rate_of_one_with_a_burst_of_one_finds_those_who_are_faster_and_no_others() {
        for rate in ["1/s", "1/s burst 1", "1/s burst 2", "10/s burst 1", "60/min burst 3"] {
            let escalation = above(rate);
            let period = escalation.above.period.ns() / 1_000 / escalation.above.amount;
            // One and a half times the rate is enough.
            let found = found_above(&escalation, period * 2 / 3).unwrap_or_else(|| panic!("{rate}"));
            assert!((30 * SECOND..45 * SECOND).contains(&found), "{rate}: {found}");
            assert_eq!(found_above(&escalation, period * 10 / 9), None, "{rate}");
        }
    }

    #[test]
    fn an_address_for_which_the_queue_has_no_room_is_an_offence_at_its_next_refusal() {
        let api = ApiRules {
            name: "login".into(),
            index: 0,
            tally: Arc::default(),
            escalation: None,
            key: Vec::new(),
            allowance: 0,
            by_plan: Named::default(),
            by_user: Named::default(),
            prefixes: Prefixes { ipv4: 32, ipv6: 64 },
            login: None,
        };
        let offenders = Offenders::default();
        let mut found = offenders.take().unwrap();
        let refuse = |ip: u32, now_us: u64| {
            offenders.refused(&api, &escalation(), IpAddr::from(ip.to_be_bytes()), now_us);
        };
        let crowd = QUEUE as u32 + 1;
        let first = 0x0a00_0000;
        for ip in first..first + crowd {
            (0..700).for_each(|nth| refuse(ip, SECOND + nth * SECOND / 20));
        }
        let sent = std::iter::from_fn(|| found.try_recv().ok()).count();
        assert_eq!(sent, QUEUE);
        // Of two refusals in a row one finds the unit that has come back since.
        (700..702).for_each(|nth| refuse(first + crowd - 1, SECOND + nth * SECOND / 20));
        assert_eq!(found.try_recv().unwrap().prefix.to_string(), "10.0.3.232/32");
    }

    #[test]
    fn a_pause_begins_the_count_anew() {
        let mut words = [0; WORDS];
        let mut now_us = SECOND;
        for _ in 0..20 {
            // 25 s of refusals, then 5 s of rest: never 30 s on end.
            for _ in 0..500 {
                now_us += SECOND / 20;
                assert!(!persists(&mut words, &escalation(), now_us));
            }
            now_us += 5 * SECOND;
        }
    }
}
