//! Two hosts that share a store, everybody who sends to them, and what is known of them so far.

use std::{
    collections::BTreeMap,
    fs,
    net::UdpSocket,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use aya::Ebpf;

use super::{
    Deck, Event, Plan, Until,
    balance::{Balance, PacketCounters},
    forger::Forger,
    growth::{Held, InKernel},
    policy::{self, BLOCKED, BLOCKED_FOR_HOURS, CALLER, LIMITS, STREAMS, Variant},
    sender::{self, Caller, Sender, Signal},
    site::{self, SECOND_V4, Site},
    ticks::TickWatch,
    watch::{Watch, at},
    way::Way,
    wires::MadeAnew,
};
use crate::{
    fleet::tunnel,
    netns::{EDGE_V4, EDGE_V6},
    redis::{Redis, Sentinels},
    traffic::Sink,
};

/// Two hosts, their store, and everybody who sends to them.
pub(super) struct World {
    pub(super) began: Instant,
    pub(super) deck: Deck,
    pub(super) plan: Plan,
    pub(super) here: Site,
    pub(super) there: Site,
    pub(super) store: Sentinels,
    /// The file that the daemons' wall clock is off by, and by how many seconds it is.
    pub(super) clock: Option<PathBuf>,
    pub(super) clock_s: i64,
    pub(super) variant: Variant,
    pub(super) signal: Arc<Signal>,
    pub(super) senders: Vec<Sender>,
    pub(super) caller: Caller,
    pub(super) forger: Forger,
    pub(super) watch: Watch,
    pub(super) ticks: TickWatch,
    /// How far the clock of limits was behind at most when a packet arrived that counts, in nanoseconds.
    pub(super) behind_ns: i64,
    pub(super) packet_counters: PacketCounters,
    pub(super) replies: Option<Ebpf>,
    pub(super) kernel: InKernel,
    pub(super) held: Vec<(f64, Held)>,
    pub(super) faults: Vec<String>,
    pub(super) balance: Balance,
    /// Packets that came before there was a daemon.
    pub(super) before: i64,
    /// By stream: packets that were due and did not arrive, or that arrived and were not due.
    pub(super) lost: Vec<u64>,
    /// By stream: packets that did not fit into the queue to the host.
    pub(super) refused: Vec<u64>,
    /// What the kernel had lost at the last look.
    pub(super) way: Way,
    /// Sends when all others rest.
    pub(super) marker: UdpSocket,
    /// The interface that this event has made anew.
    pub(super) made_anew: Option<MadeAnew>,
    /// Interfaces that were made anew so far.
    pub(super) all_made_anew: Vec<MadeAnew>,
    /// What was lost or late because of the machine, by cause.
    pub(super) of_the_machine: BTreeMap<&'static str, u64>,
    pub(super) unanswered: u64,
    /// Questions over TCP that were answered late.
    pub(super) late: u64,
    /// How often everything had stood still at the last look.
    pub(super) still: u64,
    pub(super) losses: Vec<(Event, u64)>,
    /// How often there were two stores at once.
    pub(super) two_stores: u64,
    pub(super) happened: Vec<Event>,
    pub(super) worst: Vec<f64>,
    /// Layouts that were made up so far.
    pub(super) layouts: u32,
}

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        fs::create_dir_all(&plan.logs).expect("a directory for logs");
        let clock = site::faketime().map(|library| (library, plan.logs.join("clock")));
        let variables = clock.as_ref().map(|(library, file)| {
            fs::write(file, "+0").expect("the clock");
            site::clock_variables(library, file)
        });
        let variables = variables.unwrap_or_default();
        let store = Sentinels::new();
        // Events stop and kill the master, and see what becomes of it.
        store.watch();
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
            Sink::with_times(&here.edge, EDGE_V4),
            Sink::with_times(&here.edge, EDGE_V6),
            Sink::with_times(&here.edge, SECOND_V4),
            Sink::with_times(&there.edge, EDGE_V4),
        ];
        let caller = CALLER.parse().expect("an address");
        let mut world = Self {
            began: Instant::now(),
            marker: here.edge.wire.as_net(|| sender::open(caller)),
            deck: Deck::new(plan.seed, &plan.events()),
            caller: Caller::start(&here.edge.wire, &signal, CALLER, at(EDGE_V4), Duration::from_millis(100)),
            watch: Watch::start(sinks, &STREAMS, &LIMITS, &signal),
            ticks: TickWatch::start(&signal),
            behind_ns: 0,
            plan,
            here,
            there,
            store,
            clock: clock.map(|(_, file)| file),
            clock_s: 0,
            variant: Variant::FIRST,
            senders: Vec::new(),
            signal,
            forger: Forger::default(),
            packet_counters: PacketCounters::default(),
            replies: None,
            kernel: InKernel::default(),
            held: Vec::new(),
            faults: Vec::new(),
            balance: Balance::default(),
            before: 0,
            lost: vec![0; STREAMS.len()],
            refused: vec![0; STREAMS.len()],
            way: Way::default(),
            made_anew: None,
            all_made_anew: Vec::new(),
            of_the_machine: BTreeMap::new(),
            unanswered: 0,
            late: 0,
            still: 0,
            losses: Vec::new(),
            two_stores: 0,
            happened: Vec::new(),
            worst: vec![0.0; LIMITS.len()],
            layouts: 0,
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
        self.packet_counters.find_counters(&self.here.edge.pin());
        self.balance = self.packet_counters.read(&self.here.edge.wire, self.here.interfaces());
        // Until now only neighbour discovery has sent packets.
        self.before = self.balance.missed();
        let to = [EDGE_V4, EDGE_V6, SECOND_V4, EDGE_V4];
        for stream in &STREAMS {
            let wire = if stream.host == 0 { &self.here.edge.wire } else { &self.there.edge.wire };
            let to = at(to[stream.sink]);
            self.senders.push(Sender::start(wire, &self.signal, stream.from, to, stream.pps));
        }
        self.forger.start(&self.here.edge.wire);
        self.began = Instant::now();
        self.way = Way::read(&self.here.edge.wire);
        self.signal.pause(false);
        thread::sleep(Duration::from_secs(2));
    }

    pub(super) fn write_policies(&self) {
        let store = self.store.url();
        self.here.edge.write_policy(&policy::text(&self.variant, 0, &store));
        self.there.edge.write_policy(&policy::text(&Variant::FIRST, 1, &store));
    }

    /// Whether there is more to happen.
    pub(super) fn goes_on(&self) -> bool {
        match self.plan.until {
            Until::Passed(time) => self.began.elapsed() < time || self.happened.len() < self.deck.kinds(),
            Until::Events(number) => (self.happened.len() as u64) < number,
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub(super) fn say(&self, what: &str) {
        println!("{:9.3} s  {what}", self.seconds());
    }

    pub(super) fn fault(&mut self, what: &str) {
        let line = format!("{:9.3} s  FAULT: {what}", self.seconds());
        println!("{line}");
        self.faults.push(line);
    }

    /// Has a daemon run again on both hosts, whatever happened.
    pub(super) fn recover(&mut self, event: Event) {
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
}

impl Drop for World {
    fn drop(&mut self) {
        self.signal.end();
    }
}
