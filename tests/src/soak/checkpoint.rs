//! The look at everything after an event, while nobody sends.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    Event,
    event::HonestCost,
    growth::Held,
    policy::{LIMITS, STREAMS},
    watch::Due,
    world::World,
};

/// What an honest sender may lose where maps begin spent: what it sends while links are switched, and a burst that it did not have.
const BURST_LOSS: u64 = 100;

impl World {
    /// Lets everybody pause, and looks at everything.
    pub(super) fn checkpoint(&mut self, event: Option<Event>) {
        self.signal.pause(true);
        self.forger.signal("STOP");
        // A question over TCP that was under way has its end.
        thread::sleep(Duration::from_millis(60));
        self.packet_counters.find_counters(&self.here.edge.pin());
        let balance = self.packet_counters.read(&self.here.edge.wire, self.here.interfaces());
        let missed = balance.missed() - self.balance.missed();
        if missed != 0 {
            self.fault(&format!(
                "{missed} packets were judged by no policy: {balance:?} after {:?}",
                self.balance
            ));
        }
        self.balance = balance;
        self.watch.wait();
        let cost = match event.map_or(HonestCost::Nothing, Event::cost) {
            // Was settled when the wire was whole again.
            HonestCost::Wire => HonestCost::Nothing,
            cost => cost,
        };
        self.look_at_streams(event, cost);
        self.look_at_limits();
        self.look_at_growth();
        self.forger.start(&self.here.edge.wire);
        self.forger.signal("CONT");
        self.signal.pause(false);
    }

    /// Holds what did not arrive since the last look against what an event may cost.
    pub(super) fn look_at_streams(&mut self, event: Option<Event>, cost: HonestCost) {
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
        let (still, _) = self.watch.seen().still;
        if more > 0 && still > self.still {
            self.say(&format!(
                "  everything stood still for seconds, and {more} questions over TCP were not answered"
            ));
        } else if more > 0 && cost != HonestCost::Wire {
            self.fault(&format!("{more} questions over TCP were not answered: {}", answers.last_failure));
        }
        self.unanswered = answers.failed;
        self.still = still;
    }

    pub(super) fn look_at_limits(&mut self) {
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

    pub(super) fn look_at_growth(&mut self) {
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
    pub(super) fn wait_for_programs(&self, wanted: usize) {
        let begun = Instant::now();
        while self.kernel.programs_alive() > wanted && begun.elapsed() < Duration::from_secs(3) {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The program on an interface.
    pub(super) fn attached(&self, name: &str) -> Option<u32> {
        let output =
            self.here.edge.wire.on_edge("ip").args(["-j", "-d", "link", "show", name]).output().ok()?;
        let links: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        u32::try_from(links[0]["xdp"]["prog"]["id"].as_u64()?).ok()
    }
}
