//! Reads the daemon: its status over the control socket, and its process in the process file system.

use std::path::Path;

use super::host::text;
use crate::{
    control::{
        client::{ask, daemon_is_absent},
        protocol::{Order, Reply, all_protected},
    },
    dataplane::pin::PinDir,
    doctor::readings::{Attendance, DaemonReadings, Perhaps},
};

pub(super) fn read(state: &Path, pin: &Path) -> Attendance {
    if daemon_is_absent(state) {
        let linked = PinDir::new(pin).linked_interfaces().unwrap_or_default();
        return match linked.is_empty() {
            true => Attendance::Nothing(state.display().to_string()),
            false => Attendance::Abandoned(linked),
        };
    }
    let status = match ask(state, Order::Status) {
        Ok(Reply::Status(status)) => status,
        Ok(_) => return Attendance::Daemon(Err("it is of another build".to_owned())),
        Err(failure) => return Attendance::Daemon(Err(failure.message)),
    };
    let cluster = status.cluster.iter().flat_map(|cluster| &cluster.warnings);
    Attendance::Daemon(Ok(DaemonReadings {
        pid: status.pid,
        build: status.build.clone(),
        capabilities: capabilities(status.pid),
        warnings: status.warnings.iter().chain(cluster).cloned().collect(),
        protected: all_protected(&status.interfaces),
    }))
}

/// The effective capabilities of a process.
fn capabilities(pid: u32) -> Perhaps<u64> {
    let status = text(Path::new(&format!("/proc/{pid}/status")))?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    bits.ok_or_else(|| format!("/proc/{pid}/status does not say CapEff"))
}
