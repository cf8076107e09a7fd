//! A sample: the contents of the kernel's files about load at one moment.

use std::{fs, path::Path};

use super::{
    percent::Percent,
    pressure,
    reading::HeadroomReading,
    softnet::{self, SoftnetQueue},
    stat::{self, CpuTime},
};

/// The values read from the files, or for each file why it could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pressure: Result<Percent, String>,
    cpus: Result<Vec<CpuTime>, String>,
    queues: Result<Vec<SoftnetQueue>, String>,
}

impl Sample {
    /// Reads the files below `proc`, where the kernel's process file system is mounted.
    pub fn read(proc: &Path) -> Self {
        Self {
            pressure: file(proc, "pressure/cpu", pressure::parse).map_err(|problem| {
                format!("CPU pressure is not measured: {problem}; it needs a kernel with PSI (psi=1)")
            }),
            cpus: file(proc, "stat", stat::parse)
                .map_err(|problem| format!("time in softirqs is not measured: {problem}")),
            queues: file(proc, "net/softnet_stat", softnet::parse)
                .map_err(|problem| format!("drops and backlogs are not measured: {problem}")),
        }
    }

    /// Returns the reading for the time since the sample before. Values that are differences of counters are absent without one.
    pub fn since(&self, before: Option<&Self>) -> HeadroomReading {
        let cpus = before.and_then(|before| before.cpus.as_ref().ok()).zip(self.cpus.as_ref().ok());
        let queues = before.and_then(|before| before.queues.as_ref().ok()).zip(self.queues.as_ref().ok());
        let losses = queues.and_then(|(before, now)| softnet::losses(before, now));
        HeadroomReading {
            cpu_pressure_percent: self.pressure.as_ref().ok().copied(),
            softirq_percent: cpus.and_then(|(before, now)| stat::busiest(before, now)),
            dropped: losses.map(|losses| losses.dropped),
            squeezed: losses.map(|losses| losses.squeezed),
            backlog: self.queues.as_ref().ok().and_then(|queues| softnet::longest_backlog(queues)),
        }
    }

    /// Returns sentences about the values that are not measured, and why.
    pub fn notes(&self) -> Vec<String> {
        self.problems().into_iter().flatten().collect()
    }

    /// Returns the notes on values that the sample before did measure. A file that stays broken is mentioned once, also if the error changes.
    pub fn new_notes(&self, before: Option<&Self>) -> Vec<String> {
        let known = before.map(Self::problems).unwrap_or_default();
        let new = self.problems().into_iter().zip(known).filter(|(_, known)| known.is_none());
        new.filter_map(|(problem, _)| problem).collect()
    }

    fn problems(&self) -> [Option<String>; 4] {
        let without_backlog =
            matches!(&self.queues, Ok(queues) if softnet::longest_backlog(queues).is_none());
        [
            self.pressure.as_ref().err().cloned(),
            self.cpus.as_ref().err().cloned(),
            self.queues.as_ref().err().cloned(),
            without_backlog.then(|| "backlogs are not measured: this kernel does not show them".to_owned()),
        ]
    }
}

fn file<T>(proc: &Path, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
    let path = proc.join(name);
    let bytes = fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    parse(&String::from_utf8_lossy(&bytes)).map_err(|problem| format!("{}: {problem}", path.display()))
}
