//! Checks of the host itself: kernel, memory, clock, settings.

use super::{
    finding::HostFinding,
    readings::{HostReadings, Perhaps, Wishes},
};
use crate::dataplane::probe::{KERNEL_FLOOR, KernelRelease};

/// Bytes of memory for the maps of the default policy, the daemon and larger tables (docs/sizing.md has 78 MB on 2 CPUs).
const MEMORY_WANTED: u64 = 256 << 20;
/// Open files below which the daemon's log would warn.
const FILES_WANTED: u64 = 4_096;
/// Clock sources that are read without leaving the CPU.
const FAST_CLOCKS: [&str; 6] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase", "riscv_clocksource"];

pub(super) fn examine(host: &HostReadings, wishes: &Wishes) -> Vec<HostFinding> {
    let mut findings = vec![kernel(host), pins(host), jit(host), btf(host, wishes)];
    findings.extend([memory(host), group(host), clock(&host.clock), cookies(host, wishes)]);
    findings.push(headroom(host, wishes));
    findings.push(files(&host.open_files, wishes));
    findings
}

fn kernel(host: &HostReadings) -> HostFinding {
    let release = &host.release;
    match KernelRelease::parse(release) {
        Some(found) if found < KERNEL_FLOOR => HostFinding::fail(
            "kernel",
            format!("{release}: too old for the program"),
            format!("boot kernel {}.{} or newer", KERNEL_FLOOR.0, KERNEL_FLOOR.1),
        ),
        Some(_) if host.interleaves => HostFinding::warn(
            "kernel",
            format!(
                "{release}: PREEMPT_RT without CONFIG_PREEMPT_RT_NEEDS_BH_LOCK, two programs may run on one CPU at once"
            ),
            "use a kernel with CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y, or one without PREEMPT_RT",
        ),
        Some(_) => HostFinding::ok("kernel", format!("{release}: has everything that the program uses")),
        None => HostFinding::unknown("kernel", format!("{release:?} has no version in it")),
    }
}

fn pins(host: &HostReadings) -> HostFinding {
    match &host.pin_problem {
        None => HostFinding::ok("bpf_file_system", format!("{} is on a BPF file system", host.pin.display())),
        Some(problem) => HostFinding::fail(
            "bpf_file_system",
            problem,
            "mount -t bpf bpf /sys/fs/bpf, or name a directory on such a file system with --pin",
        ),
    }
}

fn jit(host: &HostReadings) -> HostFinding {
    match (&host.jit, &host.jit_harden) {
        (Ok(0), _) => HostFinding::warn(
            "jit",
            "net.core.bpf_jit_enable is 0: the kernel interprets programs, which makes each packet several times as expensive",
            "sysctl -w net.core.bpf_jit_enable=1",
        ),
        (Ok(_), Ok(2)) => HostFinding::warn(
            "jit",
            "net.core.bpf_jit_harden is 2: constants are hidden in programs of root too, which makes each packet more expensive",
            "sysctl -w net.core.bpf_jit_harden=1, then start the daemon again",
        ),
        (Ok(_), _) => HostFinding::ok("jit", "programs are compiled"),
        (Err(why), _) => HostFinding::unknown("jit", why),
    }
}

fn btf(host: &HostReadings, wishes: &Wishes) -> HostFinding {
    match (host.btf, wishes.cookies) {
        (true, _) => HostFinding::ok("btf", "the kernel describes its types"),
        (false, true) => HostFinding::warn(
            "btf",
            "/sys/kernel/btf/vmlinux is missing: connections that begin with a SYN cookie will have no window scaling",
            "use a kernel with CONFIG_DEBUG_INFO_BTF=y",
        ),
        (false, false) => {
            HostFinding::ok("btf", "/sys/kernel/btf/vmlinux is missing; only SYN cookies would use it")
        }
    }
}

fn memory(host: &HostReadings) -> HostFinding {
    match &host.memory_available {
        Ok(bytes) if *bytes < MEMORY_WANTED => HostFinding::warn(
            "memory",
            format!(
                "{} available; tables of the default size and the daemon should have {}",
                mib(*bytes),
                mib(MEMORY_WANTED)
            ),
            "make [source] table_entries smaller (docs/sizing.md), or free memory",
        ),
        Ok(bytes) => HostFinding::ok("memory", format!("{} available", mib(*bytes))),
        Err(why) => HostFinding::unknown("memory", why),
    }
}

