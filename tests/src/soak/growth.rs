//! What a daemon holds, and what it leaves in the kernel: neither may grow with the number of things that happen.

use std::{collections::BTreeSet, fs, path::Path};

use aya::{maps::loaded_maps, programs::loaded_programs};

/// What a daemon and the processes that it has started hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) files: usize,
    pub(super) threads: usize,
    pub(super) kilobytes: u64,
}

impl Held {
    pub(super) fn of(pid: u32) -> Self {
        let mut sum = Self::default();
        for pid in family(pid) {
            sum.files += fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let number = |name: &str| -> u64 {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
            };
            sum.threads += number("Threads:") as usize;
            sum.kilobytes += number("VmRSS:");
        }
        sum
    }
}

/// A process and those that it has started.
fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()).flat_map(family));
    }
    all
}

/// Programs and maps of a soak that the kernel has had.
#[derive(Debug, Default)]
pub(super) struct InKernel {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
}

impl InKernel {
    /// Remembers what is pinned and attached now.
    pub(super) fn look(&mut self, pins: &Path, attached: &[u32]) {
        self.programs.extend(attached);
        for layout in fs::read_dir(pins).into_iter().flatten().flatten() {
            for pin in fs::read_dir(layout.path()).into_iter().flatten().flatten() {
                let map = aya::maps::MapData::from_pin(pin.path());
                self.maps.extend(map.ok().and_then(|map| map.info().ok()).map(|info| info.id()));
            }
        }
    }

    /// Of the programs that were attached, how many the kernel still has.
    pub(super) fn programs_alive(&self) -> usize {
        loaded_programs().flatten().filter(|info| self.programs.contains(&info.id())).count()
    }

    /// Of the maps that were pinned, those that the kernel still has.
    pub(super) fn maps_alive(&self) -> Vec<String> {
        let alive = loaded_maps().flatten().filter(|info| self.maps.contains(&info.id()));
        alive.map(|info| format!("{} ({})", info.name_as_str().unwrap_or("?"), info.id())).collect()
    }
}
