//! Hosts, a store and the network between them, as numbers: everything that can go wrong, from a seed.
//!
//! What decides is the code that runs in production: `Leases` on each host, the arithmetic of the packet path, and the record of the store.
//! What is simulated is time, and who hears what when.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    fmt,
    time::Duration,
};

use fastrand::Rng;
use ratelimit_common::{
    abi::{Lease, Limit, Spent},
    limit::{
        gcra::{self, Outcome},
        lease,
        rate::Rate,
        text::parse_rate,
    },
};
use ratelimit_user::{
    cluster::{
        holding::PacketLease,
        leases::{self, Leases},
    },
    policy::{Reserve, terms::Terms},
    store::{
        exchange::{Grant, Line, Timing},
        round_trip::RoundTrip,
    },
};

use crate::record::PacketStore;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const KEY: &str = "limit";

/// What can go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Lease batches and answers that are lost, out of a thousand.
    pub lost: u64,
    /// Lease batches that arrive twice, out of a thousand.
    pub doubled: u64,
    /// The shortest time that a lease batch or an answer takes, in ms.
    pub quickest_ms: u64,
    /// How much longer it takes at most, in ms.
    pub slowest_ms: u64,
    /// How often in a thousand steps something larger happens: a host crashes or is cut off, the store stops, fails over or is emptied.
    pub disasters: u64,
    /// How far clocks of hosts run apart, in thousandths.
    pub drift: i64,
    /// How often in a thousand steps the store's clock goes back, and a host is suspended.
    pub clocks: u64,
}

impl Faults {
    /// A good day.
    pub const NONE: Self =
        Self { lost: 0, doubled: 0, quickest_ms: 0, slowest_ms: 2, disasters: 0, drift: 0, clocks: 0 };
    /// A bad one.
    pub const ALL: Self =
        Self { lost: 50, doubled: 50, quickest_ms: 0, slowest_ms: 400, disasters: 1, drift: 20, clocks: 0 };
}

/// A cluster to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where everything random comes from.
    pub seed: u64,
    /// The limit.
    pub rate: Rate,
    /// How many hosts there are.
    pub hosts: usize,
    /// What is kept for hosts without a lease.
    pub reserve: Reserve,
    /// Time between exchanges.
    pub tick: Duration,
    /// Lifetime of leases.
    pub lease: Duration,
    /// What goes wrong.
    pub faults: Faults,
    /// Packets per second that are offered to each host, at most.
    pub offered: u64,
    /// Whether every host is offered that much all the time.
    pub steady: bool,
}

impl Plan {
    /// A plan like operators would have it, at random.
    pub fn random(seed: u64, faults: Faults) -> Self {
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
        Self {
            seed,
            rate: parse_rate(rates[rng.usize(0..rates.len())]).expect("a rate"),
            hosts,
            reserve: Reserve::new([0, 50, 200][rng.usize(0..3)], rng.u32(hosts as u32..=16)),
            tick,
            lease: tick * rng.u32(4..=20),
            faults,
            offered: rng.u64(10..5_000),
            steady: rng.bool(),
        }
    }
}

/// More was admitted than the limit allows.
#[derive(Clone, Debug)]
pub struct Violation {
    seed: u64,
    at_ms: u64,
    excess: f64,
    burst: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at_ms, excess, burst } = self;
        write!(
            f,
            "seed {seed}: after {at_ms} ms the cluster has {excess:.3} units above its rate, the burst is {burst}"
        )
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcomes {
    /// Units that were admitted.
    pub admitted: u64,
    /// Lease batches that the store answered.
    pub batches: u64,
    /// Larger things that went wrong.
    pub disasters: u64,
    /// What it could have admitted without its burst.
    pub refilled: u64,
}

/// A lease batch or an answer on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Post {
    at_ns: u64,
    number: u64,
}

#[derive(Clone, Debug)]
enum Message {
    LeaseBatch { from: usize, epoch: u64, attempt: u64, lines: Vec<Line> },
    Answer { to: usize, epoch: u64, attempt: u64, grants: Vec<(String, Grant)> },
}

/// What the packet path of a host was told, and when.
#[derive(Clone, Copy, Debug)]
struct Said {
    told: PacketLease,
    at_ns: u64,
}