/// Checks the memory limit of the control group, to which maps are charged. RLIMIT_MEMLOCK does not count since kernel 5.11.
fn group(host: &HostReadings) -> HostFinding {
    match &host.group_room {
        Ok(Some(bytes)) if *bytes < MEMORY_WANTED => HostFinding::warn(
            "memory_limit",
            format!(
                "the control group may take {} more; tables of the default size and the daemon should have {}",
                mib(*bytes),
                mib(MEMORY_WANTED)
            ),
            "raise memory.max (MemoryMax= of the unit), or make [source] table_entries smaller (docs/sizing.md)",
        ),
        Ok(Some(bytes)) => {
            HostFinding::ok("memory_limit", format!("the control group may take {} more", mib(*bytes)))
        }
        Ok(None) => HostFinding::ok(
            "memory_limit",
            "the control group has none, and RLIMIT_MEMLOCK does not count on this kernel",
        ),
        Err(why) => HostFinding::unknown("memory_limit", why),
    }
}

fn clock(clock: &Perhaps<String>) -> HostFinding {
    match clock {
        Ok(name) if FAST_CLOCKS.contains(&name.as_str()) => HostFinding::ok("clock_source", name),
        Ok(name) => HostFinding::warn(
            "clock_source",
            format!(
                "{name}: reading it leaves the CPU, and limits with a small burst read it for each packet"
            ),
            "see /sys/devices/system/clocksource/clocksource0/available_clocksource; tsc, if it is there, is read in nanoseconds (kernel parameter clocksource=tsc)",
        ),
        Err(why) => HostFinding::unknown("clock_source", why),
    }
}

fn cookies(host: &HostReadings, wishes: &Wishes) -> HostFinding {
    let tcp = &host.tcp;
    let settings = format!(
        "net.ipv4.tcp_syncookies is {}, net.ipv4.tcp_timestamps is {}",
        tcp.syncookies, tcp.timestamps
    );
    if !wishes.cookies {
        return HostFinding::ok(
            "syn_cookies",
            format!("{settings}; no policy that was looked at asks for SYN cookies"),
        );
    }
    if tcp.syncookies != 2 {
        return HostFinding::fail(
            "syn_cookies",
            format!("{settings}: the kernel does not take cookies that were sent for it, so none are sent"),
            "sysctl -w net.ipv4.tcp_syncookies=2",
        );
    }
    match &host.translated {
        Err(why) => return HostFinding::unknown("syn_cookies", why),
        Ok(services) if !services.is_empty() => {
            let off = services.iter().map(|(name, cause)| format!("no cookies are sent for {name}: {cause}"));
            return HostFinding::warn(
                "syn_cookies",
                off.collect::<Vec<_>>().join("; "),
                "give ports that are not translated a service of their own (docs/policy.md, \"SYN cookies and firewalls\")",
            );
        }
        Ok(_) => {}
    }
    if tcp.window_scale().is_none() {
        return HostFinding::warn(
            "syn_cookies",
            format!(
                "{settings}: connections that begin with a cookie will have neither window scaling nor SACK"
            ),
            "sysctl -w net.ipv4.tcp_timestamps=2, with tcp_window_scaling and tcp_sack at 1",
        );
    }
    HostFinding::ok("syn_cookies", settings)
}

fn headroom(host: &HostReadings, wishes: &Wishes) -> HostFinding {
    match host.headroom_notes.as_slice() {
        [] => HostFinding::ok("headroom", "CPU pressure, softirqs and backlogs can be measured"),
        notes if wishes.elastic => HostFinding::warn(
            "headroom",
            notes.join("; "),
            "boot with psi=1 for CPU pressure; elastic limits go by what is left",
        ),
        notes => HostFinding::ok(
            "headroom",
            format!("{}; no policy that was looked at has elastic limits", notes.join("; ")),
        ),
    }
}

fn files(limit: &Perhaps<Option<u64>>, wishes: &Wishes) -> HostFinding {
    match limit {
        Ok(Some(limit)) if *limit < FILES_WANTED && wishes.listens => HostFinding::warn(
            "open_files",
            format!("at most {limit}: each connection of a proxy or web server is one"),
            "LimitNOFILE=1048576 in the unit, or ulimit -n",
        ),
        Ok(Some(limit)) => HostFinding::ok("open_files", format!("at most {limit}")),
        Ok(None) => HostFinding::ok("open_files", "any number"),
        Err(why) => HostFinding::unknown("open_files", why),
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
