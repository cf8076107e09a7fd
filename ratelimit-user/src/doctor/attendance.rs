//! Whether a daemon protects the host, and has the capabilities that it needs.

use super::{
    finding::HostFinding,
    readings::{Attendance, DaemonReadings},
};

/// Capabilities that a daemon needs, by number (linux/capability.h) and name.
const NEEDED: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (39, "CAP_BPF")];
const PERFMON: u32 = 38;
/// CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON.
const SYS_ADMIN: u32 = 21;

pub(super) fn examine(attendance: &Attendance) -> Vec<HostFinding> {
    match attendance {
        Attendance::Nothing(at) => {
            vec![HostFinding::ok("daemon", format!("none runs at {at}, and nothing is guarded"))]
        }
        Attendance::Abandoned(interfaces) => vec![HostFinding::warn(
            "daemon",
            format!(
                "none runs; {} stay guarded by the limits in force, without a daemon to look after them",
                interfaces.join(", ")
            ),
            "start it: ratelimit run --policy FILE",
        )],
        Attendance::Daemon(Err(why)) => vec![HostFinding::unknown("daemon", why)],
        Attendance::Daemon(Ok(daemon)) => {
            let mut findings = vec![condition(daemon), capabilities(daemon)];
            findings.extend(
                daemon
                    .warnings
                    .iter()
                    .map(|warning| HostFinding::warn("status", warning, "ratelimit status")),
            );
            findings
        }
    }
}

fn condition(daemon: &DaemonReadings) -> HostFinding {
    let DaemonReadings { pid, build, protected, .. } = daemon;
    if *protected {
        return HostFinding::ok(
            "daemon",
            format!("pid {pid}, build {build}; everything that it guards is protected"),
        );
    }
    HostFinding::fail(
        "daemon",
        format!("pid {pid}, build {build}: something that it guards is NOT PROTECTED"),
        "ratelimit status says what, and why",
    )
}

fn capabilities(daemon: &DaemonReadings) -> HostFinding {
    let held = match &daemon.capabilities {
        Ok(held) => *held,
        Err(why) => return HostFinding::unknown("capabilities", why),
    };
    let has = |number: u32| held >> number & 1 == 1;
    let is_lacking = |number: u32| !(has(number) || number >= PERFMON && has(SYS_ADMIN));
    let lacking: Vec<&str> =
        NEEDED.into_iter().filter(|(number, _)| is_lacking(*number)).map(|(_, name)| name).collect();
    if !lacking.is_empty() {
        return HostFinding::fail(
            "capabilities",
            format!("the daemon lacks {}: it cannot load programs or put them back", lacking.join(" and ")),
            "run it as root, or with AmbientCapabilities=CAP_BPF CAP_NET_ADMIN CAP_PERFMON",
        );
    }
    if is_lacking(PERFMON) {
        return HostFinding::warn(
            "capabilities",
            "the daemon lacks CAP_PERFMON: what listeners ask for cannot be read, so connections that begin with a SYN cookie have no window scaling",
            "add CAP_PERFMON to AmbientCapabilities=",
        );
    }
    HostFinding::ok("capabilities", "the daemon may load programs and put them on interfaces")
}
