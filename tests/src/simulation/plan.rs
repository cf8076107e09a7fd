//! A cluster to be: its limits, its hosts, and what will go wrong.

use std::time::Duration;

use fastrand::Rng;
use ratelimit_common::limit::{rate::Rate, text::parse_rate};
use ratelimit_user::policy::Reserve;

use super::SECOND;
use crate::policies::REQUEST_ALGORITHMS;

/// What can go wrong. What is lost is lost to everybody, so a bound is in danger where little is.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Messages that are lost, out of a thousand.
    pub lost: u64,
    /// Lease batches and their answers that arrive twice, out of a thousand.
    pub doubled: u64,
    /// The shortest time that a message takes, in ms.
    pub quickest_ms: u64,
    /// How much longer one takes at most, in ms.
    pub slowest_ms: u64,
    /// How often in a million steps something larger happens: a host crashes, is cut off or stops, the store is away, fails over or is emptied.
    pub disasters: u64,
    /// Whether the store forgets in disasters; otherwise it is away instead.
    pub forgets: bool,
    /// How far clocks of hosts run apart, in thousandths.
    pub drift: i64,
    /// How often in a thousand steps the store's clock goes back, and a host is suspended.
    pub clocks: u64,
}

impl Faults {
    /// A world in which nothing goes wrong.
    pub const NONE: Self = Self {
        lost: 0,
        doubled: 0,
        quickest_ms: 0,
        slowest_ms: 2,
        disasters: 0,
        forgets: false,
        drift: 0,
        clocks: 0,
    };
    /// A world in which everything goes wrong that can.
    pub const ALL: Self = Self {
        lost: 50,
        doubled: 50,
        slowest_ms: 400,
        disasters: 1_000,
        forgets: true,
        drift: 20,
        ..Self::NONE
    };
}

/// A cluster to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where everything random comes from.
    pub seed: u64,
    /// How many hosts there are.
    pub hosts: usize,
    /// What goes wrong in the world.
    pub faults: Faults,
    /// What is limited of packets.
    pub packets: Option<PacketPlan>,
    /// What is limited of requests.
    pub requests: Option<RequestPlan>,
}

/// A limit of packets that all hosts share.
#[derive(Clone, Debug)]
pub struct PacketPlan {
    /// The limit that hosts share.
    pub rate: Rate,
    /// What is kept for hosts without a lease.
    pub reserve: Reserve,
    /// The time between two exchanges of a host with the store.
    pub tick: Duration,
    /// How long a lease lasts.
    pub lease: Duration,
    /// Packets per second that are offered to each host, at most.
    pub offered: u64,
    /// Whether every host is offered that much all the time.
    pub steady: bool,
}

/// Limits of requests that all hosts share.
#[derive(Clone, Debug)]
pub struct RequestPlan {
    /// How requests are counted.
    pub algorithm: &'static str,
    /// Units in a period.
    pub limit: u64,
    /// The period, as the policy has it.
    pub period: &'static str,
    /// The word for who decides, as the policy has it.
    pub sharing: &'static str,
    /// What hosts do without the store.
    pub alone: Alone,
    /// Users. One has the limit for itself. Several share it, and each has another one of its own: a request then has two keys.
    pub users: u64,
    /// What each of several may have.
    pub of_user: u64,
    /// Of those, how many have half of all requests beside their part of the rest.
    pub busy: u64,
    /// How often in a thousand requests that are allowed one is not served, and given back.
    pub refunds: u64,
    /// How much is asked for.
    pub load: Load,
}

/// How much of requests is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Now more, now less.
    Varying,
    /// More than there is, all the time.
    Greedy,
    /// One request in so many microseconds, by each host.
    Steady(u64),
    /// What the test says.
    Scripted,
}

/// What hosts do without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// Nothing passes but what is held.
    Refuse,
    /// A host has its part of what the store does not give out.
    Reserve,
    /// A host has its part of the limit.
    Share,
}

