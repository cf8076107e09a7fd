//! The whole cluster: time, the network, and what goes wrong.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    ops::AddAssign,
    rc::Rc,
};

use fastrand::Rng;
use ratelimit_user::{
    requests::Engine,
    store::{
        ask::Told,
        exchange::{Grant, Line},
        inquiry::Inquiry,
    },
};

use super::{
    Alone, Faults, Load, MS, Plan, SECOND, START, Store, Watch,
    packets::{Moment, PacketHost, SharedLimit},
    requests::{self, Admitted, Asked, Question, RequestHost},
};

/// Steps that so many seconds take: each is a fourth of a millisecond to four.
pub const fn steps(seconds: u64) -> u64 {
    seconds * 8_000 / 17
}

/// What became of the requests and packets of a world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcomes {
    /// Packets that were admitted.
    pub admitted: u64,
    /// Packets that could have been admitted without the burst.
    pub refilled: u64,
    /// Those of them that fell into times in which the store was away.
    pub refilled_away: u64,
    /// Lease batches that the store answered.
    pub batches: u64,
    /// Units of requests that were admitted from leases, by the store, and by hosts alone.
    pub by_lease: u64,
    pub by_store: u64,
    pub alone: u64,
    /// Leases of requests that were renewed while they lasted.
    pub renewed: u64,
    /// Requests that one key refused and another had been charged for, and units that callers gave back.
    pub undone: u64,
    pub refunded: u64,
    /// Messages that were lost, and larger things that went wrong.
    pub lost: u64,
    pub disasters: u64,
    pub crashes: u64,
    pub outages: u64,
    pub cut_off: u64,
    pub forgot: u64,
}

impl Outcomes {
    /// Units of requests that were admitted.
    pub fn requests(&self) -> u64 {
        self.by_lease + self.by_store + self.alone
    }
}

impl AddAssign for Outcomes {
    fn add_assign(&mut self, other: Self) {
        let Self { admitted, refilled, refilled_away, batches, by_lease, by_store, alone, renewed, .. } =
            self;
        let Self { undone, refunded, lost, disasters, crashes, outages, cut_off, forgot, .. } = self;
        for (sum, more) in [
            (admitted, other.admitted),
            (refilled, other.refilled),
            (refilled_away, other.refilled_away),
            (batches, other.batches),
            (by_lease, other.by_lease),
            (by_store, other.by_store),
            (alone, other.alone),
            (renewed, other.renewed),
            (undone, other.undone),
            (refunded, other.refunded),
            (lost, other.lost),
            (disasters, other.disasters),
            (crashes, other.crashes),
            (outages, other.outages),
            (cut_off, other.cut_off),
            (forgot, other.forgot),
        ] {
            *sum += more;
        }
    }
}

/// A message that arrives, or something else that happens at a moment.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// The store gets a lease batch,
    LeaseBatch { host: usize, epoch: u64, attempt: u64, lines: Vec<Line> },
    /// and its host the answer.
    Grants { host: usize, epoch: u64, attempt: u64, grants: Vec<(String, Grant)> },
    /// The store gets questions about requests,
    Question { host: usize, question: u64, from: String, inquiries: Vec<Inquiry> },
    /// and their host the answer.
    Answer { host: usize, question: u64, told: Vec<Told>, decided_ns: u64 },
    /// The host does not wait any longer.
    GiveUp { host: usize, question: u64 },
    /// Somebody asks a host.
    Request { host: usize },
    /// The test asks a host.
    Scripted { host: usize, cost: u64 },
    /// The test cuts a host off.
    CutOff { host: usize, until_ns: u64 },
    /// Somebody gives back what a request was charged.
    Refund { host: usize, asked: Asked },
    /// The callers of a host ask more often, or less often.
    DemandChange { host: usize },
}

