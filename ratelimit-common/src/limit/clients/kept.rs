//! What the daemon does with the words of clients: it shows them, keeps them across reboots and imports them. The kernel program has no part in it.

use super::{
    AHEAD, AVERAGE_SHIFT, CLAIM_ROOM, CLAIM_UNIT_BITS, CONSTANT_BITS, Client, DEBT_BITS, DEBT_MASK,
    FORGOTTEN, HITS_SHIFT, KNOWN, STEP_BITS, STEP_MASK, STEP_SHIFT, TAG_SHIFT, TIME_BITS, TIME_FRAC_BITS,
    TIME_MASK, encode,
};

/// The length of a step in nanoseconds.
pub const STEP_NS: u64 = 1 << STEP_BITS;
/// Seconds after which a client is forgotten.
pub const MOST_SECONDS: u64 = FORGOTTEN * STEP_NS / 1_000_000_000;

/// The numbers of services that names of clients can tell apart.
pub const SERVICE_NUMBERS: usize = 1 << 7;

/// The number that tells services apart: of a service by its group, and of an IPv4 client by its name within its set. Of IPv6 clients any number comes out.
pub const fn service_number(group_or_tag: u64) -> usize {
    group_or_tag as usize % SERVICE_NUMBERS
}

/// The number of whole steps in so many milliseconds.
pub const fn steps_in_ms(ms: u64) -> u64 {
    ((ms as u128 * 1_000_000) >> STEP_BITS) as u64
}

impl Client {
    /// A client that is known, was last met in a step, and was served so much on average then, in 1/256 packets per step. The average is rounded down.
    pub const fn imported(tag: u64, step: u64, average: u64) -> Self {
        Self(tag << TAG_SHIFT | KNOWN << HITS_SHIFT | encode(average, 0, 0) << AVERAGE_SHIFT).with_step(step)
    }

    const fn with_step(self, step: u64) -> Self {
        Self(self.0 & !(STEP_MASK << STEP_SHIFT) | (step & STEP_MASK) << STEP_SHIFT)
    }

    /// Whether the place has a client that was not met for thirty days.
    pub const fn is_expired(self, step: u64) -> bool {
        self.hits() != 0 && self.age(step) > FORGOTTEN
    }

    /// The average in 1/256 packets per step, at the end of the step in which the client was last served.
    pub const fn average_when_served(self, step: u64) -> u64 {
        if self.age(step) == 0 { self.average() } else { self.moved() >> CONSTANT_BITS }
    }

    /// The client with its age in the place of its step, because steps are counted anew after each boot.
    pub const fn aged(self, step: u64) -> Self {
        self.with_step(self.age(step))
    }

    /// The client that was [`aged`](Self::aged) so many steps ago; `None` if it is forgotten by now.
    pub const fn since_aged(self, steps: u64, step: u64) -> Option<Self> {
        let age = (self.0 >> STEP_SHIFT & STEP_MASK).saturating_add(steps);
        if self.hits() == 0 || age > FORGOTTEN { None } else { Some(self.with_step(step.wrapping_sub(age))) }
    }
}

