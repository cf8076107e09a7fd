//! Hosts that count requests, as the decision service does it: from leases, by what the store says, and alone where it does not answer.

use std::{collections::BTreeMap, rc::Rc};

use ratelimit_user::{
    config,
    policy::Alone as WithoutStore,
    requests::{
        Engine, JudgeMode, Outcome, Request, Rules,
        counter_keys::CounterKeys,
        leases::RequestLeases,
        renewal::{self, Renewal},
        shared::{self, Step},
    },
    store::{ask::Told, inquiry::Inquiry},
};

use super::{
    Alone, CLUSTER, Faults, Load, MS, Plan, RequestPlan, SECOND, START, Watch,
    world::{Event, World},
};

/// How long a host waits for the store.
const PATIENCE_NS: u64 = 100 * MS;
/// For how long the store remembers what a host wanted.
const RECENT_US: u64 = 400_000;

/// The decision service of one host.
#[derive(Debug)]
pub(super) struct RequestHost {
    /// Of this start of it: the store knows each by another name.
    name: String,
    engine: Rc<Engine>,
    leases: RequestLeases,
    /// Time between two requests, at most.
    pause_ns: u64,
}

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    user: u64,
    cost: u64,
    /// When, by the clock of the host.
    at_us: u64,
}

/// A question that has no answer yet.
#[derive(Debug)]
pub(super) struct Question {
    host: usize,
    about: About,
    inquiries: Vec<Inquiry>,
}

#[derive(Debug)]
enum About {
    /// A request, whose caller waits for the answer.
    Request(Asked),
    /// Renewals of leases, for which nobody waits.
    Renewals(Vec<Renewal>),
    /// Something is given back, and what was so of leases already.
    Refund(Asked, u64),
}

/// What was admitted of a key: its limit, how many times that may be admitted, and what when. Answers of the store come in later than it decided.
#[derive(Debug)]
pub(super) struct Admitted {
    limit: u64,
    times: u64,
    units: Vec<(u64, u64)>,
}

impl RequestHost {
    pub(super) fn new(engine: Rc<Engine>, name: u64) -> Self {
        Self { name: format!("h{name}"), engine, leases: RequestLeases::new(1_000), pause_ns: SECOND }
    }

    /// An engine for the policy of a plan.
    pub(super) fn engine(plan: &RequestPlan, hosts: usize) -> Rc<Engine> {
        let policy = config::parse(&plan.policy(hosts), "world").unwrap_or_else(|error| panic!("{error}"));
        Rc::new(Engine::new(&policy.policy, START / 1_000))
    }

    fn look<R>(
        &self,
        asked: Asked,
        look: impl for<'r> FnOnce(&'r Rules, &CounterKeys<'r>, &Request<'_>) -> R,
    ) -> R {
        let (rules, user) = (self.engine.rules(), format!("u{}", asked.user));
        let request = Request::new(&user, "api").costing(asked.cost);
        let counters = self.engine.counter_keys(&rules, &request, asked.at_us).expect("a good question");
        look(&rules, &counters, &request)
    }
}

impl World {
    fn asks(&self) -> &RequestPlan {
        self.plan.requests.as_ref().expect("a world with requests")
    }

    fn request_host(&self, host: usize) -> &RequestHost {
        self.hosts[host].requests.as_ref().expect("a host of requests")
    }

    fn clock_us(&self, host: usize) -> u64 {
        self.hosts[host].clock(self.now_ns) / 1_000
    }

    /// The host comes back without its leases, which are written off in time. What it counts for itself it keeps here: a host that is started twice
    /// within a window may admit its own part twice.
    pub(super) fn restart_requests(&mut self, host: usize) {
        self.numbers += 1;
        let number = self.numbers;
        if let Some(of_host) = &mut self.hosts[host].requests {
            *of_host = RequestHost::new(Rc::clone(&of_host.engine), number);
            self.questions.retain(|_, question| question.host != host);
        }
    }

    /// Leases are given in quiet times, and what they do wrong shows when everybody comes at once.
    pub(super) fn change_demand(&mut self, host: usize) {
        let fair_ns = 2 * self.asks().period_ns() / self.asks().limit;
        let pauses_ns = [fair_ns / 20, fair_ns / 2, fair_ns, 10 * fair_ns, 60 * SECOND];
        let pause_ns = match self.asks().load {
            Load::Varying => pauses_ns[self.asking.usize(0..pauses_ns.len())],
            Load::Greedy => pauses_ns[self.asking.usize(0..2)],
            Load::Steady(pause_us) => 2_000 * pause_us,
            Load::Scripted => 0,
        };
        if let Some(host) = &mut self.hosts[host].requests {
            host.pause_ns = pause_ns;
        }
        let next_ns = self.now_ns + self.asking.u64(0..=40 * SECOND);
        self.later(next_ns, Event::DemandChange { host });
    }