/// One host of the world.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) packets: Option<PacketHost>,
    pub(super) requests: Option<RequestHost>,
    /// How many thousandths faster the host's clock runs than the world's, and its reading at the start.
    drift: i64,
    offset_ns: u64,
    cut_off_until_ns: u64,
    /// Until when its processes stand still, and its clock does not.
    stopped_until_ns: u64,
    /// Until when it is suspended, and for how long it was in all.
    asleep_until_ns: u64,
    slept_ns: u64,
}

impl Host {
    fn is_asleep(&self, now_ns: u64) -> bool {
        now_ns < self.asleep_until_ns
    }

    pub(super) fn clock(&self, now_ns: u64) -> u64 {
        let since = now_ns - START - self.slept_ns;
        let drifted = since as i128 + since as i128 * i128::from(self.drift) / 1_000;
        self.offset_ns + drifted as u64
    }

    fn moment(&self, now_ns: u64) -> Moment {
        Moment { now_ns, clock_ns: self.clock(now_ns), slept_ns: self.slept_ns }
    }
}

/// All hosts, the store, and the messages under way.
#[derive(Debug)]
pub struct World {
    pub(super) plan: Plan,
    pub(super) now_ns: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) store: Store,
    pub(super) store_down_until_ns: u64,
    /// How far the store's clock went back in all.
    store_back_ns: u64,
    agenda: BinaryHeap<Reverse<(u64, u64)>>,
    events: HashMap<u64, Event>,
    pub(super) numbers: u64,
    // Requests draw from numbers of their own: worlds of packets stay as they are.
    rng: Rng,
    pub(super) asking: Rng,
    limit: Option<SharedLimit>,
    watch: Option<Watch>,
    pub(super) questions: BTreeMap<u64, Question>,
    pub(super) admitted: BTreeMap<String, Admitted>,
    /// Moments from which on so many eighths of a limit of requests are no fault.
    forgiven: Vec<(u64, u64)>,
    pub(super) outcomes: Outcomes,
}

impl World {
    /// A cluster with a store in memory that has been there for long, and nobody with a lease.
    pub fn new(plan: Plan) -> Self {
        Self::on(Store::in_memory(), plan)
    }

    /// A cluster on a store.
    pub fn on(store: Store, plan: Plan) -> Self {
        let mut born = Rng::with_seed(plan.seed ^ 0x5eed);
        let rate = plan.packets.as_ref().map(|packets| &packets.rate);
        let mut world = Self {
            now_ns: START,
            hosts: Vec::new(),
            store,
            store_down_until_ns: 0,
            store_back_ns: 0,
            agenda: BinaryHeap::new(),
            events: HashMap::new(),
            numbers: 0,
            rng: born.fork(),
            asking: Rng::with_seed(plan.seed.wrapping_add(1 << 32)),
            limit: plan.packets.as_ref().map(SharedLimit::new),
            watch: rate.map(|rate| Watch::rate(rate.amount, rate.period.ns(), rate.burst)),
            questions: BTreeMap::new(),
            admitted: BTreeMap::new(),
            forgiven: Vec::new(),
            outcomes: Outcomes::default(),
            plan,
        };
        world.be_born(&mut born);
        world
    }

