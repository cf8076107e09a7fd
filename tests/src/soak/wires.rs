//! Wires that go and come back.
//!
//! A wire that is up does not carry packets yet: neighbours that were not found while it was down are asked for once a second, and twice
//! in vain is usual (IPv6 up to 1.8 s after `ip link set up`, no daemon involved). What is lost until then is the wire's.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{Event, event::HonestCost, policy::STREAMS, site::SECOND, watch::Due, world::World};
use crate::netns::{EDGE, run};

/// How long a wire that is up may take until packets of all senders arrive: neighbours are given up after three seconds and asked for anew.
const WHOLE: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_millis(10);
/// Packets of a sender, and answers over TCP, that make a wire whole. Of one question the first half may have been lost.
const PACKETS: u64 = 5;
const ANSWERS: u64 = 2;

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
        self.here.edge.wire.add_wire();
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
        self.here.add_second();
        self.settle(Event::SecondLink)
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
        self.signal.pause(true);
        // Senders look every millisecond, and what they have sent arrives.
        thread::sleep(Duration::from_millis(60));
        self.watch.wait();
        self.look_at_streams(Some(event), HonestCost::Wire);
        self.signal.pause(false);
        Ok(())
    }
}