#[derive(Debug)]
struct Host {
    leases: Leases,
    round_trip: RoundTrip,
    /// When a loaded store is to hear of the host again, by the host's clock.
    batch_due_ns: u64,
    epoch: u64,
    /// Its clock, as it runs: so many thousandths faster, and from there.
    drift: i64,
    offset_ns: u64,
    next_tick_ns: u64,
    /// The lease batch that is under way: number, when it was sent by the host's clock, when it is given up.
    attempt: u64,
    waiting: Option<(u64, u64)>,
    /// Whether there is a daemon.
    alive: bool,
    back_ns: u64,
    cut_off_until_ns: u64,
    /// Until when it is suspended, for how long it was in all, when its lease batch was sent, and as far as its daemon knows.
    asleep_until_ns: u64,
    slept_ns: u64,
    slept_by_letter_ns: u64,
    slept_seen_ns: u64,
    // The packet path.
    said: VecDeque<Said>,
    spent: Spent,
    tat_q8: u64,
    load: u64,
}

/// The whole cluster.
#[derive(Debug)]
pub struct World {
    plan: Plan,
    rng: Rng,
    now_ns: u64,
    limit: leases::LeasedLimit,
    of_host: Limit,
    hosts: Vec<Host>,
    store: PacketStore,
    replica: PacketStore,
    store_down_until_ns: u64,
    /// How far the store's clock went back in all.
    store_back_ns: u64,
    post: BinaryHeap<Reverse<Post>>,
    messages: std::collections::HashMap<u64, Message>,
    numbers: u64,
    /// What was admitted above the rate, in units times the period: a bucket of its own that watches.
    above: u128,
    outcomes: Outcomes,
}

impl World {
    /// A cluster with a store that has been there for long, and nobody with a lease.
    pub fn new(plan: Plan) -> Self {
        let terms = Terms::of(&plan.rate, plan.reserve).expect("terms");
        let mut rng = Rng::with_seed(plan.seed ^ 0x5eed);
        let limit = leases::LeasedLimit { key: KEY.to_owned(), place: 0, terms };
        let of_host = plan.reserve.of(&plan.rate.limit().expect("a limit"));
        let now_ns = 1_000 * SECOND;
        let mut world = Self {
            hosts: Vec::new(),
            store: PacketStore::seasoned(),
            replica: PacketStore::seasoned(),
            store_down_until_ns: 0,
            store_back_ns: 0,
            post: BinaryHeap::new(),
            messages: std::collections::HashMap::new(),
            numbers: 0,
            above: 0,
            outcomes: Outcomes::default(),
            now_ns,
            limit,
            of_host,
            rng: rng.fork(),
            plan,
        };
        for _ in 0..world.plan.hosts {
            let drift = rng.i64(-world.plan.faults.drift..=world.plan.faults.drift);
            let offset_ns = rng.u64(0..1_000_000 * SECOND);
            let mut host = Host {
                leases: world.no_leases(),
                round_trip: RoundTrip::new(world.plan.tick, world.plan.lease),
                batch_due_ns: 0,
                epoch: 0,
                drift,
                offset_ns,
                next_tick_ns: now_ns + rng.u64(0..100 * MS),
                attempt: 0,
                waiting: None,
                alive: true,
                back_ns: 0,
                cut_off_until_ns: 0,
                asleep_until_ns: 0,
                slept_ns: 0,
                slept_by_letter_ns: 0,
                slept_seen_ns: 0,
                said: VecDeque::new(),
                spent: Spent { used: 0, unmet: 0 },
                tat_q8: 0,
                load: world.plan.offered,
            };
            host.start(&world.limit, now_ns, rng.u64(..));
            world.hosts.push(host);
        }
        world
    }

    fn no_leases(&self) -> Leases {
        Leases::new(Timing::new(self.plan.lease, self.plan.tick), self.plan.tick.as_nanos() as u64)
    }

    /// Goes on for so many steps, or until more was admitted than is allowed.
    pub fn run(mut self, steps: u64) -> Result<Outcomes, Violation> {
        for _ in 0..steps {
            let passed = self.rng.u64(MS / 4..4 * MS);
            self.now_ns += passed;
            self.above = self.above.saturating_sub(u128::from(self.plan.rate.amount) * u128::from(passed));
            self.outcomes.refilled = 0;
            self.deliver();
            self.go_wrong();
            for host in 0..self.hosts.len() {
                if self.hosts[host].is_asleep(self.now_ns) {
                    self.hosts[host].slept_ns += passed;
                    continue;
                }
                self.tick(host);
                self.offer(host, passed);
            }
            let burst = u128::from(self.plan.rate.burst) * u128::from(self.plan.rate.period.ns());
            if self.above > burst {
                return Err(Violation {
                    seed: self.plan.seed,
                    at_ms: self.now_ns / MS - 1_000_000,
                    excess: self.above as f64 / self.plan.rate.period.ns() as f64,
                    burst: self.plan.rate.burst,
                });
            }
        }
        let passed = u128::from(self.now_ns - 1_000 * SECOND);
        let refilled = passed * u128::from(self.plan.rate.amount) / u128::from(self.plan.rate.period.ns());
        Ok(Outcomes { refilled: refilled as u64, ..self.outcomes })
    }