    /// Somebody asks a host, and somebody else does so later.
    pub(super) fn somebody_asks(&mut self, host: usize) {
        let RequestPlan { users, busy, .. } = *self.asks();
        let user = match busy > 0 && self.asking.bool() {
            true => self.asking.u64(0..busy),
            false => self.asking.u64(0..users),
        };
        let cost = if self.asking.u32(0..10) == 0 { self.asking.u64(1..=5) } else { 1 };
        self.request(host, user, cost);
        let pause_ns = self.request_host(host).pause_ns;
        let next_ns = self.now_ns + self.asking.u64(0..=pause_ns);
        self.later(next_ns, Event::Request { host });
    }

    /// Every user asks some host, all at this moment, and every answer is heard.
    pub fn everybody_asks(&mut self) {
        let everybody: Vec<u64> = (0..self.asks().users).collect();
        for some in everybody.chunks(500) {
            let host_of = |user: u64| (user % self.hosts.len() as u64) as usize;
            let question = |user: &u64| {
                let of_host = self.request_host(host_of(*user));
                let asked = Asked { user: *user, cost: 1, at_us: self.clock_us(host_of(*user)) };
                let inquiries = of_host.look(asked, |_, counters, request| {
                    let (taking, now_us) = (shared::ahead(counters, request), asked.at_us);
                    shared::inquiries(counters, request, &of_host.leases, CLUSTER, true, taking, now_us)
                });
                (asked, (of_host.name.clone(), inquiries))
            };
            let (asked, questions): (Vec<Asked>, Vec<_>) = some.iter().map(question).unzip();
            let answers = self.store.at_once(RECENT_US, self.store_clock_us(), &questions);
            for ((asked, (_, inquiries)), told) in asked.into_iter().zip(questions).zip(answers) {
                let host = (asked.user % self.hosts.len() as u64) as usize;
                self.numbers += 1;
                self.questions
                    .insert(self.numbers, Question { host, about: About::Request(asked), inquiries });
                self.answer(self.numbers, &told, self.now_ns);
            }
        }
    }

    pub(super) fn request(&mut self, host: usize, user: u64, cost: u64) {
        let asked = Asked { user, cost, at_us: self.clock_us(host) };
        let of_host = self.request_host(host);
        let leases = &of_host.leases;
        let (is_served, about, inquiries) = of_host.look(asked, |_, counters, request| {
            match shared::step(counters, request, leases, asked.at_us) {
                Step::Decided { decision, due } => {
                    let renewals = match due {
                        true => renewal::due(counters, request, leases, CLUSTER, true, asked.at_us),
                        false => Vec::new(),
                    };
                    let inquiries = renewals.iter().map(|renewal| renewal.inquiry.clone()).collect();
                    (decision.outcome.is_served(), About::Renewals(renewals), inquiries)
                }
                Step::Ask => {
                    let (taking, now_us) = (shared::ahead(counters, request), asked.at_us);
                    let all = shared::inquiries(counters, request, leases, CLUSTER, true, taking, now_us);
                    (false, About::Request(asked), all)
                }
            }
        });
        if is_served {
            self.outcomes.by_lease += cost;
            self.serve(host, asked, self.now_ns);
        }
        self.question(host, about, inquiries);
    }

    /// The store is asked something.
    fn question(&mut self, host: usize, about: About, inquiries: Vec<Inquiry>) {
        if inquiries.is_empty() {
            return;
        }
        self.numbers += 1;
        let (question, from) = (self.numbers, self.request_host(host).name.clone());
        self.later(self.now_ns + PATIENCE_NS, Event::GiveUp { host, question });
        self.send(host, &Event::Question { host, question, from, inquiries: inquiries.clone() });
        self.questions.insert(question, Question { host, about, inquiries });
    }

    /// The store works off what has come even if whoever asked does not wait for it any more.
    pub(super) fn store_is_asked(&mut self, host: usize, question: u64, from: &str, inquiries: &[Inquiry]) {
        if self.now_ns >= self.store_down_until_ns {
            let told = self.store.requests(from, RECENT_US, self.store_clock_us(), inquiries);
            self.send(host, &Event::Answer { host, question, told, decided_ns: self.now_ns });
        }
    }

    /// A request was allowed at a moment. Most are served; some are not, and given back.
    fn serve(&mut self, host: usize, asked: Asked, at_ns: u64) {
        if self.asking.u64(0..1_000) < self.asks().refunds {
            let within_ns = self.asks().refunded_within_ns();
            let at_ns = self.now_ns + self.asking.u64(0..within_ns);
            return self.later(at_ns, Event::Refund { host, asked });
        }
        let is_alone_at_times = self.asks().alone != Alone::Refuse && self.plan.faults.disasters > 0;
        let keys = self.request_host(host).look(asked, |_, counters, request| {
            let limits = counters.iter().map(|counter| {
                let gives = is_alone_at_times && counter.allowance.without_store == WithoutStore::Share;
                (counter.allowance.limits[0].quota, if gives { 2 } else { 1 })
            });
            shared::store_keys(counters, request, CLUSTER).into_iter().zip(limits).collect::<Vec<_>>()
        });
        for (key, (limit, times)) in keys {
            let admitted =
                self.admitted.entry(key).or_insert_with(|| Admitted { limit, times, units: Vec::new() });
            // The store counts in microseconds.
            admitted.units.push((at_ns - at_ns % 1_000, asked.cost));
        }
    }