impl Plan {
    /// Hosts that count packets, like operators would have them, at random. Seeds of worlds that once broke a bound rely on what is drawn here, and
    /// when.
    pub fn packets(seed: u64, faults: Faults) -> Self {
        let mut rng = Rng::with_seed(seed);
        let rates = [
            "1000/s burst 2000",
            "1000/s burst 100",
            "20000/s burst 1000",
            "50/s burst 10",
            "600/min burst 60",
        ];
        let hosts = rng.usize(1..=5);
        let tick = Duration::from_millis(rng.u64(10..=100));
        let packets = PacketPlan {
            rate: parse_rate(rates[rng.usize(0..rates.len())]).expect("a rate"),
            reserve: Reserve::new([0, 50, 200][rng.usize(0..3)], rng.u32(hosts as u32..=16)),
            tick,
            lease: tick * rng.u32(4..=20),
            offered: rng.u64(10..5_000),
            steady: rng.bool(),
        };
        Self { seed, hosts, faults, packets: Some(packets), requests: None }
    }

    /// Hosts that count requests, like operators would have them, at random.
    pub fn requests(seed: u64, faults: Faults) -> Self {
        let mut rng = Rng::with_seed(seed);
        let limits = [(15, "s"), (200, "s"), (300, "min"), (64, "min")];
        let (limit, period) = limits[rng.usize(0..limits.len())];
        let alone = [Alone::Refuse, Alone::Reserve, Alone::Share][rng.usize(0..3)];
        let part = rng.u64(0..4);
        let faults = Faults {
            lost: faults.lost * part / 3,
            slowest_ms: (faults.slowest_ms * part / 3).max(1),
            // Every ten seconds: leases of requests last for minutes.
            disasters: faults.disasters / 5,
            // Each time is one more limit, so most worlds are without it.
            forgets: faults.forgets && rng.u32(0..4) == 0,
            // Who counts alone does so by its own clock.
            drift: if alone == Alone::Refuse { faults.drift } else { 0 },
            ..faults
        };
        let requests = RequestPlan {
            algorithm: REQUEST_ALGORITHMS[rng.usize(0..REQUEST_ALGORITHMS.len())],
            limit,
            period,
            sharing: if rng.u32(0..4) == 0 { "strict" } else { "lease" },
            alone,
            users: rng.u64(1..=3),
            // Together they want more than the limit that they share.
            of_user: limit * 2 / 3,
            busy: 0,
            refunds: [0, 50][rng.usize(0..2)],
            load: Load::Varying,
        };
        Self { seed, hosts: rng.usize(1..=4), faults, packets: None, requests: Some(requests) }
    }

    /// Hosts that count both, on one store.
    pub fn both(seed: u64, faults: Faults) -> Self {
        let packets = Self::packets(seed, faults);
        Self { packets: packets.packets, hosts: packets.hosts, ..Self::requests(seed, faults) }
    }

    /// The plan in which requests have other terms.
    pub fn asked(mut self, change: impl FnOnce(&mut RequestPlan)) -> Self {
        if let Some(requests) = &mut self.requests {
            change(requests);
        }
        self
    }
}

impl RequestPlan {
    /// The period in ns.
    pub fn period_ns(&self) -> u64 {
        match self.period {
            "s" => SECOND,
            "min" => 60 * SECOND,
            other => panic!("{other} is no period of a simulated world"),
        }
    }

    /// How long after it was allowed a request is given back that was not served.
    pub(super) fn refunded_within_ns(&self) -> u64 {
        self.period_ns() / 10
    }

    /// The policy of every host.
    pub(super) fn policy(&self, hosts: usize) -> String {
        let Self { algorithm, limit, period, sharing, .. } = self;
        let alone = match self.alone {
            Alone::Refuse => "refuse",
            Alone::Reserve => "reserve",
            Alone::Share => "share",
        };
        let (plan, key) = match self.users {
            1 => (String::new(), "user"),
            _ => (format!("[plan.default]\nlimits = [\"{}/{period} {algorithm}\"]\n", self.of_user), "api"),
        };
        format!(
            "[source]\nlimits = [\"1/s\"]\n[cluster]\nredis = \"redis://127.0.0.1:1\"\nhosts = {hosts}\n[requests]\nkeys = 1000\n{plan}[[api]]\nname = \"api\"\n\
             key = [\"{key}\"]\nlimits = [\"{limit}/{period}\"]\nalgorithm = \"{algorithm}\"\nsharing = \"{sharing}\"\nwithout_store = \"{alone}\"\n",
        )
    }
}