/// The part of what it may owe of its claim that a client owes, in percent, if claims fit. `claimed` is the word of what it has claimed.
pub const fn owed_percent(claimed: u64, now_q8: u64) -> u64 {
    let now = now_q8 >> (TIME_BITS + TIME_FRAC_BITS) & TIME_MASK;
    let since = now.wrapping_sub(claimed >> (2 * DEBT_BITS)) & TIME_MASK;
    let since = if since > TIME_MASK - AHEAD { 0 } else { since };
    let debt = (claimed >> DEBT_BITS & DEBT_MASK).saturating_sub(since << (TIME_BITS - CLAIM_UNIT_BITS));
    (debt * 100).div_ceil(CLAIM_ROOM)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            super::prefilter::{group_hash, hash_v4, split_mix::SplitMix},
            AHEAD_STEPS, ReservePressure, claim, step, tag,
        },
        *,
    };

    const STEP_Q8: u64 = STEP_NS << TIME_FRAC_BITS;
    /// A moment just before steps of 16 bits begin at 0 again.
    const WRAPS_Q8: u64 = STEP_Q8 << 16;
    const DAY_MS: u64 = 86_400_000;

    #[test]
    fn a_kept_client_is_as_old_by_another_clock() {
        let mut numbers = SplitMix(1);
        for _ in 0..10_000 {
            let hash = numbers.next();
            let (before_q8, after_q8) = (WRAPS_Q8 - numbers.below(1 << 44), numbers.below(1 << 50));
            let age = numbers.below(FORGOTTEN);
            let met = step(hash, before_q8.wrapping_sub(age * STEP_Q8));
            let client = Client::imported(7, met, 12_345);
            let kept = client.aged(step(hash, before_q8));
            for (ms, steps) in [(0, 0), (68_000, 0), (69_000, 1), (DAY_MS, 1_257)] {
                assert_eq!(steps_in_ms(ms), steps);
                let now = step(hash, after_q8);
                let since = kept.since_aged(steps, now);
                if age + steps > FORGOTTEN {
                    assert_eq!(since, None);
                    continue;
                }
                let since = since.unwrap();
                assert_eq!((since.age(now), since.average()), (age + steps, client.average()));
                assert_eq!((since.tag(), since.is_known()), (7, true));
            }
            assert_eq!(kept.since_aged(steps_in_ms(60 * DAY_MS), 0), None, "sixty days off");
            assert_eq!(kept.since_aged(steps_in_ms(u64::MAX), 0), None);
        }
    }

    #[test]
    fn a_client_expires_after_thirty_days_and_not_before() {
        let client = Client::imported(1, 5, 0);
        for (age, is_expired) in [
            (0, false),
            (FORGOTTEN, false),
            (FORGOTTEN + 1, true),
            (STEP_MASK - AHEAD_STEPS, true),
            // The client was met after the reader looked at the clock.
            (STEP_MASK, false),
        ] {
            assert_eq!(client.is_expired((5 + age) & STEP_MASK), is_expired, "{age}");
        }
        assert!(!Client::NONE.is_expired(FORGOTTEN + 1));
        assert_eq!(client.aged(4).since_aged(0, 9), Some(Client::imported(1, 9, 0)));
    }

    #[test]
    fn an_imported_average_is_rounded_down() {
        for average in [0, 1, 255, 257, 123_457, 87_960_930, u64::MAX >> 8] {
            let client = Client::imported(1, 0, average);
            assert!(client.average() <= average && client.average() >= average.min(255 << 30) / 256 * 254);
            assert!((0..2_000).all(|step| client.average_at(step) <= average), "{average}");
        }
    }

    #[test]
    fn what_is_owed_of_a_claim_is_paid_with_time() {
        let (mut claimed, average, now_q8) = (0, 10_000, 77 << 50);
        assert_eq!(owed_percent(claimed, now_q8), 0);
        let mut before = 0;
        while let Some(next) = claim(claimed, (average, 0), ReservePressure::NONE, (now_q8, u64::MAX >> 8), 0)
            && owed_percent(next, now_q8) > before
        {
            (claimed, before) = (next, owed_percent(next, now_q8));
        }
        assert!(before >= 99, "{before} %");
        assert!((49..=51).contains(&owed_percent(claimed, now_q8 + STEP_Q8 / 8)));
        assert_eq!(owed_percent(claimed, now_q8 + STEP_Q8 / 4), 0);
    }

    #[test]
    fn names_of_ipv4_clients_have_their_services_number() {
        let mut numbers = SplitMix(3);
        for _ in 0..1_000 {
            let (address, group) = (numbers.next() as u32, numbers.next() >> 32);
            let secret = [numbers.next() | 1, numbers.next() | 1];
            let name = tag(group_hash(hash_v4(address, secret), group, secret));
            assert_eq!(service_number(name), service_number(group));
        }
    }
}