    fn be_born(&mut self, born: &mut Rng) {
        let Plan { hosts, faults: Faults { drift, .. }, .. } = self.plan;
        // Hosts that never decide alone keep nothing in their engines.
        let engine = self.plan.requests.as_ref().filter(|plan| plan.alone == Alone::Refuse);
        let engine: Option<Rc<Engine>> = engine.map(|plan| RequestHost::engine(plan, hosts));
        for at in 0..hosts {
            let drift = born.i64(-drift..=drift);
            let offset_ns = born.u64(0..1_000_000 * SECOND);
            let mut host = Host {
                packets: None,
                requests: None,
                drift,
                // What a host decides alone it counts in windows of its own clock.
                offset_ns: match &self.plan.requests {
                    Some(plan) if plan.alone != Alone::Refuse => START,
                    _ => offset_ns + SECOND,
                },
                cut_off_until_ns: 0,
                stopped_until_ns: 0,
                asleep_until_ns: 0,
                slept_ns: 0,
            };
            if let (Some(plan), Some(limit)) = (&self.plan.packets, &self.limit) {
                let mut packets = PacketHost::new(plan, self.now_ns + born.u64(0..100 * MS));
                packets.start(limit, host.moment(self.now_ns), born.u64(..));
                host.packets = Some(packets);
            }
            if let Some(plan) = &self.plan.requests {
                let engine = engine.clone().unwrap_or_else(|| RequestHost::engine(plan, hosts));
                self.numbers += 1;
                host.requests = Some(RequestHost::new(engine, self.numbers));
                if plan.load != Load::Scripted {
                    self.later(self.now_ns, Event::DemandChange { host: at });
                    self.later(self.now_ns, Event::Request { host: at });
                }
            }
            self.hosts.push(host);
        }
    }

    /// Has somebody ask a host, so long after the beginning, for so many units.
    pub fn ask(&mut self, after_ms: u64, host: usize, cost: u64) {
        self.later(START + after_ms * MS, Event::Scripted { host, cost });
    }

    /// Cuts a host off from the store, from one moment after the beginning to another.
    pub fn cut_off(&mut self, from_ms: u64, until_ms: u64, host: usize) {
        self.later(START + from_ms * MS, Event::CutOff { host, until_ns: START + until_ms * MS });
    }

    /// Goes on for so many steps, or until more was admitted than is allowed.
    pub fn run(mut self, steps: u64) -> Result<Outcomes, String> {
        let explained = |plan: &Plan, why: String| format!("seed {}: {why}\n{plan:?}", plan.seed);
        let mut away_ns = 0;
        for _ in 0..steps {
            let passed = self.rng.u64(MS / 4..4 * MS);
            let now_ns = self.now_ns + passed;
            self.deliver(now_ns);
            self.now_ns = now_ns;
            if now_ns < self.store_down_until_ns {
                away_ns += passed;
            }
            self.go_wrong();
            for at in 0..self.hosts.len() {
                if self.hosts[at].is_asleep(now_ns) {
                    self.hosts[at].slept_ns += passed;
                } else if self.hosts[at].packets.is_some() {
                    self.tick(at);
                    self.offer(at, passed).map_err(|why| explained(&self.plan, why))?;
                }
            }
        }
        requests::check(&self.plan, self.admitted, &self.forgiven)
            .map_err(|why| explained(&self.plan, why))?;
        let rate = self.plan.packets.as_ref().map(|plan| &plan.rate);
        let refilled_in = |ns: u64| {
            rate.map_or(0, |rate| u128::from(ns) * u128::from(rate.amount) / u128::from(rate.period.ns()))
                as u64
        };
        let (refilled, refilled_away) = (refilled_in(self.now_ns - START), refilled_in(away_ns));
        Ok(Outcomes { refilled, refilled_away, ..self.outcomes })
    }

    /// Packets arrive at a host.
    fn offer(&mut self, at: usize, passed_ns: u64) -> Result<(), String> {
        let moment = self.hosts[at].moment(self.now_ns);
        let (Some(host), Some(plan), Some(limit), Some(watch)) =
            (&mut self.hosts[at].packets, &self.plan.packets, &self.limit, &mut self.watch)
        else {
            return Ok(());
        };
        let admitted = host.offer(moment, passed_ns, plan, limit, &mut self.rng);
        self.outcomes.admitted += admitted;
        watch.admitted(self.now_ns, admitted)
    }

