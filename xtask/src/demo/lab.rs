//! The lab of the demonstration: two private network namespaces, a wire, a BPF file system and a directory.
//!
//!     rl-net-PID                          rl-edge-PID
//!       attackers and good client           the daemon, a server
//!       net0 10.99.0.2 .66 .67  ---veth---  edge0 10.99.0.1
//!       fd00:99::2                          fd00:99::1
//!
//! All names have our process id in them, so that two runs do not collide and a later run can recognise what a dead one left.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::build::BuildProfile;
use crate::setup::is_mounted;
use crate::tool;

pub(super) const SERVER: &str = "10.99.0.1";
pub(super) const SERVER_V6: &str = "fd00:99::1";
pub(super) const GOOD_CLIENT: &str = "10.99.0.2";
pub(super) const GOOD_CLIENT_V6: &str = "fd00:99::2";
pub(super) const UDP_ATTACKER: &str = "10.99.0.66";
pub(super) const SYN_ATTACKER: &str = "10.99.0.67";
pub(super) const EDGE_INTERFACE: &str = "edge0";
const NET_INTERFACE: &str = "net0";

/// The directory in which `ip netns` keeps the names of namespaces.
const NETNS_DIR: &str = "/run/netns";
const EDGE_PREFIX: &str = "rl-edge-";
const NET_PREFIX: &str = "rl-net-";
const DIR_PREFIX: &str = "ratelimit-run-";

/// The lab. Dropping it removes every part that was built.
pub(super) struct Lab {
    pid: u32,
    profile: BuildProfile,
}

impl Lab {
    /// Builds a lab for programs that were built with a profile.
    pub(super) fn build(profile: BuildProfile) -> Result<Self> {
        remove_leftovers();
        // The guard exists before the first thing it guards.
        let lab = Self { pid: std::process::id(), profile };
        lab.make_directory().context("cannot prepare a temporary directory with a BPF file system")?;
        lab.make_namespaces().context("cannot build private network namespaces")?;
        Ok(lab)
    }

    /// Returns the profile that the programs in the lab were built with.
    pub(super) fn profile(&self) -> BuildProfile {
        self.profile
    }

    fn make_directory(&self) -> Result<()> {
        let (dir, bpffs) = (self.dir(), self.bpffs());
        for dir in [&dir, &bpffs] {
            // The directory must not exist yet and is closed to others: everybody can write in the temporary directory, and we are root.
            DirBuilder::new()
                .mode(0o700)
                .create(dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
        }
        // A private BPF file system works where /sys/fs/bpf is not mounted, and its pins vanish with it.
        tool::output(tool::command("mount").args(["-t", "bpf", "bpf"]).arg(&bpffs))?;
        Ok(())
    }

    fn make_namespaces(&self) -> Result<()> {
        let (edge, net) = (self.edge(), self.net());
        ip(&["netns", "add", &edge])?;
        ip(&["netns", "add", &net])?;
        let wire = [
            "-n",
            &edge,
            "link",
            "add",
            EDGE_INTERFACE,
            "type",
            "veth",
            "peer",
            "name",
            NET_INTERFACE,
            "netns",
            &net,
        ];
        ip(&wire)?;
        for (namespace, interface) in [(&edge, EDGE_INTERFACE), (&net, NET_INTERFACE)] {
            ip(&["-n", namespace, "link", "set", "lo", "up"])?;
            ip(&["-n", namespace, "link", "set", interface, "up"])?;
        }
        add_address(&edge, EDGE_INTERFACE, SERVER, SERVER_V6)?;
        add_address(&net, NET_INTERFACE, GOOD_CLIENT, GOOD_CLIENT_V6)?;
        for attacker in [UDP_ATTACKER, SYN_ATTACKER] {
            ip(&["-n", &net, "address", "add", &format!("{attacker}/24"), "dev", NET_INTERFACE])?;
        }
        Ok(())
    }

    /// Returns a command inside the namespace of the daemon. It uses nsenter, because `ip netns exec` would mount another /sys.
    pub(super) fn at_edge(&self, program: &Path) -> Command {
        within(&self.edge(), program)
    }

    /// Returns a command inside the namespace of the clients.
    pub(super) fn at_net(&self, program: &Path) -> Command {
        within(&self.net(), program)
    }

    /// Returns the packets of clients that the wire lost because its queue was full: the limiter never saw them.
    pub(super) fn lost_on_wire(&self) -> Result<u64> {
        let shown = tool::output(tool::command("ip").args([
            "-j",
            "-s",
            "-n",
            &self.net(),
            "link",
            "show",
            NET_INTERFACE,
        ]))?;
        let links: Value =
            serde_json::from_str(&shown).with_context(|| format!("`ip -j` printed no JSON: {shown}"))?;
        let dropped = links.pointer("/0/stats64/tx/dropped").and_then(Value::as_u64);
        dropped.with_context(|| format!("`ip -j -s link` has no number at /0/stats64/tx/dropped: {shown}"))
    }

    pub(super) fn dir(&self) -> PathBuf {
        directory(self.pid)
    }

    pub(super) fn bpffs(&self) -> PathBuf {
        self.dir().join("bpf")
    }

    fn edge(&self) -> String {
        format!("{EDGE_PREFIX}{}", self.pid)
    }

    fn net(&self) -> String {
        format!("{NET_PREFIX}{}", self.pid)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        remove(self.pid);
    }
}

fn add_address(namespace: &str, interface: &str, v4: &str, v6: &str) -> Result<()> {
    ip(&["-n", namespace, "address", "add", &format!("{v4}/24"), "dev", interface])?;
    // nodad makes the address usable at once: no other host can be on this wire.
    ip(&["-n", namespace, "address", "add", &format!("{v6}/64"), "dev", interface, "nodad"])
}

fn ip(arguments: &[&str]) -> Result<()> {
    tool::output(tool::command("ip").args(arguments)).map(drop)
}

fn within(namespace: &str, program: &Path) -> Command {
    // If we are killed without a chance to clean up, the kernel ends the children.
    let mut command = tool::command("setpriv");
    command
        .args(["--pdeathsig", "TERM", "nsenter"])
        .arg(format!("--net={NETNS_DIR}/{namespace}"))
        .arg(program);
    command
}

fn directory(pid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("{DIR_PREFIX}{pid}"))
}

