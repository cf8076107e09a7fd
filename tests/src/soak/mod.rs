//! A soak: floods and honest traffic while the daemon is killed, policies and builds change, and interfaces, file systems, the store, the
//! disk and the clock fail, in an order that a seed fixes.
//!
//! ```text
//! seed -> deck of events -> event -> floods go on -> all pause -> every packet judged? every bound kept? honest loss? growth?
//! ```
//!
//! Every packet counts: interfaces say what they received, programs what they judged, receivers what arrived. `cargo xtask soak` runs it.

mod balance;
mod bound;
mod deeds;
mod event;
mod growth;
mod load;
mod policy;
mod sender;
mod site;
mod watch;

use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use aya::Ebpf;

use self::{
    balance::{Balance, Scales},
    event::HonestCost,
    growth::{Held, InKernel},
    policy::{BLOCKED, BLOCKED_FOR_HOURS, CALLER, LIMITS, STREAMS, Variant},
    sender::{Caller, Sender, Signal},
    site::{SECOND_V4, Site},
    watch::{Due, Watch, at},
};
pub use self::{
    event::{Deck, Event},
    load::{Burden, load},
    site::Build,
};
use crate::{
    daemon::binary,
    fleet::tunnel,
    netns::{EDGE_V4, EDGE_V6, run},
    redis::{Redis, Sentinels},
    traffic::{Sink, socket_address},
};

/// SYNs from forged sources, per second.
const FORGED: u64 = 300;
/// What an honest sender may lose where maps begin spent: what it sends while links are switched, and a burst that it did not have.
const BURST_LOSS: u64 = 100;
/// Files and kilobytes that a daemon may hold more of at the end than at the beginning.
const MORE_FILES: usize = 12;
const MORE_KILOBYTES: u64 = 16 * 1024;

/// What a soak is.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Fixes the order of events and how long each lasts.
    pub seed: u64,
    /// How long events go on.
    pub lasts: Duration,
    /// The build that is soaked, and those that take over from it for a while.
    pub builds: Vec<Build>,
    /// Only these events; all of them if none is named.
    pub only: Vec<Event>,
    /// Where logs of daemons go.
    pub logs: PathBuf,
}

/// How a soak ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was wrong, with its time.
    pub faults: Vec<String>,
    /// Numbers, as lines.
    pub summary: String,
}

/// Two hosts that share a store, and everybody who sends to them.
struct World {
    began: Instant,
    deck: Deck,
    plan: Plan,
    here: Site,
    there: Site,
    store: Sentinels,
    clock: Option<PathBuf>,
    clock_s: i64,
    variant: Variant,
    signal: Arc<Signal>,
    senders: Vec<Sender>,
    caller: Caller,
    forger: Option<Child>,
    watch: Watch,
    scales: Scales,
    replies: Option<Ebpf>,
    kernel: InKernel,
    held: Vec<(f64, Held)>,
    faults: Vec<String>,
    balance: Balance,
    lost: Vec<u64>,
    unanswered: u64,
    losses: Vec<(Event, u64)>,
    events: u64,
    worst: Vec<f64>,
}

/// Runs a soak to its end.
pub fn soak(plan: Plan) -> Outcome {
    let mut world = World::new(plan);
    world.checkpoint(None);
    while world.began.elapsed() < world.plan.lasts {
        let event = world.deck.draw();
        world.say(&format!("{event}"));
        if let Err(fault) = world.happen(event) {
            world.fault(&format!("{event}: {fault}"));
        }
        world.recover(event);
        let calm = 300 + world.deck.below(1_500);
        thread::sleep(Duration::from_millis(calm));
        world.checkpoint(Some(event));
        world.events += 1;
    }
    world.finish()
}

