//! Reads the host from the process and system file systems.

use std::{
    collections::BTreeSet,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use rustix::process::{Resource, getrlimit};

use super::Whereabouts;
use crate::{
    dataplane::{address, netfilter, probe, realtime, sysctl::TcpSettings, tracking::Tracking},
    doctor::readings::{HostReadings, Perhaps},
    headroom::Sample,
    policy::Policy,
};

const GROUPS: &str = "/sys/fs/cgroup";

/// The readings for a running daemon, or for one that this process would start.
pub(super) fn read(place: &Whereabouts, daemon: Option<u32>) -> HostReadings {
    let proc = &place.proc;
    let process = proc.join(daemon.map_or_else(|| "self".to_owned(), |pid| pid.to_string()));
    let release = probe::kernel_release();
    HostReadings {
        interleaves: realtime::interleaves(&release),
        release,
        pin: place.pin.clone(),
        pin_problem: probe::require_bpffs(&place.pin).err().map(|error| first_part(&error.to_string())),
        jit: number(&proc.join("sys/net/core/bpf_jit_enable")),
        jit_harden: number(&proc.join("sys/net/core/bpf_jit_harden")),
        btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
        cpus: probe::possible_cpus(),
        memory_available: text(&proc.join("meminfo")).and_then(|text| available(&text)),
        group_room: text(&process.join("cgroup")).and_then(|text| group_room(&text)),
        clock: text(Path::new("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        headroom_notes: Sample::read(proc).notes(),
        tcp: TcpSettings::read(),
        translated: place.policy.as_ref().map_or(Ok(Vec::new()), translated),
        open_files: match daemon {
            Some(_) => text(&process.join("limits")).and_then(|text| open_files(&text)),
            None => Ok(getrlimit(Resource::Nofile).maximum),
        },
    }
}

/// Services with SYN cookies whose packets netfilter sends elsewhere, with the cause.
fn translated(policy: &Policy) -> Perhaps<Vec<(String, String)>> {
    let services: Vec<_> =
        policy.services().iter().filter(|service| service.syn_cookies().is_some()).collect();
    if services.is_empty() {
        return Ok(Vec::new());
    }
    let own = address::list().map_err(|error| error.to_string())?;
    let own: Vec<IpAddr> = own.into_iter().map(|(address, _)| address).collect();
    let unread = |error| format!("what the firewall sends elsewhere cannot be read: {error}");
    let by_rules = netfilter::ports_of_rules(&own).map_err(unread)?;
    let is_tracking = Tracking::read().is_some_and(|tracking| tracking.followed > 0);
    let by_connections =
        if is_tracking { netfilter::ports_of_connections(&own).map_err(unread)? } else { BTreeSet::new() };
    let found = services.iter().filter_map(|service| {
        let cause = netfilter::cause(service, &by_rules, by_connections.iter().copied())?;
        Some((service.name().to_owned(), cause))
    });
    Ok(found.collect())
}

/// The problem in a sentence without the remedy behind the semicolon, which a finding has in a field of its own.
fn first_part(sentence: &str) -> String {
    sentence.split(';').next().unwrap_or_default().to_owned()
}

/// The text of a file without trailing white space.
pub(super) fn text(path: &Path) -> Perhaps<String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(text.trim_end().to_owned())
}

fn number(path: &Path) -> Perhaps<u64> {
    let text = text(path)?;
    text.parse().map_err(|_| format!("{} says {text:?}, where a number should be", path.display()))
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn available(text: &str) -> Perhaps<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| "/proc/meminfo does not say MemAvailable".to_owned())
}

/// Bytes that the control group of a process may still take: the least of the group and its parents.
fn group_room(groups: &str) -> Perhaps<Option<u64>> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let path = path.ok_or("control groups of version 1 are not read")?;
    let root = PathBuf::from(GROUPS);
    if !root.join("cgroup.controllers").exists() {
        return Err(format!("no control groups at {GROUPS}"));
    }
    let group = root.join(path);
    let inside = group.ancestors().take_while(|group| group.starts_with(&root));
    Ok(inside
        .filter_map(|group| {
            let most: u64 = text(&group.join("memory.max")).ok()?.parse().ok()?;
            let now: u64 = text(&group.join("memory.current")).ok()?.parse().ok()?;
            Some(most.saturating_sub(now))
        })
        .min())
}

/// The hard limit of `Max open files`: a daemon raises its own soft limit.
fn open_files(limits: &str) -> Perhaps<Option<u64>> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(1));
    match hard {
        Some("unlimited") => Ok(None),
        Some(word) => word.parse().map(Some).map_err(|_| format!("Max open files is {word:?}")),
        None => Err("the kernel does not say Max open files".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read_and_what_is_missing_is_a_sentence() {
        assert_eq!(available("MemTotal:  8 kB\nMemAvailable:   2048 kB\n"), Ok(2 << 20));
        assert!(available("MemTotal: 8 kB\n").is_err());
        let limits = "Limit  Soft  Hard  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(open_files(limits), Ok(Some(524_288)));
        assert_eq!(open_files("Max open files  1024  unlimited  files\n"), Ok(None));
        assert!(open_files("").is_err());
        assert!(group_room("12:memory:/x\n").is_err(), "version 1");
        assert!(text(Path::new("/nonexistent")).unwrap_err().contains("cannot read /nonexistent"));
    }
}