    /// The daemon of a host does its work, if there is one and it is time.
    fn tick(&mut self, at: usize) {
        let (now_ns, number, moment) = (self.now_ns, self.numbers, self.hosts[at].moment(self.now_ns));
        let (Some(host), Some(limit)) = (&mut self.hosts[at].packets, &self.limit) else { return };
        if let Some(back_ns) = host.back_ns {
            if now_ns >= back_ns {
                host.start(limit, moment, number);
            }
            return;
        }
        if now_ns < host.next_tick_ns {
            return;
        }
        if let Some((attempt, lines)) = host.tick(moment, &mut self.rng, &self.plan.faults) {
            let epoch = host.epoch;
            self.send(at, &Event::LeaseBatch { host: at, epoch, attempt, lines });
        }
    }

    pub(super) fn later(&mut self, at_ns: u64, event: Event) {
        self.numbers += 1;
        self.agenda.push(Reverse((at_ns, self.numbers)));
        self.events.insert(self.numbers, event);
    }

    /// A message from a host or to it sets out. It may be lost, and lease batches and their answers may arrive twice.
    pub(super) fn send(&mut self, host: usize, message: &Event) {
        let Faults { lost, doubled, quickest_ms, slowest_ms, .. } = self.plan.faults;
        let is_cut_off = self.now_ns < self.hosts[host].cut_off_until_ns;
        let (rng, doubled) = match message {
            Event::LeaseBatch { .. } | Event::Grants { .. } => (&mut self.rng, doubled),
            _ => (&mut self.asking, 0),
        };
        let copies = if rng.u64(0..1_000) < doubled { 2 } else { 1 };
        let mut arrivals = Vec::new();
        for _ in 0..copies {
            if is_cut_off || rng.u64(0..1_000) < lost {
                self.outcomes.lost += 1;
                continue;
            }
            // Nine messages in ten are quick.
            let slowest = if rng.u64(0..10) == 0 { slowest_ms } else { slowest_ms.min(3) };
            arrivals.push(self.now_ns + quickest_ms * MS + rng.u64(0..=slowest * MS));
        }
        for at_ns in arrivals {
            self.later(at_ns, message.clone());
        }
    }

    /// Everything happens that is due.
    fn deliver(&mut self, now_ns: u64) {
        while let Some(Reverse((at_ns, number))) = self.agenda.peek().copied().filter(|due| due.0.0 <= now_ns)
        {
            self.agenda.pop();
            let Some(event) = self.events.remove(&number) else { continue };
            match event {
                // The store and daemons look at what there is in steps.
                Event::LeaseBatch { .. } | Event::Grants { .. } => self.now_ns = now_ns,
                _ => self.now_ns = at_ns,
            }
            self.happens(number, event);
        }
        self.now_ns = now_ns;
        // A replica that is some way behind.
        if self.rng.u64(0..200) == 0 && self.plan.faults.forgets {
            self.store.replicate();
        }
    }

    /// What the store's clock shows.
    pub(super) fn store_clock_us(&self) -> u64 {
        (self.now_ns - self.store_back_ns) / 1_000
    }

    fn happens(&mut self, number: u64, event: Event) {
        let (Event::LeaseBatch { host, .. }
        | Event::Grants { host, .. }
        | Event::Question { host, .. }
        | Event::Answer { host, .. }
        | Event::GiveUp { host, .. }
        | Event::Request { host }
        | Event::Scripted { host, .. }
        | Event::CutOff { host, .. }
        | Event::Refund { host, .. }
        | Event::DemandChange { host }) = event;
        // What comes for somebody who stands still waits.
        let is_at_store = matches!(event, Event::LeaseBatch { .. } | Event::Question { .. });
        let is_for_daemon = matches!(event, Event::Grants { .. });
        let Host { asleep_until_ns, stopped_until_ns, .. } = self.hosts[host];
        let still_ns = if is_for_daemon { asleep_until_ns } else { asleep_until_ns.max(stopped_until_ns) };
        if !is_at_store && self.now_ns < still_ns {
            self.agenda.push(Reverse((still_ns, number)));
            self.events.insert(number, event);
            return;
        }
        match event {
            Event::LeaseBatch { host, epoch, attempt, lines } => self.exchange(host, epoch, attempt, &lines),
            Event::Grants { host, epoch, attempt, grants } => {
                let moment = self.hosts[host].moment(self.now_ns);
                if let Some(packets) = &mut self.hosts[host].packets {
                    packets.hear(moment, epoch, attempt, &grants);
                }
            }
            Event::Question { host, question, from, inquiries } => {
                self.store_is_asked(host, question, &from, &inquiries);
            }
            Event::Answer { question, told, decided_ns, .. } => self.answer(question, &told, decided_ns),
            Event::GiveUp { question, .. } => self.give_up(question),
            Event::Request { host } => self.somebody_asks(host),
            Event::Scripted { host, cost } => self.request(host, 0, cost),
            Event::CutOff { host, until_ns } => self.hosts[host].cut_off_until_ns = until_ns,
            Event::Refund { host, asked } => self.refund(host, asked),
            Event::DemandChange { host } => self.change_demand(host),
        }
    }

