//! One look at how loaded the host is, and the marks it is held against.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::percent::Percent;

/// What was measured since the reading before. What could not be is absent and does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeadroomReading {
    /// Share of the last ten seconds in which some task waited for a CPU.
    pub cpu_pressure_percent: Option<Percent>,
    /// Share of its time that the busiest CPU spent on softirqs. Not the average: a queue of a network card has one CPU, and when that is
    /// at its end packets are lost whatever the others do.
    pub softirq_percent: Option<Percent>,
    /// Packets that all CPUs dropped because a backlog was full.
    pub dropped: Option<u64>,
    /// Times that the CPU with the most stopped taking packets although there were more.
    pub squeezed: Option<u64>,
    /// Packets that wait in the longest backlog.
    pub backlog: Option<u64>,
}

/// Where headroom ends, and where it may come back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// From here on the host is strained.
    pub(super) high: u64,
    /// Below this it is calm.
    pub(super) low: u64,
}

/// A host at seventy percent of its CPUs has 10 to 20 here; at half the time somebody always waits.
pub(super) const CPU_PRESSURE: Mark =
    Mark { high: Percent::new(50).hundredths(), low: Percent::new(25).hundredths() };
/// What is left of that CPU is for the application; a larger share, and a burst fills the queue.
pub(super) const SOFTIRQ: Mark =
    Mark { high: Percent::new(70).hundredths(), low: Percent::new(35).hundredths() };
/// A few may be one burst; none is calm.
pub(super) const DROPPED: Mark = Mark { high: 10, low: 1 };
/// A round that ends early has taken 300 packets or 2 ms (`netdev_budget`, `netdev_budget_usecs`): a fifth of the time or 30 000 packets.
pub(super) const SQUEEZED: Mark = Mark { high: 100, low: 50 };
/// Half of what the kernel lets wait before it drops (`netdev_max_backlog`, 1000 unless somebody changed it).
pub(super) const BACKLOG: Mark = Mark { high: 500, low: 250 };

impl HeadroomReading {
    /// What is above its high mark, as a sentence; also that nothing was measured, because headroom must be seen to be given away.
    pub(super) fn strain(&self) -> Option<String> {
        if self.measured().next().is_none() {
            return Some("nothing of the host's load can be measured".to_owned());
        }
        let strained: Vec<String> = self
            .measured()
            .filter(|(value, mark, _)| *value >= mark.high)
            .map(|(_, _, sentence)| sentence)
            .collect();
        (!strained.is_empty()).then(|| strained.join("; "))
    }

    /// Whether everything that was measured is below its low mark, and something was.
    pub(super) fn is_calm(&self) -> bool {
        self.measured().next().is_some() && self.measured().all(|(value, mark, _)| value < mark.low)
    }

    /// Each value with its mark, and what to say when it is above it.
    fn measured(&self) -> impl Iterator<Item = (u64, Mark, String)> {
        let share = |value: Option<Percent>, mark: Mark, what: &str| {
            let high = mark.high / 100;
            value.map(|value| {
                (value.hundredths(), mark, format!("{what} {value} of the time (headroom ends at {high} %)"))
            })
        };
        let count = |value: Option<u64>, mark: Mark, what: &str| {
            value.map(|value| (value, mark, format!("{value} {what} (headroom ends at {})", mark.high)))
        };
        [
            share(self.cpu_pressure_percent, CPU_PRESSURE, "tasks waited for a CPU"),
            share(self.softirq_percent, SOFTIRQ, "one CPU was busy with softirqs"),
            count(self.dropped, DROPPED, "received packets were dropped in a second"),
            count(self.squeezed, SQUEEZED, "times in a second one CPU left packets waiting"),
            count(self.backlog, BACKLOG, "packets wait in the backlog of one CPU"),
        ]
        .into_iter()
        .flatten()
    }
}

impl fmt::Display for HeadroomReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = [
            self.cpu_pressure_percent.map(|value| format!("CPU pressure {value}")),
            self.softirq_percent.map(|value| format!("softirq {value} of a CPU")),
            self.dropped.map(|value| format!("{value} dropped")),
            self.squeezed.map(|value| format!("{value} squeezed")),
            self.backlog.map(|value| format!("backlog {value}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        f.write_str(if words.is_empty() { "nothing measured" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}