/// Removes everything that the run with this process id has made, and reports what stays behind.
fn remove(pid: u32) {
    for name in [format!("{EDGE_PREFIX}{pid}"), format!("{NET_PREFIX}{pid}")] {
        if Path::new(NETNS_DIR).join(&name).exists() {
            complain(ip(&["netns", "delete", &name]));
        }
    }
    let dir = directory(pid);
    let bpffs = dir.join("bpf");
    if is_mounted(&bpffs) {
        // The unmount is lazy: a process that is still ending must not keep the mount.
        complain(tool::output(tool::command("umount").arg("--lazy").arg(&bpffs)).map(drop));
    }
    if dir.exists() {
        complain(fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display())));
    }
}

fn complain(done: Result<()>) {
    if let Err(error) = done {
        mention(&format!("left behind: {error:#}"));
    }
}

/// Prints to standard error. It never panics, unlike eprintln: a closed terminal must not stop the clean-up.
fn mention(sentence: &str) {
    let _nobody_listens = writeln!(std::io::stderr(), "run: {sentence}");
}

/// Removes what earlier runs left behind that were killed without a chance to clean up.
fn remove_leftovers() {
    let names = [Path::new(NETNS_DIR).to_path_buf(), std::env::temp_dir()]
        .into_iter()
        .filter_map(|dir| fs::read_dir(dir).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    let mut dead: Vec<u32> = names.filter_map(|name| run_of(&name)).filter(|pid| !is_alive(*pid)).collect();
    dead.sort_unstable();
    dead.dedup();
    for pid in dead {
        mention(&format!("removing what run {pid} left behind when it was killed"));
        remove(pid);
    }
}

fn run_of(name: &str) -> Option<u32> {
    [EDGE_PREFIX, NET_PREFIX, DIR_PREFIX].iter().find_map(|prefix| name.strip_prefix(prefix)?.parse().ok())
}

/// Whether a run is still going. This is recognised by its executable: a process that was killed but not yet reaped has none,
/// and a process that got the same id later has another.
fn is_alive(pid: u32) -> bool {
    let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    executable.file_name().is_some_and(|name| name.to_string_lossy().starts_with("xtask"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_own_making_count_as_leftovers() {
        assert_eq!(run_of("rl-edge-17"), Some(17));
        assert_eq!(run_of("rl-net-4194304"), Some(4_194_304));
        assert_eq!(run_of("ratelimit-run-9"), Some(9));
        assert_eq!(run_of("rl-edge-"), None);
        assert_eq!(run_of("rl-edge-x1"), None);
        assert_eq!(run_of("blue"), None);
    }

    #[test]
    fn a_run_that_is_still_going_is_not_taken_for_dead() {
        assert!(is_alive(std::process::id()));
        // A process that is not ours, and a number above the largest process id that Linux can give.
        assert!(!is_alive(1));
        assert!(!is_alive(u32::MAX));
    }

    #[test]
    fn a_lab_carries_packets_and_leaves_nothing_behind() {
        assert!(tool::is_root(), "this test makes network namespaces and needs root");
        let lab = Lab::build(BuildProfile::Demo).unwrap();
        let (dir, edge, net) =
            (lab.dir(), Path::new(NETNS_DIR).join(lab.edge()), Path::new(NETNS_DIR).join(lab.net()));
        assert!(is_mounted(&lab.bpffs()) && edge.exists() && net.exists());
        for (from, to) in [(GOOD_CLIENT, SERVER), (UDP_ATTACKER, SERVER), (GOOD_CLIENT_V6, SERVER_V6)] {
            let ping = tool::find("ping").unwrap();
            tool::output(lab.at_net(&ping).args(["-n", "-c", "1", "-W", "5", "-I", from, to])).unwrap();
        }
        assert_eq!(lab.lost_on_wire().unwrap(), 0);
        drop(lab);
        assert!(!is_mounted(&dir.join("bpf")) && !dir.exists() && !edge.exists() && !net.exists());
    }
}