impl World {
    fn new(plan: Plan) -> Self {
        fs::create_dir_all(&plan.logs).expect("a directory for logs");
        let clock = site::faketime().map(|library| (library, plan.logs.join("clock")));
        let variables = clock.as_ref().map(|(library, file)| {
            fs::write(file, "+0").expect("the clock");
            site::clock_variables(library, file)
        });
        let variables = variables.unwrap_or_default();
        let store = Sentinels::new();
        let sources = |host: usize| {
            let streams = STREAMS.iter().filter(|stream| stream.host == host).map(|stream| stream.from);
            streams.chain((host == 0).then_some(CALLER)).collect::<Vec<_>>()
        };
        let log = |name: &str| {
            let path = plan.logs.join(name);
            let _absent = fs::remove_file(&path);
            path
        };
        let here = Site::new(&sources(0), true, &plan.builds, log("here.log"), &variables);
        let there = Site::new(&sources(1), false, &plan.builds, log("there.log"), &variables);
        let ports: Vec<u16> = store.servers.iter().chain(&store.sentinels).map(Redis::port).collect();
        for site in [&here, &there] {
            ports.iter().for_each(|port| tunnel(&site.edge, *port));
        }
        let signal = Arc::new(Signal::default());
        let sinks = vec![
            Sink::start(&here.edge, EDGE_V4),
            Sink::start(&here.edge, EDGE_V6),
            Sink::start(&here.edge, SECOND_V4),
            Sink::start(&there.edge, EDGE_V4),
        ];
        let mut world = Self {
            began: Instant::now(),
            deck: Deck::new(plan.seed, &plan.only),
            caller: Caller::start(&here.edge.wire, &signal, CALLER, at(EDGE_V4), Duration::from_millis(100)),
            watch: Watch::start(sinks, &STREAMS, &LIMITS, &signal),
            plan,
            here,
            there,
            store,
            clock: clock.map(|(_, file)| file),
            clock_s: 0,
            variant: Variant::FIRST,
            senders: Vec::new(),
            signal,
            forger: None,
            scales: Scales::default(),
            replies: None,
            kernel: InKernel::default(),
            held: Vec::new(),
            faults: Vec::new(),
            balance: Balance::default(),
            lost: vec![0; STREAMS.len()],
            unanswered: 0,
            losses: Vec::new(),
            events: 0,
            worst: vec![0.0; LIMITS.len()],
        };
        world.begin();
        world
    }

    /// Puts both hosts under protection before anybody sends.
    fn begin(&mut self) {
        self.signal.pause(true);
        self.write_policies();
        self.here.start(0).expect("a first daemon");
        self.there.start(0).expect("a first daemon on the other host");
        self.here.order(&["block", "add", BLOCKED, "--reason", "soak"]).expect("a block");
        self.here.order(&["block", "add", BLOCKED_FOR_HOURS, "--for", "3h"]).expect("a block");
        self.replies = Some(self.here.edge.wire.receive_replies());
        self.scales.find_counters(&self.here.edge.pin());
        // What came before there was a daemon: neighbour discovery.
        self.balance = self.scales.read(&self.here.edge.wire, self.here.interfaces());
        let to = [EDGE_V4, EDGE_V6, SECOND_V4, EDGE_V4];
        for stream in &STREAMS {
            let wire = if stream.host == 0 { &self.here.edge.wire } else { &self.there.edge.wire };
            let to = at(to[stream.sink]);
            self.senders.push(Sender::start(wire, &self.signal, stream.from, to, stream.pps));
        }
        self.forge();
        self.began = Instant::now();
        self.signal.pause(false);
        thread::sleep(Duration::from_secs(2));
    }

    fn write_policies(&self) {
        let store = self.store.url();
        self.here.edge.write_policy(&policy::text(&self.variant, 0, &store));
        self.there.edge.write_policy(&policy::text(&Variant::FIRST, 1, &store));
    }

