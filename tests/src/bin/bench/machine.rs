//! The machine that numbers come from. Without it they say nothing.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use ratelimit_user::dataplane::probe;
use serde::Serialize;

use crate::shell;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
    /// The peers, as they name themselves.
    pub(crate) peers: Vec<String>,
    /// Day of the run, in UTC.
    pub(crate) date: String,
}

impl Machine {
    pub(crate) fn this(peers: Vec<String>) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self {
            cpu: cpu_model(&cpuinfo).unwrap_or("unknown CPU").to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: probe::kernel_release(),
            peers,
            date: date(seconds / 86_400),
        }
    }

    /// `Intel(R) Xeon(R) Processor, 2 CPUs, Linux 6.18, 2026-11-03`
    pub(crate) fn line(&self) -> String {
        format!("{}, {} CPUs, Linux {}, {}", self.cpu, self.cpus, self.kernel, self.date)
    }
}

/// The first line of what a program says about itself.
pub(crate) fn version(program: &str) -> Option<String> {
    Some(shell::run(program, ["--version"]).ok()?.lines().next()?.trim().to_owned())
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim())
}

/// A date from days since 1970, by counting in eras of 400 years that begin on the first of March.
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates_also_around_leap_days() {
        for (days, expected) in
            [(0, "1970-01-01"), (19_782, "2024-02-29"), (19_783, "2024-03-01"), (20_818, "2026-12-31")]
        {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn the_cpu_is_named_as_it_names_itself() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Processor\nmodel\t\t: 207\n";
        assert_eq!(cpu_model(cpuinfo), Some("Intel(R) Xeon(R) Processor"));
        assert_eq!(cpu_model(""), None);
    }
}
