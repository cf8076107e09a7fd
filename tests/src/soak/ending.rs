//! The end of a soak: what `detach` leaves, what has grown, and the sums.

use std::{fmt::Write as _, thread, time::Duration};

use super::{
    Event, Outcome,
    balance::{Balance, PacketCounters},
    growth::Held,
    policy::{LIMITS, STREAMS},
    watch::Due,
    wires::MadeAnew,
    world::World,
};

/// Files and kilobytes that a daemon may hold more of at the end than at the beginning.
const MORE_FILES: usize = 12;
const MORE_KILOBYTES: u64 = 16 * 1024;

impl World {
    /// Detaches, looks for what is left, and adds up.
    pub(super) fn finish(mut self) -> Outcome {
        self.signal.pause(true);
        self.forger.signal("KILL");
        let lasted = self.seconds();
        let layouts = self.packet_counters.layouts();
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
        self.packet_counters = PacketCounters::default();
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
        let (Balance { received, judged, .. }, missed) = (self.balance, self.balance.missed() - self.before);
        line(format!(
            "seed {}, {lasted:.0} s, {} events, {} faults",
            self.plan.seed,
            self.happened.len(),
            self.faults.len()
        ));
        line(format!(
            "packets received {received}, judged {judged}, by no policy {missed}; {layouts} sets of maps"
        ));
        for (limit, worst) in LIMITS.iter().zip(&self.worst) {
            line(format!(
                "{}: {worst:.0} above the rate at most, burst {:.0}",
                limit.name, limit.bound.burst
            ));
        }
        let behind = Duration::from_nanos(self.behind_ns.unsigned_abs());
        line(format!("the clock of limits: {behind:.1?} behind at most when a packet arrived"));
        for (at, stream) in STREAMS.iter().enumerate().filter(|(_, stream)| stream.due == Due::All) {
            line(format!("{}: {} sent, {} lost", stream.name, self.senders[at].sent(), self.lost[at]));
        }
        let times = |event: &Event| self.happened.iter().filter(|happened| *happened == event).count();
        let by_kind = Event::ALL.iter().map(|event| (event, times(event))).filter(|(_, times)| *times > 0);
        let by_kind: Vec<String> = by_kind.map(|(event, times)| format!("{event} {times}")).collect();
        line(format!("events, {} of {} kinds: {}", by_kind.len(), Event::ALL.len(), by_kind.join(", ")));
        for event in Event::ALL {
            let of_event: Vec<u64> =
                self.losses.iter().filter(|(of, _)| of == event).map(|(_, lost)| *lost).collect();
            if let Some(most) = of_event.iter().max() {
                line(format!("  lost with {event}: {most} at most, {} times", of_event.len()));
            }
        }
        let answers = self.caller.answers();
        line(format!(
            "questions over TCP: {} answered, {} late, {} not",
            answers.answered, answers.late, answers.failed
        ));
        for (cause, count) in &self.of_the_machine {
            line(format!("  the machine's: {count} {cause}"));
        }
        let most = |time: fn(&MadeAnew) -> Duration| self.all_made_anew.iter().map(time).max();
        if let (Some(ran), Some(waited)) = (most(|anew| anew.cpu.ran), most(|anew| anew.cpu.waited)) {
            let missed: u64 = self.all_made_anew.iter().map(|anew| anew.missed).sum();
            let least = self.all_made_anew.iter().map(|anew| anew.bare).min().unwrap_or_default();
            line(format!(
                "interfaces made anew: {} times, {missed} packets before the daemon; it had {least:.1?} at least, worked for {ran:.1?} and \
                 waited {waited:.1?} for a CPU at most",
                self.all_made_anew.len()
            ));
        }
        if self.two_stores > 0 {
            line(format!(
                "two stores at once: {} times, and the bound of both hosts began anew",
                self.two_stores
            ));
        }
        let (still, time) = self.watch.seen().still;
        if still > 0 {
            line(format!(
                "everything stood still {still} times, {time:.0?} in all: somebody froze these processes"
            ));
        }
        if let (Some((_, first)), Some((_, last))) = (self.held.first(), self.held.last()) {
            line(format!(
                "daemon: {} files, {} threads, {} kB at first; {} files, {} threads, {} kB at last",
                first.files, first.threads, first.kilobytes, last.files, last.threads, last.kilobytes
            ));
        }
        text
    }
}