    /// Forged SYNs, from a process that ends when the wire does.
    fn forge(&mut self) {
        if let Some(forger) = &mut self.forger
            && forger.try_wait().is_ok_and(|ended| ended.is_none())
        {
            return;
        }
        let mut command = self.here.edge.wire.in_net(binary("traffic"));
        command.args(["forge", "--to", &socket_address(EDGE_V4), "--for", "7200", "--kind", "syn"]);
        command.args(["--pps", &FORGED.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        self.forger = Some(command.spawn().expect("a forger"));
    }

    fn signal_forger(&mut self, name: &str) {
        if let Some(forger) = &mut self.forger
            && forger.try_wait().is_ok_and(|ended| ended.is_none())
        {
            run(Command::new("kill").arg(format!("-{name}")).arg(forger.id().to_string()));
        }
    }

    fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn say(&self, what: &str) {
        println!("{:9.3} s  {what}", self.seconds());
    }

    fn fault(&mut self, what: &str) {
        let line = format!("{:9.3} s  FAULT: {what}", self.seconds());
        println!("{line}");
        self.faults.push(line);
    }

    /// Has a daemon run again on both hosts, whatever happened.
    fn recover(&mut self, event: Event) {
        for at in 0..2 {
            let site = if at == 0 { &mut self.here } else { &mut self.there };
            let ended = site.daemon.as_mut().map(site::Running::ended);
            let fault = match ended {
                Some(None) => continue,
                Some(Some(status)) => format!("after {event} a daemon had ended with {status}"),
                None => format!("after {event} no daemon ran"),
            };
            site.kill();
            let started = site.start(0);
            self.fault(&fault);
            if let Err(why) = started {
                self.fault(&why);
            }
        }
    }

    /// Lets everybody pause, and looks at everything.
    fn checkpoint(&mut self, event: Option<Event>) {
        self.signal.pause(true);
        self.signal_forger("STOP");
        // A question over TCP that was under way has its end.
        thread::sleep(Duration::from_millis(60));
        self.scales.find_counters(&self.here.edge.pin());
        let balance = self.scales.read(&self.here.edge.wire, self.here.interfaces());
        let missed = balance.missed() - self.balance.missed();
        if missed != 0 {
            self.fault(&format!(
                "{missed} packets were judged by no policy: {balance:?} after {:?}",
                self.balance
            ));
        }
        self.balance = balance;
        self.watch.wait();
        self.look_at_streams(event);
        self.look_at_limits();
        self.look_at_growth();
        self.forge();
        self.signal_forger("CONT");
        self.signal.pause(false);
    }

    fn look_at_streams(&mut self, event: Option<Event>) {
        let cost = event.map_or(HonestCost::Nothing, Event::cost);
        let arrived = self.watch.seen().arrived.clone();
        for (at, stream) in STREAMS.iter().enumerate() {
            let (sent, arrived) = (self.senders[at].sent(), arrived[at]);
            let lost = sent.saturating_sub(arrived);
            let more = lost.saturating_sub(self.lost[at]);
            match stream.due {
                Due::All => {
                    let may = match cost {
                        HonestCost::Nothing => 0,
                        HonestCost::Burst => BURST_LOSS,
                        HonestCost::Wire => u64::MAX,
                    };
                    if more > may {
                        self.fault(&format!("{} lost {more} packets of {sent}", stream.name));
                    }
                    if let Some(event) = event.filter(|_| more > 0) {
                        self.losses.push((event, more));
                    }
                    self.lost[at] = lost;
                }
                Due::None if arrived > self.lost[at] => {
                    self.fault(&format!("{}: {} packets arrived", stream.name, arrived - self.lost[at]));
                    self.lost[at] = arrived;
                }
                Due::None | Due::Bounded(_) => {}
            }
        }
        let answers = self.caller.answers();
        let more = answers.failed - self.unanswered;
        if more > 0 && cost != HonestCost::Wire {
            self.fault(&format!("{more} questions over TCP were not answered: {}", answers.last_failure));
        }
        self.unanswered = answers.failed;
    }

    fn look_at_limits(&mut self) {
        let mut broken = Vec::new();
        let mut seen = self.watch.seen();
        for ((limit, excess), worst) in LIMITS.iter().zip(&mut seen.excess).zip(&mut self.worst) {
            *worst = worst.max(excess.worst());
            if excess.is_broken() {
                broken.push(format!(
                    "{}: {:.0} above the rate, and the burst is {:.0}",
                    limit.name,
                    excess.worst(),
                    limit.bound.burst
                ));
                excess.begin_again();
            }
        }
        drop(seen);
        broken.iter().for_each(|what| self.fault(what));
    }

    fn look_at_growth(&mut self) {
        let attached: Vec<u32> =
            self.here.interfaces().iter().filter_map(|name| self.attached(name)).collect();
        if attached.len() < self.here.interfaces().len() {
            self.fault("an interface has no program");
        }
        self.kernel.look(&self.here.edge.pin(), &attached);
        let mut current = attached;
        current.dedup();
        self.wait_for_programs(current.len());
        let alive = self.kernel.programs_alive();
        if alive > current.len() {
            self.fault(&format!("{alive} programs are in the kernel, {} are attached", current.len()));
        }
        if let Some(running) = self.here.daemon.as_ref().filter(|running| running.build == 0) {
            let held = Held::of(running.pid());
            self.held.push((self.seconds(), held));
        }
    }

    /// The kernel lets go of a program a moment after the last who used it.
    fn wait_for_programs(&self, wanted: usize) {
        let begun = Instant::now();
        while self.kernel.programs_alive() > wanted && begun.elapsed() < Duration::from_secs(3) {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The program on an interface.
    fn attached(&self, name: &str) -> Option<u32> {
        let output =
            self.here.edge.wire.on_edge("ip").args(["-j", "-d", "link", "show", name]).output().ok()?;
        let links: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        u32::try_from(links[0]["xdp"]["prog"]["id"].as_u64()?).ok()
    }

    /// Detaches, looks for what is left, and adds up.
    fn finish(mut self) -> Outcome {
        self.signal.pause(true);
        self.signal_forger("KILL");
        let lasted = self.seconds();
        let layouts = self.scales.layouts();
        self.compare_growth();
        if let Err(why) = self.here.stop() {
            self.fault(&why);
        }
        if let Err(why) = self.here.order(&["detach"]) {
            self.fault(&why);
        }
        for name in self.here.interfaces().to_vec() {
            if self.attached(name).is_some() {
                self.fault(&format!("after detach, {name} has a program"));
            }
        }
        if self.here.edge.pin().exists() {
            self.fault("after detach, the pin directory is there");
        }
        self.scales = Scales::default();
        // Not looked at again and again: a look at all maps opens each, and a prog array whose last user-space reference goes twice
        // within a moment is leaked by the kernel (prog_array_map_clear).
        self.wait_for_programs(0);
        let mut left = (Vec::new(), 0);
        for _ in 0..4 {
            thread::sleep(Duration::from_secs(2));
            left = (self.kernel.maps_alive(), self.kernel.programs_alive());
            if left == (Vec::new(), 0) {
                break;
            }
        }
        let (maps, programs) = left;
        if !maps.is_empty() || programs > 0 {
            self.fault(&format!(
                "after detach the kernel has {programs} programs and the maps {}",
                maps.join(", ")
            ));
        }
        let summary = self.summary(lasted, layouts);
        self.signal.end();
        Outcome { faults: std::mem::take(&mut self.faults), summary }
    }

    fn compare_growth(&mut self) {
        let quarter = self.held.len() / 4;
        if quarter == 0 {
            return;
        }
        let most = |part: &[(f64, Held)]| {
            let files = part.iter().map(|(_, held)| held.files).max().unwrap_or(0);
            let kilobytes = part.iter().map(|(_, held)| held.kilobytes).max().unwrap_or(0);
            (files, kilobytes)
        };
        let (first, last) = (most(&self.held[..quarter]), most(&self.held[self.held.len() - quarter..]));
        if last.0 > first.0 + MORE_FILES || last.1 > first.1 + MORE_KILOBYTES {
            self.fault(&format!("files and kilobytes of the daemon grew from {first:?} to {last:?}"));
        }
    }

    fn summary(&self, lasted: f64, layouts: usize) -> String {
        let mut text = String::new();
        let mut line = |words: String| writeln!(text, "{words}").expect("room");
        let Balance { received, judged, unlimited } = self.balance;
        line(format!(
            "seed {}, {lasted:.0} s, {} events, {} faults",
            self.plan.seed,
            self.events,
            self.faults.len()
        ));
        line(format!(
            "packets received {received}, judged {judged}, by no policy {unlimited}; {layouts} sets of maps"
        ));
        for (limit, worst) in LIMITS.iter().zip(&self.worst) {
            line(format!(
                "{}: {worst:.0} above the rate at most, burst {:.0}",
                limit.name, limit.bound.burst
            ));
        }
        for (at, stream) in STREAMS.iter().enumerate().filter(|(_, stream)| stream.due == Due::All) {
            line(format!("{}: {} sent, {} lost", stream.name, self.senders[at].sent(), self.lost[at]));
        }
        for event in Event::ALL {
            let of_event: Vec<u64> =
                self.losses.iter().filter(|(of, _)| of == event).map(|(_, lost)| *lost).collect();
            if let Some(most) = of_event.iter().max() {
                line(format!("  lost with {event}: {most} at most, {} times", of_event.len()));
            }
        }
        let answers = self.caller.answers();
        line(format!("questions over TCP: {} answered, {} not", answers.answered, answers.failed));
        if let (Some((_, first)), Some((_, last))) = (self.held.first(), self.held.last()) {
            line(format!(
                "daemon: {} files, {} threads, {} kB at first; {} files, {} threads, {} kB at last",
                first.files, first.threads, first.kilobytes, last.files, last.threads, last.kilobytes
            ));
        }
        text
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.signal.end();
        self.signal_forger("KILL");
        if let Some(mut forger) = self.forger.take() {
            let _gone = forger.kill();
            let _gone = forger.wait();
        }
    }
}
