//! One reading of the host's load, and the marks that it is compared with.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::percent::Percent;

/// The load since the reading before. A value that could not be measured is absent and does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeadroomReading {
    /// Share of the last ten seconds in which some task waited for a CPU.
    pub cpu_pressure_percent: Option<Percent>,
    /// Share of its time that the busiest CPU spent on softirqs. The average would not do: a queue of a network card has one CPU, and when
    /// that CPU is busy all the time, packets are lost whatever the others do.
    pub softirq_percent: Option<Percent>,
    /// Packets that all CPUs dropped because a backlog was full.
    pub dropped: Option<u64>,
    /// How often the most squeezed CPU stopped taking packets although there were more.
    pub squeezed: Option<u64>,
    /// Packets that wait in the longest backlog.
    pub backlog: Option<u64>,
}

/// The values at which headroom ends and below which it may come back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The host is strained from this value on.
    pub(super) high: u64,
    /// The host is calm below this value.
    pub(super) low: u64,
}

/// A host that uses seventy percent of its CPUs has a CPU pressure of 10 to 20 %; at 50 % some task waits half of the time.
pub(super) const CPU_PRESSURE: Mark =
    Mark { high: Percent::new(50).hundredths(), low: Percent::new(25).hundredths() };
/// The rest of the busiest CPU's time is for the application; with a larger share of softirqs, a burst fills the queue.
pub(super) const SOFTIRQ: Mark =
    Mark { high: Percent::new(70).hundredths(), low: Percent::new(35).hundredths() };
/// A few dropped packets in a second may be one burst; a calm host drops none.
pub(super) const DROPPED: Mark = Mark { high: 10, low: 1 };
/// A squeezed round has taken 300 packets or 2 ms (`netdev_budget`, `netdev_budget_usecs`), so 100 in a second are 30 000 packets or a fifth of the time.
pub(super) const SQUEEZED: Mark = Mark { high: 100, low: 50 };
/// Half of the packets that the kernel lets wait before it drops (`netdev_max_backlog`, 1000 by default).
pub(super) const BACKLOG: Mark = Mark { high: 500, low: 250 };

impl HeadroomReading {
    /// Describes the values at or above their high mark. If nothing was measured, that is a strain too: margins are given only where headroom is measured.
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

    /// Whether at least one value was measured, and every measured value is below its low mark.
    pub(super) fn is_calm(&self) -> bool {
        self.measured().next().is_some() && self.measured().all(|(value, mark, _)| value < mark.low)
    }

    /// Returns each measured value with its mark, and the sentence for a value at or above the high mark.
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
