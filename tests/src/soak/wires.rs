//! Wires that go and come back.
//!
//! A wire that is up does not carry packets yet: neighbours that were not found while it was down are asked for once a second, and twice
//! in vain is usual (IPv6 up to 1.8 s after `ip link set up`, no daemon involved). What is lost until then is the wire's.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    Event, event::HonestCost, growth::CpuTimes, policy::STREAMS, site::SECOND, watch::Due, world::World,
};
use crate::netns::{EDGE, run};

/// How long a wire that is up may take until packets of all senders arrive: neighbours are given up after three seconds and asked for anew.
const WHOLE: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_millis(10);
/// Packets of a sender, and answers over TCP, that make a wire whole. Of one question the first half may have been lost.
const PACKETS: u64 = 5;
const ANSWERS: u64 = 2;
/// Looks at an interface until it has a program: seconds.
const MOST_LOOKS: usize = 1_000;
/// What a daemon may take of the CPUs, as the kernel counts it (which is also what other machines take meanwhile), to see that an interface is there again and to put the program on it (decision 22).
const WORK: Duration = Duration::from_millis(100);
/// The thread of the daemon that hears of interfaces and puts the program on them.
const LOOKS_AFTER: &str = "links";
/// All senders in front of a host together, forged SYNs and neighbours' questions included.
const MOST_PER_SECOND: f64 = 10_000.0;

/// An interface that was made anew while a daemon ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct MadeAnew {
    /// How long it was there before anything could arrive over it.
    pub(super) bare: Duration,
    /// What the daemon's thread had of the CPUs until the program was on the interface.
    pub(super) cpu: CpuTimes,
    /// Packets that came before the program was there.
    pub(super) missed: u64,
}

impl MadeAnew {
    /// Packets that may come before the program: as many as are sent in the time in which the daemon was at work or waited for a CPU, less the time
    /// in which nothing could arrive. A daemon that waits for something else has no excuse.
    pub(super) fn may_miss(&self) -> u64 {
        let late = (self.cpu.waited + self.cpu.ran.min(WORK)).saturating_sub(self.bare);
        (late.as_secs_f64() * MOST_PER_SECOND).ceil() as u64
    }
}

impl World {
    pub(super) fn link_down(&mut self) -> Result<(), String> {
        run(self.here.edge.wire.on_edge("ip").args(["link", "set", EDGE, "down"]));
        self.nap(1_000);
        run(self.here.edge.wire.on_edge("ip").args(["link", "set", EDGE, "up"]));
        self.settle(Event::LinkDown)
    }

    pub(super) fn link_replaced(&mut self) -> Result<(), String> {
        self.here.silence(EDGE);
        self.packet_counters.interface_goes(&self.here.edge.wire, EDGE);
        self.here.edge.wire.cut();
        self.nap(1_000);
        let before = self.cpu_times();
        let bare = self.here.edge.wire.add_wire();
        self.note_made_anew(EDGE, bare, before);
        self.here.add_sources();
        self.replies = Some(self.here.edge.wire.receive_replies());
        self.forger.start(&self.here.edge.wire);
        self.settle(Event::LinkReplaced)
    }

    pub(super) fn second_link(&mut self) -> Result<(), String> {
        self.here.silence(SECOND);
        self.packet_counters.interface_goes(&self.here.edge.wire, SECOND);
        run(self.here.edge.wire.on_edge("ip").args(["link", "del", SECOND]));
        self.nap(1_000);
        let before = self.cpu_times();
        let bare = self.here.add_second();
        self.note_made_anew(SECOND, bare, before);
        self.settle(Event::SecondLink)
    }

    fn cpu_times(&self) -> CpuTimes {
        self.here
            .daemon
            .as_ref()
            .map_or_else(CpuTimes::default, |running| CpuTimes::of(running.pid(), LOOKS_AFTER))
    }

    /// Notes what the daemon needed until its program was on an interface.
    fn note_made_anew(&mut self, name: &str, bare: Duration, before: CpuTimes) {
        for _ in 0..MOST_LOOKS {
            if self.attached(name).is_some() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.made_anew = Some(MadeAnew { bare, cpu: self.cpu_times().since(before), missed: 0 });
    }

    /// Waits until every sender in front of this host is heard over both families, and counts what was lost up to then.
    fn settle(&mut self, event: Event) -> Result<(), String> {
        let (before, answered) = (self.watch.seen().arrived.clone(), self.caller.answers().answered);
        let begun = Instant::now();
        // In steps, as a daemon's start is waited for.
        for step in 0.. {
            let now = self.watch.seen().arrived.clone();
            let arrived = |at: usize| now[at] - before[at];
            // Who shares a limit may get nothing of it for a while, so of those only the sum counts, at each receiver.
            let at_sink = |sink: usize| -> u64 {
                let there = STREAMS.iter().enumerate().filter(|(_, stream)| stream.sink == sink);
                there.map(|(at, _)| arrived(at)).sum()
            };
            let silent = STREAMS.iter().enumerate().find(|(at, stream)| match stream.due {
                Due::All => arrived(*at) < PACKETS,
                Due::Bounded(_) if stream.host == 0 => at_sink(stream.sink) < PACKETS,
                Due::Bounded(_) | Due::None => false,
            });
            let silent = silent.map(|(_, stream)| stream.name);
            let silent = silent.or((self.caller.answers().answered < answered + ANSWERS).then_some("TCP"));
            let Some(silent) = silent else { break };
            if STEP * step > WHOLE {
                return Err(format!("{WHOLE:?} after the link was up nothing of {silent} had arrived"));
            }
            thread::sleep(STEP);
        }
        self.say(&format!("  the wire is whole after {:.1?}", begun.elapsed()));
        self.rest();
        self.caller.give_up_open();
        self.look_at_streams(Some(event), HonestCost::Wire);
        self.signal.pause(false);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_without_a_cpu_and_a_little_work_excuse_packets_that_came_first() {
        let ms = Duration::from_millis;
        let may_miss = |bare, ran, waited| {
            MadeAnew { bare: ms(bare), cpu: CpuTimes { ran: ms(ran), waited: ms(waited) }, missed: 0 }
                .may_miss()
        };
        assert_eq!(may_miss(20, 5, 10), 0, "ready before anything could come");
        assert_eq!(may_miss(20, 5, 115), 1_000, "others had the CPUs for 100 ms too long");
        assert_eq!(may_miss(0, 800, 0), 1_000, "what the daemon itself computes excuses 100 ms");
    }
}
