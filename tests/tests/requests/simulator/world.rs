//! Hosts, a store and the network between them. What decides is the code that runs in production: counter keys, leases and the engine of each host, and the
//! books of the store, which its script mirrors. What is simulated is time, and who hears what when.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    ops::AddAssign,
};

use fastrand::Rng;
use ratelimit_tests::{policies::REQUEST_ALGORITHMS, record::StoreRecord};
use ratelimit_user::{
    config,
    requests::{
        Engine, Mode, Outcome, Request,
        leases::Leases,
        renewal::{self, Renewal},
        shared::{self, Step, Taking},
    },
    store::{ask::Told, inquiry::Inquiry},
};

use super::watch::Watch;

const SECOND: u64 = 1_000_000;
const MS: u64 = 1_000;
/// Where the world begins.
const START: u64 = 1_790_000_000 * SECOND;
/// How long a host waits for the store.
const PATIENCE_US: u64 = 100 * MS;
/// For how long the store remembers what a host wanted.
const RECENT_US: u64 = 400 * MS;
const API: &str = "api";
const CLUSTER: &str = "c";

/// What can go wrong. What is lost is lost to everybody, so the bound is in danger where little is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// Questions and answers that are lost, out of a thousand.
    lost: u64,
    /// The longest that one of them takes.
    slowest_us: u64,
    /// A host crashes, or the store is away for a while, or a host is cut off from it, as often as that at least.
    disaster_us: Option<u64>,
    /// How far clocks run apart, in thousandths.
    drift: i64,
}

impl Faults {
    pub(crate) const NONE: Self = Self { lost: 0, slowest_us: 2 * MS, disaster_us: None, drift: 0 };
    pub(crate) const ALL: Self =
        Self { lost: 50, slowest_us: 120 * MS, disaster_us: Some(20 * SECOND), drift: 20 };
}

/// What hosts do without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alone {
    Refuse,
    Reserve,
    Share,
}

impl Alone {
    fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Reserve => "reserve",
            Self::Share => "share",
        }
    }
}

/// A cluster to be.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    seed: u64,
    pub(crate) algorithm: &'static str,
    pub(crate) limit: u64,
    pub(crate) period_us: u64,
    period: &'static str,
    sharing: &'static str,
    alone: Alone,
    hosts: usize,
    faults: Faults,
    /// Whether all of them ask for more than there is, all the time.
    greedy: bool,
}

impl Plan {
    /// One like operators would have it, at random.
    pub(crate) fn random(seed: u64, faults: Faults) -> Self {
        let mut rng = Rng::with_seed(seed);
        let limits =
            [(15, SECOND, "s"), (200, SECOND, "s"), (300, 60 * SECOND, "min"), (64, 60 * SECOND, "min")];
        let (limit, period_us, period) = limits[rng.usize(0..limits.len())];
        let alone = [Alone::Refuse, Alone::Reserve, Alone::Share][rng.usize(0..3)];
        // Who counts alone does so by its own clock.
        let drift = if alone == Alone::Refuse { faults.drift } else { 0 };
        let part = rng.u64(0..4);
        let (lost, slowest_us) = (faults.lost * part / 3, (faults.slowest_us * part / 3).max(MS));
        Self {
            seed,
            algorithm: REQUEST_ALGORITHMS[rng.usize(0..REQUEST_ALGORITHMS.len())],
            limit,
            period_us,
            period,
            sharing: if rng.u32(0..4) == 0 { "strict" } else { "lease" },
            alone,
            hosts: rng.usize(1..=4),
            faults: Faults { lost, slowest_us, drift, ..faults },
            greedy: false,
        }
    }

    /// The same where all ask for more than there is.
    pub(crate) fn greedy(self) -> Self {
        Self { greedy: true, ..self }
    }

    /// How many times the limit may be admitted: where hosts are alone at times they have shares beside what the store gives.
    pub(crate) fn times(&self) -> u64 {
        if self.alone == Alone::Share && self.faults.disaster_us.is_some() { 2 } else { 1 }
    }

    /// Units that come in within a time.
    pub(crate) fn refilled(&self, seconds: u64) -> f64 {
        self.limit as f64 * (seconds * SECOND) as f64 / self.period_us as f64
    }