    /// The store answers a lease batch.
    fn exchange(&mut self, host: usize, epoch: u64, attempt: u64, lines: &[Line]) {
        let Some(packets) =
            self.hosts[host].packets.as_ref().filter(|_| self.now_ns >= self.store_down_until_ns)
        else {
            return;
        };
        let (timing, name) = (*packets.timing(), format!("{host}:{epoch}"));
        let grants = self.store.packets(&name, &timing, self.store_clock_us(), lines);
        self.outcomes.batches += 1;
        let grants = lines.iter().map(|line| line.key.clone()).zip(grants).collect();
        self.send(host, &Event::Grants { host, epoch, attempt, grants });
    }

    fn go_wrong(&mut self) {
        self.set_clocks();
        if self.rng.u64(0..1_000_000) >= self.plan.faults.disasters {
            return;
        }
        self.outcomes.disasters += 1;
        let host = self.rng.usize(0..self.hosts.len());
        // Of requests, now and then longer than any lease lasts.
        let longest_ms = match self.plan.requests {
            None => 5_000,
            Some(_) if self.asking.u32(0..16) == 0 => 300_000,
            Some(_) => 10_000,
        };
        let soon = self.now_ns + self.rng.u64(0..longest_ms) * MS;
        let is_asleep = self.hosts[host].is_asleep(self.now_ns);
        match self.rng.u32(0..6) {
            0 if is_asleep => {}
            0 => {
                self.outcomes.crashes += 1;
                if let Some(packets) = &mut self.hosts[host].packets {
                    packets.back_ns = Some(soon);
                }
                self.restart_requests(host);
            }
            1 => {
                self.outcomes.cut_off += 1;
                self.hosts[host].cut_off_until_ns = soon;
            }
            3 if self.plan.faults.forgets => {
                self.store.fail_over();
                self.store_down_until_ns = self.now_ns + self.rng.u64(0..1_000) * MS;
                self.forget();
            }
            4 if self.plan.faults.forgets => {
                self.store.empty();
                self.forget();
            }
            2..5 => {
                self.outcomes.outages += 1;
                self.store_down_until_ns = soon;
            }
            // Processes are stopped for a while.
            _ => {
                if let Some(packets) = &mut self.hosts[host].packets {
                    packets.next_tick_ns = soon;
                }
                self.hosts[host].stopped_until_ns = soon;
            }
        }
    }

    fn forget(&mut self) {
        self.outcomes.forgot += 1;
        self.forgiven.push((self.now_ns, 8));
    }

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
            if host.packets.as_ref().is_none_or(|packets| packets.back_ns.is_none()) {
                host.asleep_until_ns = until_ns;
                host.packets.iter_mut().for_each(|packets| packets.next_tick_ns = until_ns);
                // A lease of requests, an eighth of a limit and what was left of the one before, looks good until the host hears of the store.
                self.forgiven.push((self.now_ns, 2));
            }
        }
    }
}