    /// What a request was charged is given back.
    pub(super) fn refund(&mut self, host: usize, asked: Asked) {
        let now_us = self.clock_us(host);
        let of_host = self.request_host(host);
        let (settled, refunds) = of_host.look(asked, |_, counters, request| {
            let settled = shared::unspend(counters, request, &of_host.leases, now_us);
            let age_us = now_us.saturating_sub(asked.at_us).max(1);
            let refunds = shared::refunds(counters, settled, request, CLUSTER, true, age_us);
            if refunds.is_empty() {
                shared::hope(counters, &of_host.leases);
            }
            (settled, refunds)
        });
        self.outcomes.refunded += asked.cost;
        self.question(host, About::Refund(asked, settled), refunds);
    }

    pub(super) fn answer(&mut self, question: u64, told: &[Told], decided_ns: u64) {
        let Some(Question { host, about, inquiries }) = self.questions.remove(&question) else { return };
        let now_us = self.clock_us(host);
        let of_host = self.request_host(host);
        let leases = &of_host.leases;
        match about {
            About::Request(asked) => {
                let (outcome, undo) = of_host.look(asked, |_, counters, _| {
                    let outcome =
                        shared::verdict(counters, &inquiries, told, leases, true, now_us).decision.outcome;
                    let charged = inquiries.iter().zip(told).filter(|(_, told)| told.spent);
                    let undo: Vec<Inquiry> = match outcome.is_served() {
                        true => Vec::new(),
                        false => charged.map(|(inquiry, _)| shared::refund(inquiry)).collect(),
                    };
                    (outcome, undo)
                });
                let from = of_host.name.clone();
                if outcome == Outcome::Allowed {
                    self.outcomes.by_store += asked.cost;
                    self.serve(host, asked, decided_ns);
                }
                if !undo.is_empty() {
                    self.outcomes.undone += 1;
                    // Nobody waits for the answer.
                    self.send(host, &Event::Question { host, question, from, inquiries: undo });
                }
            }
            About::Renewals(renewals) => {
                renewals.iter().zip(told).for_each(|(one, told)| one.answered(told, leases, now_us));
                self.outcomes.renewed += 1;
            }
            About::Refund(asked, _) => {
                of_host.look(asked, |_, counters, _| shared::hope(counters, leases));
            }
        }
    }

    pub(super) fn give_up(&mut self, question: u64) {
        let Some(Question { host, about, inquiries }) = self.questions.remove(&question) else { return };
        let now_us = self.clock_us(host);
        let of_host = self.request_host(host);
        let (engine, leases) = (&of_host.engine, &of_host.leases);
        match about {
            About::Request(asked) => {
                let is_served = of_host.look(asked, |rules, counters, request| {
                    shared::failed(counters, &inquiries, leases);
                    let alone = rules.alone(counters);
                    alone.is_some_and(|own| {
                        engine.judge(&own, request, now_us, JudgeMode::Take).outcome.is_served()
                    })
                });
                if is_served {
                    self.outcomes.alone += asked.cost;
                    self.serve(host, asked, self.now_ns);
                }
            }
            About::Renewals(renewals) => renewals.iter().for_each(|one| one.failed(leases)),
            About::Refund(asked, settled) => of_host.look(asked, |rules, counters, request| {
                shared::respend(counters, settled, request, leases, now_us);
                // What this host has decided without the store, it has charged here.
                if let Some(alone) = rules.alone(counters).filter(|_| settled == 0) {
                    engine.give_back(&alone, request, now_us.saturating_sub(asked.at_us).max(1), now_us);
                }
            }),
        }
    }
}

/// Has an onlooker check what was admitted of each key. At some moments the store forgot, or a host stood still: so many eighths of a limit are no
/// fault from then on.
pub(super) fn check(
    plan: &Plan,
    admitted: BTreeMap<String, Admitted>,
    forgiven: &[(u64, u64)],
) -> Result<(), String> {
    let Some(requests) = &plan.requests else { return Ok(()) };
    // What is given back is what was charged last: somebody else's unit, which was admitted later than the one that stays charged in its place. A
    // request that one key refuses and another was charged for is given back two ways later, and what was not served as late as its caller says so.
    let Faults { quickest_ms, slowest_ms, .. } = plan.faults;
    let ways_ns =
        if requests.users > 1 || requests.refunds > 0 { 2 * (quickest_ms + slowest_ms) * MS } else { 0 };
    let early_ns = ways_ns + if requests.refunds > 0 { requests.refunded_within_ns() } else { 0 };
    for (key, Admitted { limit, times, mut units }) in admitted {
        let mut watch = Watch::of(requests, limit, times, early_ns, plan.faults.clocks > 0);
        let mut forgiven = forgiven.iter().peekable();
        units.sort_unstable();
        for (at_ns, units) in units {
            while let Some((_, eighths)) = forgiven.next_if(|(forgot_ns, _)| *forgot_ns <= at_ns) {
                watch.forgive(limit * eighths / 8);
            }
            watch.admitted(at_ns, units).map_err(|why| format!("{key}: {why}"))?;
        }
    }
    Ok(())
}