    fn policy(&self) -> String {
        let Self { algorithm, limit, period, sharing, hosts, .. } = self;
        format!(
            "[source]\nlimits = [\"1/s\"]\n[cluster]\nredis = \"redis://127.0.0.1:1\"\nhosts = {hosts}\n[[api]]\nname = \"{API}\"\n\
             limits = [\"{limit}/{period}\"]\nalgorithm = \"{algorithm}\"\nsharing = \"{sharing}\"\nwithout_store = \"{}\"\n",
            self.alone.word()
        )
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcomes {
    /// Units that were admitted from leases, by the store, and by hosts alone.
    pub(crate) by_lease: u64,
    pub(crate) by_store: u64,
    pub(crate) alone: u64,
    /// Leases that were renewed while they lasted.
    pub(crate) renewed: u64,
    pub(crate) lost: u64,
    pub(crate) crashes: u64,
    pub(crate) outages: u64,
    pub(crate) cut_off: u64,
}

impl Outcomes {
    pub(crate) fn admitted(&self) -> u64 {
        self.by_lease + self.by_store + self.alone
    }
}

impl AddAssign for Outcomes {
    fn add_assign(&mut self, other: Self) {
        self.by_lease += other.by_lease;
        self.by_store += other.by_store;
        self.alone += other.alone;
        self.renewed += other.renewed;
        self.lost += other.lost;
        self.crashes += other.crashes;
        self.outages += other.outages;
        self.cut_off += other.cut_off;
    }
}

#[derive(Debug)]
struct Host {
    /// Of this start of it: the store knows each by another name.
    name: String,
    engine: Engine,
    leases: Leases,
    /// Its clock: so many thousandths faster, and that far ahead.
    drift: i64,
    ahead_us: u64,
    /// Time between two requests, at most.
    pause_us: u64,
    /// Until when nothing comes through from it or to it.
    cut_off_us: u64,
}

/// A question that has no answer yet.
#[derive(Debug)]
struct Question {
    host: usize,
    about: About,
    inquiries: Vec<Inquiry>,
}

#[derive(Debug)]
enum About {
    /// Somebody waits, who has so many units to pay.
    Request { cost: u64 },
    /// Nobody does.
    Renewals(Vec<Renewal>),
}

#[derive(Debug)]
enum Event {
    /// Somebody asks a host.
    Request { host: usize },
    /// A question is at the store.
    Arrives { question: u64, host: usize, from: String, inquiries: Vec<Inquiry> },
    /// Its answer is at the host.
    Answer { question: u64, told: Vec<Told>, decided_us: u64 },
    /// The host does not wait any longer.
    GiveUp { question: u64 },
    /// Those who ask a host get busier, or lose interest.
    Mood { host: usize },
    /// Something breaks.
    Disaster,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct World<'p> {
    plan: &'p Plan,
    rng: Rng,
    now_us: u64,
    hosts: Vec<Host>,
    store: BTreeMap<String, StoreRecord>,
    store_back_us: u64,
    agenda: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    questions: BTreeMap<u64, Question>,
    numbers: u64,
    /// What was admitted when: answers of the store come in later than it decided.
    admitted: Vec<(u64, u64)>,
    outcomes: Outcomes,
}

impl<'p> World<'p> {
    pub(crate) fn new(plan: &'p Plan) -> Self {
        let mut world = Self {
            plan,
            rng: Rng::with_seed(plan.seed.wrapping_add(1 << 32)),
            now_us: START,
            hosts: Vec::new(),
            store: BTreeMap::new(),
            store_back_us: 0,
            agenda: BinaryHeap::new(),
            events: BTreeMap::new(),
            questions: BTreeMap::new(),
            numbers: 0,
            admitted: Vec::new(),
            outcomes: Outcomes::default(),
        };
        for host in 0..plan.hosts {
            let started = world.start();
            world.hosts.push(started);
            world.later(world.now_us, Event::Mood { host });
            world.later(world.now_us, Event::Request { host });
        }
        world.later(world.now_us, Event::Disaster);
        world
    }

    fn start(&mut self) -> Host {
        let policy =
            config::parse(&self.plan.policy(), "world").unwrap_or_else(|error| panic!("{error}")).policy;
        self.numbers += 1;
        let Faults { drift, .. } = self.plan.faults;
        Host {
            name: format!("h{}", self.numbers),
            engine: Engine::new(&policy, self.now_us),
            leases: Leases::new(1_000),
            drift: self.rng.i64(-drift..=drift),
            ahead_us: if drift == 0 { 0 } else { self.rng.u64(0..5 * SECOND) },
            pause_us: SECOND,
            cut_off_us: 0,
        }
    }

    /// What a host's clock shows.
    fn clock(&self, host: usize) -> u64 {
        let Host { drift, ahead_us, .. } = self.hosts[host];
        let passed = i64::try_from(self.now_us - START).expect("not centuries");
        (self.now_us + ahead_us).saturating_add_signed(passed * drift / 1_000)
    }

    fn later(&mut self, at_us: u64, event: Event) {
        self.numbers += 1;
        self.agenda.push(Reverse((at_us, self.numbers)));
        self.events.insert(self.numbers, event);
    }

    /// A message from a host or to it sets out, and may be lost.
    fn send(&mut self, host: usize, event: Event) {
        let Faults { lost, slowest_us, .. } = self.plan.faults;
        if self.rng.u64(0..1_000) < lost || self.now_us < self.hosts[host].cut_off_us {
            self.outcomes.lost += 1;
            return;
        }
        let at_us = self.now_us + self.rng.u64(1..=slowest_us);
        self.later(at_us, event);
    }

    /// Runs it, and has an onlooker check what was admitted.
    pub(crate) fn run(mut self, seconds: u64) -> Result<Outcomes, String> {
        let end_us = START + seconds * SECOND;
        while let Some(Reverse((at_us, number))) = self.agenda.pop() {
            if at_us > end_us {
                break;
            }
            self.now_us = at_us;
            if let Some(event) = self.events.remove(&number) {
                self.happens(event);
            }
        }
        let mut watch = Watch::new(self.plan);
        self.admitted.sort_unstable();
        self.admitted.iter().try_for_each(|(at_us, units)| watch.admitted(*at_us, *units))?;
        Ok(self.outcomes)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Request { host } => {
                self.request(host);
                let pause_us = self.rng.u64(0..=self.hosts[host].pause_us);
                self.later(self.now_us + pause_us, Event::Request { host });
            }
            Event::Arrives { question, host, from, inquiries } => {
                self.arrives(question, host, &from, &inquiries);
            }
            Event::Answer { question, told, decided_us } => self.answer(question, &told, decided_us),
            Event::GiveUp { question } => self.give_up(question),
            Event::Mood { host } => self.mood(host),
            Event::Disaster => self.disaster(),
        }
    }

    /// Leases are given in quiet times, and what they do wrong shows when everybody comes at once.
    fn mood(&mut self, host: usize) {
        let fair_us = 2 * self.plan.period_us / self.plan.limit;
        let moods = [fair_us / 20, fair_us / 2, fair_us, 10 * fair_us, 60 * SECOND];
        let quiet = if self.plan.greedy { 2 } else { moods.len() };
        self.hosts[host].pause_us = moods[self.rng.usize(0..quiet)];
        let at_us = self.now_us + self.rng.u64(0..=40 * SECOND);
        self.later(at_us, Event::Mood { host });
    }

    fn disaster(&mut self) {
        let Some(longest_us) = self.plan.faults.disaster_us else { return };
        let at_us = self.now_us + self.rng.u64(0..=longest_us);
        self.later(at_us, Event::Disaster);
        let host = self.rng.usize(0..self.hosts.len());
        // Now and then longer than any lease lasts.
        let longest_us = if self.rng.u32(0..16) == 0 { 300 * SECOND } else { 10 * SECOND };
        let back_us = self.now_us + self.rng.u64(0..longest_us);
        match self.rng.u32(0..3) {
            0 => {
                self.outcomes.crashes += 1;
                // It comes back without its leases, which are written off in time. What it counts for itself it keeps here: a host that is
                // started twice within a window may admit its own part twice.
                self.numbers += 1;
                self.hosts[host].name = format!("h{}", self.numbers);
                self.hosts[host].leases = Leases::new(1_000);
                self.questions.retain(|_, asked| asked.host != host);
            }
            1 => {
                self.outcomes.outages += 1;
                self.store_back_us = back_us;
            }
            _ => {
                self.outcomes.cut_off += 1;
                self.hosts[host].cut_off_us = back_us;
            }
        }
    }

    fn request(&mut self, host: usize) {
        let cost = if self.rng.u32(0..10) == 0 { self.rng.u64(1..=5) } else { 1 };
        let now_us = self.clock(host);
        let Host { engine, leases, name, .. } = &self.hosts[host];
        let (rules, request) = (engine.rules(), Request::new("u", API).costing(cost));
        let counters = engine.counter_keys(&rules, &request, now_us).expect("a question that has an answer");
        let (about, inquiries) = match shared::step(&counters, &request, leases, now_us) {
            Step::Decided { decision, due } => {
                if decision.outcome.is_served() {
                    self.admitted.push((self.now_us, cost));
                    self.outcomes.by_lease += cost;
                }
                if !due {
                    return;
                }
                let renewals = renewal::due(&counters, &request, leases, CLUSTER, true, now_us);
                let inquiries = renewals.iter().map(|renewal| renewal.inquiry.clone()).collect();
                (About::Renewals(renewals), inquiries)
            }
            Step::Ask => {
                let asked =
                    shared::inquiries(&counters, &request, leases, CLUSTER, true, Taking::Ahead, now_us);
                (About::Request { cost }, asked)
            }
        };
        let from = name.clone();
        drop(rules);
        self.numbers += 1;
        let question = self.numbers;
        let asked = Question { host, about, inquiries: inquiries.clone() };
        self.questions.insert(question, asked);
        self.later(self.now_us + PATIENCE_US, Event::GiveUp { question });
        self.send(host, Event::Arrives { question, host, from, inquiries });
    }

    /// The store works off what has come even if whoever asked does not wait for it any more.
    fn arrives(&mut self, question: u64, host: usize, from: &str, inquiries: &[Inquiry]) {
        if self.now_us < self.store_back_us {
            return;
        }
        let told = inquiries.iter().map(|Inquiry { key, limits, ask }| {
            let record = self.store.entry(key.clone()).or_default();
            record.exchange(limits, RECENT_US, self.now_us, from, ask)
        });
        let told = told.collect();
        self.send(host, Event::Answer { question, told, decided_us: self.now_us });
    }

    fn answer(&mut self, question: u64, told: &[Told], decided_us: u64) {
        let Some(asked) = self.questions.remove(&question) else { return };
        let Question { host, about, inquiries } = asked;
        let now_us = self.clock(host);
        let Host { engine, leases, .. } = &self.hosts[host];
        let cost = match about {
            About::Request { cost } => cost,
            About::Renewals(renewals) => {
                renewals.iter().zip(told).for_each(|(one, told)| one.answered(told, leases, now_us));
                self.outcomes.renewed += 1;
                return;
            }
        };
        let (rules, request) = (engine.rules(), Request::new("u", API).costing(cost));
        let counters = engine.counter_keys(&rules, &request, now_us).expect("the same question");
        let verdict = shared::verdict(&counters, &inquiries, told, leases, now_us);
        assert!(verdict.undo.is_empty(), "there is one key");
        if verdict.decision.outcome == Outcome::Allowed {
            self.admitted.push((decided_us, cost));
            self.outcomes.by_store += cost;
        }
    }

    fn give_up(&mut self, question: u64) {
        let Some(Question { host, about, inquiries, .. }) = self.questions.remove(&question) else { return };
        let now_us = self.clock(host);
        let Host { engine, leases, .. } = &self.hosts[host];
        let cost = match about {
            About::Request { cost } => cost,
            About::Renewals(renewals) => {
                renewals.iter().for_each(|one| one.failed(leases));
                return;
            }
        };
        let (rules, request) = (engine.rules(), Request::new("u", API).costing(cost));
        let counters = engine.counter_keys(&rules, &request, now_us).expect("the same question");
        shared::failed(&counters, &inquiries, leases);
        let Some(alone) = rules.alone(&counters) else { return };
        if engine.judge(&alone, &request, now_us, Mode::Take).outcome.is_served() {
            self.admitted.push((self.now_us, cost));
            self.outcomes.alone += cost;
        }
    }
}
