//! The look at everything after an event, while nobody sends.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    Event,
    balance::Balance,
    event::HonestCost,
    growth::Held,
    policy::{LIMITS, STREAMS},
    watch::{Due, at},
    way::Way,
    wires::MadeAnew,
    world::World,
};
use crate::netns::EDGE_V4;

/// What an honest sender may lose where maps begin spent: a burst that it did not have. What it sends while links are switched is added to it, for as long as
/// the daemon says that this took.
const BURST_LOSS: u64 = 100;

/// How long the kernel may take to free a program that nobody has any more: grace periods, and a work queue that waits for a CPU.
const FREED: Duration = Duration::from_secs(10);
/// How often the marker is sent, and how far apart.
const MARKERS: usize = 1_000;
const MARKER_EVERY: Duration = Duration::from_millis(10);

/// What is lost or late because of the machine, as the end of a soak says it.
const BEFORE_THE_DAEMON: &str =
    "packets that came over an interface made anew while the daemon waited for a CPU";
const IN_THE_QUEUE: &str = "honest packets that did not fit into the queue of the veth";
const IN_BUFFERS: &str = "honest packets that did not fit into the buffer of a socket";
const FOR_MEMORY: &str = "honest packets that the interface had no memory for";
const NO_CPU: &str = "answers over TCP that were late without any segment sent again";
const SPENT: &str = "answers over TCP that were late where maps began spent";
const SEGMENTS_IN_QUEUES: &str =
    "answers over TCP that were late because of segments that did not fit into a queue";

/// Why an answer over TCP was late, if it was not the limiter that refused a segment. `refused` of what did not fit into the queue to the host were
/// datagrams, and their senders know it.
fn cause_of_delay(cost: HonestCost, lately: &Way, refused: u64) -> Option<&'static str> {
    let queues =
        lately.queue.saturating_sub(refused) + lately.queue_back + lately.listeners + lately.no_memory;
    match cost {
        _ if lately.again == 0 => Some(NO_CPU),
        HonestCost::Burst => Some(SPENT),
        HonestCost::Nothing | HonestCost::Wire => (queues > 0).then_some(SEGMENTS_IN_QUEUES),
    }
}

impl World {
    /// Lets everybody pause, and returns when what they have sent was judged and has arrived. A sender without a CPU may be about to send, and what was
    /// sent waits in the queue to the host until a CPU takes it out: both were taken for lost packets.
    pub(super) fn rest(&mut self) {
        self.signal.pause(true);
        let (senders, caller, signal) = (&self.senders, &self.caller, &self.signal);
        while !(senders.iter().all(|sender| sender.rests(signal)) && caller.rests(signal)) {
            thread::sleep(Duration::from_millis(1));
        }
        // The queue keeps the order: what arrives now was sent after everything else.
        let before = self.watch.seen().markers;
        for _ in 0..MARKERS {
            let _again = self.marker.send_to(b"marker", at(EDGE_V4));
            thread::sleep(MARKER_EVERY);
            if self.watch.seen().markers > before {
                return self.watch.wait();
            }
        }
        self.fault(&format!("of {MARKERS} datagrams that were sent in a pause none arrived"));
    }

