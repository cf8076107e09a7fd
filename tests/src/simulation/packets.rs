//! A host that counts packets: its daemon and its packet path.

use std::{collections::VecDeque, time::Duration};

use fastrand::Rng;
use ratelimit_common::{
    abi::{Lease, Limit, Spent},
    limit::{
        gcra::{self, GcraOutcome},
        lease,
    },
};
use ratelimit_user::{
    cluster::{
        holding::PacketLease,
        leases::{LeasedLimit, Leases},
    },
    policy::terms::Terms,
    store::{
        exchange::{Grant, Line, Timing},
        lease_batch::Keys,
        round_trip::RoundTrip,
    },
};

use super::{CLUSTER, Faults, MS, PacketPlan};

/// What the packet path of a host was told, and when.
#[derive(Clone, Copy, Debug)]
struct Said {
    told: PacketLease,
    at_ns: u64,
}

/// The limit that hosts share.
#[derive(Clone, Debug)]
pub(super) struct SharedLimit {
    leased: LeasedLimit,
    /// What a host without a lease has.
    of_host: Limit,
}

impl SharedLimit {
    pub(super) fn new(plan: &PacketPlan) -> Self {
        let terms = Terms::of(&plan.rate, plan.reserve).expect("terms");
        let key = Keys::new(CLUSTER).record("u", "packets");
        let of_host = plan.reserve.of(&plan.rate.limit().expect("a limit"));
        Self { leased: LeasedLimit { key, place: 0, terms }, of_host }
    }
}

/// The daemon and the packet path of one host.
#[derive(Debug)]
pub(super) struct PacketHost {
    leases: Leases,
    round_trip: RoundTrip,
    tick_ns: u64,
    /// When a loaded store is to hear of the host again, by the host's clock.
    batch_due_ns: u64,
    pub(super) epoch: u64,
    pub(super) next_tick_ns: u64,
    /// The lease batch that is under way: number, when it was sent by the host's clock, when it is given up.
    attempt: u64,
    waiting: Option<(u64, u64)>,
    /// When there is a daemon again, if there is none.
    pub(super) back_ns: Option<u64>,
    /// For how long the host was suspended when its lease batch was sent, and as far as its daemon knows.
    slept_by_batch_ns: u64,
    slept_seen_ns: u64,
    // The packet path.
    said: VecDeque<Said>,
    spent: Spent,
    tat_q8: u64,
    load: u64,
}

/// A moment of a host: the true time, what its clock shows, and for how long it was suspended in all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now_ns: u64,
    pub(super) clock_ns: u64,
    pub(super) slept_ns: u64,
}

impl PacketHost {
    pub(super) fn new(plan: &PacketPlan, next_tick_ns: u64) -> Self {
        let tick_ns = plan.tick.as_nanos() as u64;
        Self {
            leases: Leases::new(Timing::new(plan.lease, plan.tick), tick_ns),
            round_trip: RoundTrip::new(plan.tick, plan.lease),
            tick_ns,
            batch_due_ns: 0,
            epoch: 0,
            next_tick_ns,
            attempt: 0,
            waiting: None,
            back_ns: None,
            slept_by_batch_ns: 0,
            slept_seen_ns: 0,
            said: VecDeque::new(),
            spent: Spent { used: 0, unmet: 0 },
            tat_q8: 0,
            load: plan.offered,
        }
    }

    /// A daemon begins. What the one before told the packet path still holds until now.
    pub(super) fn start(&mut self, limit: &SharedLimit, at: Moment, epoch: u64) {
        self.leases = Leases::new(*self.leases.timing(), self.tick_ns);
        (self.back_ns, self.epoch, self.waiting, self.batch_due_ns) = (None, epoch, None, 0);
        let spent = self.spent;
        self.leases.follow(vec![limit.leased.clone()], at.clock_ns, |_| spent);
        self.tell(at.now_ns);
    }

    pub(super) fn timing(&self) -> &Timing {
        self.leases.timing()
    }

