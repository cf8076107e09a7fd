//! The tokens of one bucket that one proxy holds. Pure: time is an argument.
//!
//! Tokens are charged when they are assigned. A proxy may use what it has of an assignment until the next one has reached it, so that an
//! assignment that is replaced stays paid for until a report says that the new one is in force.
//!
//! ```text
//! held     charged, and neither reported as used nor given back
//! current  the part of `held` that the newest assignment can still give at most
//! ```

/// How long an assignment is good for, in whole seconds: Envoy drops fractions of a second.
pub const LIFE_S: u64 = 10;
const LIFE_US: u64 = LIFE_S * 1_000_000;
/// Microseconds that an assignment may take to reach a proxy. A report that comes sooner may have been sent before the assignment was there.
const ON_ITS_WAY_US: u64 = 200_000;
/// An assignment is extended while it is good for this many microseconds more. One that has ended would begin anew, with all its tokens.
const MARGIN_US: u64 = 2_000_000;

/// One proxy's quota of one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyQuota {
    held: u64,
    current: u64,
    /// The tokens of the newest assignment when it was assigned.
    tokens: u64,
    sent_us: u64,
    ends_us: u64,
    /// The number of the newest assignment. Proxies see an assignment as new only if it differs from the one before.
    serial: u32,
}

/// What follows from a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Booked {
    /// Tokens that were used beyond what was assigned, to be charged.
    pub unpaid: u64,
    /// Tokens that cannot be used any more, to be given back.
    pub unused: u64,
}

/// What a proxy is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaPlan {
    /// The assignment that the proxy has goes on.
    Extend,
    /// The proxy may serve at most this many requests, instead of what it has.
    Assign(u64),
    /// The proxy gets nothing for now.
    Deny,
}

impl ProxyQuota {
    /// The tokens that are charged, and neither reported as used nor given back.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Returns the tokens of the newest assignment, and its number.
    pub fn assignment(&self) -> (u64, u32) {
        (self.tokens, self.serial)
    }

    /// Records the tokens that were used since the last report.
    pub fn report(&mut self, used: u64, now_us: u64) -> Booked {
        let paid = used.min(self.held);
        let unpaid = used - paid;
        self.held -= paid;
        if now_us >= self.ends_us {
            // Tokens that were not reported in time count as used.
            (self.held, self.current) = (0, 0);
            return Booked { unpaid, unused: 0 };
        }
        self.current = self.current.min(self.held);
        if now_us < self.sent_us + ON_ITS_WAY_US {
            return Booked { unpaid, unused: 0 };
        }
        let unused = self.held - self.current;
        self.held = self.current;
        Booked { unpaid, unused }
    }

    /// Decides what a proxy is told if `left` tokens could be assigned, `proxies` proxies have the bucket, and this one was `idle` since its last report.
    pub fn plan(&self, left: u64, proxies: u64, idle: bool, now_us: u64) -> QuotaPlan {
        let share = (left + self.current).div_ceil(proxies.max(1));
        let extendable = self.current > 0 && now_us + MARGIN_US < self.ends_us;
        match left {
            0 if extendable && !(idle && self.current > share) => QuotaPlan::Extend,
            0 => QuotaPlan::Deny,
            _ if extendable && self.current.saturating_mul(2) >= share => QuotaPlan::Extend,
            _ => QuotaPlan::Assign(share.min(left)),
        }
    }

    /// Notes an assignment that has been charged.
    pub fn assigned(&mut self, tokens: u64, now_us: u64) {
        *self = Self {
            held: self.held + tokens,
            current: tokens,
            tokens,
            sent_us: now_us,
            ends_us: now_us + LIFE_US,
            serial: self.serial % 999 + 1,
        };
    }

    /// Records that nothing is assigned for now. Once more changes nothing but its end, because unused tokens were taken back the first time.
    pub fn denied(&mut self, now_us: u64) {
        match self.tokens {
            0 => self.extended(now_us),
            _ => self.assigned(0, now_us),
        }
    }

    /// Notes that the newest assignment goes on.
    pub fn extended(&mut self, now_us: u64) {
        self.ends_us = now_us + LIFE_US;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn with(tokens: u64) -> ProxyQuota {
        let mut quota = ProxyQuota::default();
        quota.assigned(tokens, 0);
        quota
    }

    #[test]
    fn what_is_used_of_an_assignment_is_paid_for() {
        let mut quota = with(10);
        assert_eq!(quota.report(4, S), Booked { unpaid: 0, unused: 0 });
        assert_eq!(quota.held(), 6);
        assert_eq!(quota.report(8, 2 * S), Booked { unpaid: 2, unused: 0 });
        assert_eq!(quota.held(), 0);
    }

    #[test]
    fn what_an_assignment_left_is_given_back_when_the_next_one_is_known_to_be_there() {
        let mut quota = with(10);
        quota.report(4, S);
        quota.assigned(20, S);
        assert_eq!(quota.held(), 26, "the six may be used until the twenty are there");
        let on_its_way = quota.report(0, S + ON_ITS_WAY_US - 1);
        assert_eq!(on_its_way, Booked { unpaid: 0, unused: 0 });
        assert_eq!(quota.report(2, 2 * S), Booked { unpaid: 0, unused: 4 });
        assert_eq!(quota.held(), 20);
    }

    #[test]
    fn what_is_not_reported_in_time_counts_as_used() {
        let mut quota = with(10);
        assert_eq!(quota.report(3, LIFE_US), Booked { unpaid: 0, unused: 0 });
        assert_eq!(quota.held(), 0);
    }

    #[test]
    fn proxies_get_even_parts_and_keep_what_they_need() {
        assert_eq!(ProxyQuota::default().plan(10, 1, false, 0), QuotaPlan::Assign(10));
        assert_eq!(ProxyQuota::default().plan(10, 3, false, 0), QuotaPlan::Assign(4));
        assert_eq!(ProxyQuota::default().plan(0, 1, false, 0), QuotaPlan::Deny);
        let half = with(10);
        assert_eq!(half.plan(10, 1, false, S), QuotaPlan::Extend, "half of all is there");
        assert_eq!(half.plan(11, 1, false, S), QuotaPlan::Assign(11));
        assert_eq!(half.plan(0, 2, false, S), QuotaPlan::Extend, "it is at work");
        assert_eq!(half.plan(0, 2, true, S), QuotaPlan::Deny, "others need it");
        assert_eq!(half.plan(0, 1, true, S), QuotaPlan::Extend);
    }

    #[test]
    fn an_assignment_that_has_nearly_ended_is_not_extended() {
        let quota = with(10);
        assert_eq!(quota.plan(5, 1, false, LIFE_US - MARGIN_US), QuotaPlan::Assign(5));
        assert_eq!(quota.plan(0, 1, false, LIFE_US - MARGIN_US), QuotaPlan::Deny);
    }

    #[test]
    fn what_is_taken_back_is_given_back_however_often_the_proxy_reports() {
        let mut quota = with(10);
        quota.report(1, S);
        let mut back = 0;
        for tenth in 0..10 {
            quota.denied(S + tenth * S / 10);
            back += quota.report(0, S + (tenth + 1) * S / 10).unused;
        }
        assert_eq!((back, quota.held()), (9, 0));
    }

    #[test]
    fn two_assignments_in_a_row_differ() {
        let mut quota = with(10);
        let first = quota.assignment();
        quota.assigned(10, S);
        assert_ne!(quota.assignment(), first);
    }
}