    /// Lets everybody pause, and looks at everything.
    pub(super) fn checkpoint(&mut self, event: Option<Event>) {
        self.forger.signal("STOP");
        self.rest();
        self.packet_counters.find_counters(&self.here.edge.pin());
        let balance = self.packet_counters.read(&self.here.edge.wire, self.here.interfaces());
        let missed = balance.missed() - self.balance.missed();
        self.look_at_missed(missed, balance);
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

    /// Packets that no policy judged may have come over an interface that was made anew, while others had the CPUs.
    fn look_at_missed(&mut self, missed: i64, balance: Balance) {
        let anew = self.made_anew.take().map(|anew| MadeAnew { missed: missed.max(0) as u64, ..anew });
        self.all_made_anew.extend(anew);
        if missed == 0 {
            return;
        }
        if let Some(anew) = anew.filter(|anew| missed > 0 && anew.missed <= anew.may_miss()) {
            let MadeAnew { bare, cpu, missed, .. } = anew;
            self.say(&format!(
                "  {missed} packets came before the daemon was there: it waited {:.1?} for a CPU, and had {bare:.1?}",
                cpu.waited
            ));
            *self.of_the_machine.entry(BEFORE_THE_DAEMON).or_default() += missed;
            return;
        }
        self.fault(&format!(
            "{missed} packets were judged by no policy: {balance:?} after {:?}; the interface: {anew:?}",
            self.balance
        ));
    }

    /// Holds what did not arrive since the last look against what an event may cost.
    pub(super) fn look_at_streams(&mut self, event: Option<Event>, cost: HonestCost) {
        // Each question has an end: an answer, an error or the patience of whoever follows it. What is sent again until then counts.
        while self.caller.answers().open > 0 {
            thread::sleep(Duration::from_millis(10));
        }
        let arrived = self.watch.seen().arrived.clone();
        let way = Way::read(&self.here.edge.wire);
        let lately = way.since(&self.way);
        self.way = way;
        let refused_s = self.here.refused_s();
        let mut refused = 0;
        for (at, stream) in STREAMS.iter().enumerate() {
            let (sent, arrived) = (self.senders[at].sent(), arrived[at]);
            let lost = sent.saturating_sub(arrived);
            let more = lost.saturating_sub(self.lost[at]);
            let (did_not_fit, family) = (self.senders[at].refused(), usize::from(stream.from.contains(':')));
            let newly_refused = did_not_fit - std::mem::replace(&mut self.refused[at], did_not_fit);
            refused += if stream.host == 0 { newly_refused } else { 0 };
            match stream.due {
                Due::All => {
                    self.blame(IN_THE_QUEUE, newly_refused);
                    // What was lost with a wire is the wire's, whoever else lost some meanwhile.
                    let unknown = if cost == HonestCost::Wire { 0 } else { more };
                    let in_buffers = unknown.min(lately.buffers[family]);
                    let for_memory = (unknown - in_buffers).min(lately.no_memory);
                    self.blame(IN_BUFFERS, in_buffers);
                    self.blame(FOR_MEMORY, for_memory);
                    let may = match cost {
                        HonestCost::Nothing => 0,
                        HonestCost::Burst => BURST_LOSS + (stream.pps as f64 * refused_s).ceil() as u64,
                        HonestCost::Wire => u64::MAX,
                    };
                    if more - in_buffers - for_memory > may {
                        self.fault(&format!("{} lost {more} packets of {sent}; {lately}", stream.name));
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
        self.look_at_answers(cost, &lately, refused);
    }

    /// Holds questions over TCP that were not answered, or late, against what an event may cost.
    fn look_at_answers(&mut self, cost: HonestCost, lately: &Way, refused: u64) {
        let answers = self.caller.answers();
        let (failed, late) = (answers.failed - self.unanswered, answers.late - self.late);
        (self.unanswered, self.late) = (answers.failed, answers.late);
        let (still, _) = self.watch.seen().still;
        let stood_still = still > std::mem::replace(&mut self.still, still);
        if failed > 0 && stood_still {
            self.say(&format!(
                "  everything stood still for seconds, and {failed} questions over TCP were not answered"
            ));
        } else if failed > 0 && cost != HonestCost::Wire {
            self.fault(&format!(
                "{failed} questions over TCP were not answered: {}; {lately}",
                answers.last_failure
            ));
        }
        // What was asked while a wire was gone is the wire's.
        if late == 0 || cost == HonestCost::Wire {
            return;
        }
        match cause_of_delay(cost, lately, refused) {
            Some(cause) => {
                self.say(&format!("  {late} questions over TCP were answered late, after up to {:.1?}: {cause}", answers.latest));
                self.blame(cause, late);
            }
            None => self.fault(&format!(
                "{late} questions over TCP were answered late, after up to {:.1?}, because segments were lost; {lately}",
                answers.latest
            )),
        }
    }

    /// Counts what was lost or late because of the machine.
    pub(super) fn blame(&mut self, cause: &'static str, count: u64) {
        if count > 0 {
            *self.of_the_machine.entry(cause).or_default() += count;
        }
    }

    /// Holds what has arrived against the limits, while nobody sends and everything that was sent is there.
    pub(super) fn look_at_limits(&mut self) {
        let mut broken = Vec::new();
        let ticks = self.ticks.take();
        let mut seen = self.watch.seen();
        for ((limit, excess), worst) in LIMITS.iter().zip(&mut seen.excess).zip(&mut self.worst) {
            excess.settle(&ticks);
            self.behind_ns = self.behind_ns.max(excess.behind_ns());
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
            let holders = self.kernel.holders(&self.here.edge.pin(), &current);
            self.fault(&format!(
                "{alive} programs are in the kernel, {} are attached; who has the others: {holders}",
                current.len()
            ));
        }
        if let Some(running) = self.here.daemon.as_ref().filter(|running| running.build == 0) {
            let held = Held::of(running.pid());
            self.held.push((self.seconds(), held));
        }
    }

    /// The kernel lets go of a program a moment after the last who used it.
    pub(super) fn wait_for_programs(&self, wanted: usize) {
        let begun = Instant::now();
        while self.kernel.programs_alive() > wanted && begun.elapsed() < FREED {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_was_sent_again_and_that_no_queue_lost_is_the_limiters() {
        let cause = |way: Way, refused| cause_of_delay(HonestCost::Nothing, &way, refused);
        assert_eq!(cause(Way { again: 2, ..Way::default() }, 0), None);
        assert_eq!(
            cause(Way { again: 2, queue: 3, ..Way::default() }, 3),
            None,
            "all of them were datagrams"
        );
        assert_eq!(cause(Way { again: 2, queue: 4, ..Way::default() }, 3), Some(SEGMENTS_IN_QUEUES));
        assert_eq!(cause(Way::default(), 0), Some(NO_CPU));
        assert_eq!(cause_of_delay(HonestCost::Burst, &Way { again: 2, ..Way::default() }, 0), Some(SPENT));
    }
}
