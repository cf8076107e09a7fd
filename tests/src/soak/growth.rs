//! What a daemon holds, and what it leaves in the kernel: neither may grow with the number of things that happen.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use aya::{
    maps::loaded_maps,
    programs::{loaded_links, loaded_programs},
};

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

/// What a thread has had of the CPUs so far, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTimes {
    pub(super) ran: Duration,
    /// Ready to run, while others had the CPUs.
    pub(super) waited: Duration,
}

impl CpuTimes {
    /// Of the thread of this name; nothing if the process has none.
    pub(super) fn of(pid: u32, thread: &str) -> Self {
        let mut tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let task = tasks.find(|task| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == thread)
        });
        let text = task.and_then(|task| fs::read_to_string(task.path().join("schedstat")).ok());
        let text = text.unwrap_or_default();
        let mut times = text.split_whitespace().filter_map(|ns| ns.parse().ok()).map(Duration::from_nanos);
        Self { ran: times.next().unwrap_or_default(), waited: times.next().unwrap_or_default() }
    }

    /// What was added since.
    pub(super) fn since(self, before: Self) -> Self {
        Self { ran: self.ran.saturating_sub(before.ran), waited: self.waited.saturating_sub(before.waited) }
    }
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
        self.alive().count()
    }

    fn alive(&self) -> impl Iterator<Item = u32> {
        let ids = loaded_programs().flatten().map(|info| info.id());
        ids.filter(|id| self.programs.contains(id))
    }

    /// Who has the programs that are alive and not among the attached: links, processes that have one or the other open, and mount namespaces that
    /// keep a BPF file system of this soak which was unmounted.
    pub(super) fn holders(&self, pins: &Path, attached: &[u32]) -> String {
        let programs: Vec<u32> = self.alive().filter(|id| !attached.contains(id)).collect();
        let links = loaded_links().flatten().filter(|link| programs.contains(&link.program_id()));
        let links: Vec<u32> = links.map(|link| link.id()).collect();
        let mut words = vec![format!("programs {programs:?}, links {links:?}")];
        for pid in processes() {
            let open = open_of(pid, &programs, &links);
            if !open.is_empty() {
                words.push(format!("{} has {} open", called(pid), open.join(", ")));
            }
            if keeps_file_system(pid, pins) {
                words.push(format!(
                    "{} has a mount namespace of its own with {}",
                    called(pid),
                    pins.display()
                ));
            }
        }
        words.join("; ")
    }

    /// Of the maps that were pinned, those that the kernel still has.
    pub(super) fn maps_alive(&self) -> Vec<String> {
        let alive = loaded_maps().flatten().filter(|info| self.maps.contains(&info.id()));
        alive.map(|info| format!("{} ({})", info.name_as_str().unwrap_or("?"), info.id())).collect()
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process, by its number and the name of its program.
fn called(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", name.trim())
}

/// What a process has open of these programs and links.
fn open_of(pid: u32, programs: &[u32], links: &[u32]) -> Vec<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let open = |text: String| {
        let number = |name: &str| -> Option<u32> {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
        };
        let link = number("link_id").filter(|id| links.contains(id)).map(|id| format!("link {id}"));
        link.or(number("prog_id").filter(|id| programs.contains(id)).map(|id| format!("program {id}")))
    };
    texts.filter_map(open).collect()
}

/// Whether a process is in another mount namespace than this one, and the BPF file system of these pins is mounted there.
fn keeps_file_system(pid: u32, pins: &Path) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let is_elsewhere = namespace(&pid.to_string()).is_some_and(|there| Some(there) != namespace("self"));
    let mount = pins.parent().unwrap_or(pins).display().to_string();
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    is_elsewhere && mounts.lines().any(|line| line.split(' ').nth(4) == Some(mount.as_str()))
}