    /// Packets arrive at a host.
    fn offer(&mut self, at: usize, passed_ns: u64) {
        let host = &mut self.hosts[at];
        if !self.plan.steady && self.rng.u64(0..400) == 0 {
            // Traffic moves.
            host.load = if self.rng.bool() { 0 } else { self.rng.u64(0..=self.plan.offered) };
        }
        let packets = (host.load * passed_ns + self.rng.u64(0..SECOND)) / SECOND;
        for _ in 0..packets {
            if host.admits(&mut self.rng, &self.of_host, self.now_ns) {
                self.above += u128::from(self.plan.rate.period.ns());
                self.outcomes.admitted += 1;
            }
        }
    }

    /// The daemon of a host does its work, if it is time.
    fn tick(&mut self, at: usize) {
        let (now_ns, tick_ns) = (self.now_ns, self.plan.tick.as_nanos() as u64);
        let Faults { quickest_ms, slowest_ms, .. } = self.plan.faults;
        let number = self.numbers;
        let host = &mut self.hosts[at];
        if !host.alive {
            if now_ns >= host.back_ns {
                host.leases = Leases::new(*host.leases.timing(), tick_ns);
                host.start(&self.limit, now_ns, number);
            }
            return;
        }
        if now_ns < host.next_tick_ns {
            return;
        }
        host.next_tick_ns = now_ns + tick_ns;
        let clock = host.clock(now_ns);
        if host.slept_ns > host.slept_seen_ns {
            host.slept_seen_ns = host.slept_ns;
            host.leases.lapse(clock);
            // No packet was being looked at meanwhile.
            host.said.clear();
        }
        let spent = host.spent;
        host.leases.observe(clock, |_| spent);
        let given_up = host.waiting.is_none_or(|(_, until)| clock >= until);
        if given_up && clock >= host.batch_due_ns {
            let lines = host.leases.batch(clock);
            if !lines.is_empty() {
                host.attempt += 1;
                host.slept_by_letter_ns = host.slept_ns;
                // Sometimes patient, sometimes not: an answer may come to a lease batch that has been repeated.
                let patience = (self.rng.u64(1..=slowest_ms.max(2)) + 2 * quickest_ms) * MS + tick_ns;
                host.waiting = Some((clock, clock + patience));
                host.batch_due_ns = clock + host.round_trip.stretched_by().as_nanos() as u64;
                let batch = Message::LeaseBatch { from: at, epoch: host.epoch, attempt: host.attempt, lines };
                host.tell(now_ns);
                let cut_off = now_ns < host.cut_off_until_ns;
                self.send(&batch, cut_off);
                return;
            }
            host.waiting = None;
        }
        host.tell(now_ns);
    }

    fn send(&mut self, message: &Message, cut_off: bool) {
        let Faults { lost, doubled, quickest_ms, slowest_ms, .. } = self.plan.faults;
        let copies = if self.rng.u64(0..1_000) < doubled { 2 } else { 1 };
        for _ in 0..copies {
            if cut_off || self.rng.u64(0..1_000) < lost {
                continue;
            }
            // Most are quick.
            let slowest = if self.rng.u64(0..10) == 0 { slowest_ms } else { slowest_ms.min(3) };
            self.numbers += 1;
            let at_ns = self.now_ns + quickest_ms * MS + self.rng.u64(0..=slowest * MS);
            self.post.push(Reverse(Post { at_ns, number: self.numbers }));
            self.messages.insert(self.numbers, message.clone());
        }
    }

    fn deliver(&mut self) {
        while let Some(Reverse(Post { at_ns, number })) = self.post.peek().cloned() {
            if at_ns > self.now_ns {
                break;
            }
            self.post.pop();
            // What comes for somebody who is asleep waits.
            if let Some(Message::Answer { to, .. }) = self.messages.get(&number)
                && self.hosts[*to].is_asleep(self.now_ns)
            {
                self.post.push(Reverse(Post { at_ns: self.hosts[*to].asleep_until_ns, number }));
                continue;
            }
            match self.messages.remove(&number) {
                Some(Message::LeaseBatch { from, epoch, attempt, lines }) => {
                    if self.now_ns < self.store_down_until_ns {
                        continue;
                    }
                    let timing = *self.hosts[from].leases.timing();
                    let name = format!("{from}:{epoch}");
                    let grants = self.store.exchange(
                        &name,
                        &timing,
                        (self.now_ns - self.store_back_ns) / 1_000,
                        &lines,
                    );
                    self.outcomes.batches += 1;
                    let keys = lines.into_iter().map(|line| line.key);
                    let answer =
                        Message::Answer { to: from, epoch, attempt, grants: keys.zip(grants).collect() };
                    let cut_off = self.now_ns < self.hosts[from].cut_off_until_ns;
                    self.send(&answer, cut_off);
                }
                Some(Message::Answer { to, epoch, attempt, grants }) => {
                    self.hosts[to].hear(self.now_ns, epoch, attempt, &grants);
                }
                None => {}
            }
        }
        // A replica that is some way behind.
        if self.rng.u64(0..200) == 0 {
            self.replica = self.store.clone();
        }
    }