    /// The daemon does its work: a lease batch, and its number, if one is to be sent.
    pub(super) fn tick(&mut self, at: Moment, rng: &mut Rng, faults: &Faults) -> Option<(u64, Vec<Line>)> {
        self.next_tick_ns = at.now_ns + self.tick_ns;
        let clock = at.clock_ns;
        if at.slept_ns > self.slept_seen_ns {
            self.slept_seen_ns = at.slept_ns;
            self.leases.lapse(clock);
            // No packet was being looked at meanwhile.
            self.said.clear();
        }
        let spent = self.spent;
        self.leases.observe(clock, |_| spent);
        let given_up = self.waiting.is_none_or(|(_, until)| clock >= until);
        let mut batch = None;
        if given_up && clock >= self.batch_due_ns {
            let lines = self.leases.batch(clock);
            self.waiting = None;
            if !lines.is_empty() {
                self.attempt += 1;
                self.slept_by_batch_ns = at.slept_ns;
                // Sometimes patient, sometimes not: an answer may come to a lease batch that has been repeated.
                let Faults { quickest_ms, slowest_ms, .. } = faults;
                let patience = (rng.u64(1..=(*slowest_ms).max(2)) + 2 * quickest_ms) * MS + self.tick_ns;
                self.waiting = Some((clock, clock + patience));
                self.batch_due_ns = clock + self.round_trip.stretched_by().as_nanos() as u64;
                batch = Some((self.attempt, lines));
            }
        }
        self.tell(at.now_ns);
        batch
    }

    fn tell(&mut self, now_ns: u64) {
        for (_, told) in self.leases.news() {
            self.said.push_back(Said { told, at_ns: now_ns });
        }
        while self.said.len() > 4 {
            self.said.pop_front();
        }
    }

    pub(super) fn hear(&mut self, at: Moment, epoch: u64, attempt: u64, grants: &[(String, Grant)]) {
        let Some((sent, _)) = self.waiting else { return };
        // A connection that was given up is closed: nothing is heard on it any more.
        if self.back_ns.is_some() || epoch != self.epoch || attempt != self.attempt {
            return;
        }
        self.waiting = None;
        self.round_trip.took(Duration::from_nanos(at.clock_ns - sent), 1);
        let sent = sent.saturating_sub(at.slept_ns - self.slept_by_batch_ns);
        self.leases.set_round_trip(self.round_trip.beyond_tick());
        for (key, grant) in grants {
            self.leases.answer(key, grant, sent, at.clock_ns);
        }
        self.tell(at.now_ns);
    }

    /// Packets arrive: how many are admitted.
    pub(super) fn offer(
        &mut self,
        at: Moment,
        passed_ns: u64,
        plan: &PacketPlan,
        limit: &SharedLimit,
        rng: &mut Rng,
    ) -> u64 {
        if !plan.steady && rng.u64(0..400) == 0 {
            // The load of a host changes now and then.
            self.load = if rng.bool() { 0 } else { rng.u64(0..=plan.offered) };
        }
        let packets = (self.load * passed_ns + rng.u64(0..1_000 * MS)) / (1_000 * MS);
        (0..packets).filter(|_| self.admits(rng, &limit.of_host, at)).count() as u64
    }

    /// The packet path, on a packet that may have been looked at since a moment ago.
    fn admits(&mut self, rng: &mut Rng, of_host: &Limit, at: Moment) -> bool {
        let (now_ns, clock_q8) = (at.now_ns, gcra::time_q8(at.clock_ns));
        let seen = self.said.iter().rev().find(|said| {
            let fresh = now_ns >= said.at_ns + 10 * MS;
            fresh || rng.u64(0..4) != 0
        });
        if let Some(Said { told, .. }) = seen {
            let lease = Lease {
                ceiling: told.ceiling,
                expires_q8: gcra::time_q8(told.expires_ns),
                enough: told.enough,
            };
            if told.expires_ns != 0
                && let Some(used) = lease::take(self.spent.used, &lease, clock_q8, 1)
            {
                self.spent.used = used;
                return true;
            }
            if self.spent.unmet < lease.enough {
                self.spent.unmet += 1;
            }
        }
        let charge = gcra::charge_q8(of_host, 1);
        // By the true clock: a host whose clock runs fast has that much more of its reserve, which is not what is looked at here.
        match gcra::take(self.tat_q8, of_host, gcra::time_q8(now_ns), charge) {
            GcraOutcome::Conforms { tat_q8 } => {
                self.tat_q8 = tat_q8;
                true
            }
            GcraOutcome::Refused => false,
        }
    }
}