    fn go_wrong(&mut self) {
        self.set_clocks();
        if self.rng.u64(0..1_000) >= self.plan.faults.disasters {
            return;
        }
        self.outcomes.disasters += 1;
        let host = self.rng.usize(0..self.hosts.len());
        let soon = self.now_ns + self.rng.u64(0..5_000) * MS;
        match self.rng.u32(0..6) {
            0 if self.hosts[host].is_asleep(self.now_ns) => {}
            0 => {
                self.hosts[host].alive = false;
                self.hosts[host].back_ns = soon;
            }
            1 => self.hosts[host].cut_off_until_ns = soon,
            2 => self.store_down_until_ns = soon,
            3 => {
                self.store = self.replica.clone().taken_over();
                self.store_down_until_ns = self.now_ns + self.rng.u64(0..1_000) * MS;
            }
            4 => self.store = PacketStore::default(),
            // The daemon is stopped for a while.
            _ => self.hosts[host].next_tick_ns = soon,
        }
    }
}

impl World {
    fn set_clocks(&mut self) {
        let often = self.plan.faults.clocks;
        if often > 0 && self.rng.u64(0..1_000) < often {
            self.store_back_ns += self.rng.u64(0..8_000) * MS;
        }
        if often > 0 && self.rng.u64(0..1_000) < often {
            let host = self.rng.usize(0..self.hosts.len());
            let until_ns = self.now_ns + self.rng.u64(0..5_000) * MS;
            let host = &mut self.hosts[host];
            // Without a daemon nobody notices: that is outside of the bound, by name.
            if host.alive {
                host.asleep_until_ns = until_ns;
                host.next_tick_ns = until_ns;
            }
        }
    }
}

impl Host {
    fn is_asleep(&self, now_ns: u64) -> bool {
        now_ns < self.asleep_until_ns
    }

    /// A daemon begins. What the one before told the packet path still holds until now.
    fn start(&mut self, limit: &leases::LeasedLimit, now_ns: u64, epoch: u64) {
        self.alive = true;
        self.epoch = epoch;
        self.waiting = None;
        self.batch_due_ns = 0;
        let clock = self.clock(now_ns);
        let spent = self.spent;
        self.leases.follow(vec![limit.clone()], clock, |_| spent);
        self.tell(now_ns);
    }

    fn clock(&self, now_ns: u64) -> u64 {
        let since = now_ns - 1_000 * SECOND - self.slept_ns;
        let drifted = since as i128 + since as i128 * i128::from(self.drift) / 1_000;
        self.offset_ns + drifted as u64 + SECOND
    }

    fn tell(&mut self, now_ns: u64) {
        for (_, told) in self.leases.news() {
            self.said.push_back(Said { told, at_ns: now_ns });
        }
        while self.said.len() > 4 {
            self.said.pop_front();
        }
    }

    fn hear(&mut self, now_ns: u64, epoch: u64, attempt: u64, grants: &[(String, Grant)]) {
        let Some((sent, _)) = self.waiting else { return };
        // A connection that was given up is closed: nothing is heard on it any more.
        if !self.alive || epoch != self.epoch || attempt != self.attempt {
            return;
        }
        let clock = self.clock(now_ns);
        self.waiting = None;
        self.round_trip.took(Duration::from_nanos(clock - sent), 1);
        let sent = sent.saturating_sub(self.slept_ns - self.slept_by_letter_ns);
        self.leases.reckon_with(self.round_trip.beyond_tick());
        for (key, grant) in grants {
            self.leases.answer(key, grant, sent, clock);
        }
        self.tell(now_ns);
    }

    /// The packet path, on a packet that may have been looked at since a moment ago.
    fn admits(&mut self, rng: &mut Rng, of_host: &Limit, now_ns: u64) -> bool {
        let clock_q8 = gcra::time_q8(self.clock(now_ns));
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
            Outcome::Conforms { tat_q8 } => {
                self.tat_q8 = tat_q8;
                true
            }
            Outcome::Refused | Outcome::Overdrawn { .. } => false,
        }
    }
}
