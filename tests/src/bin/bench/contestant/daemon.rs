//! The limiter as operators run it: `ratelimit run`.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use ratelimit_tests::{bpffs::Scratch, clients::remember, daemon::Daemon};
use ratelimit_user::dataplane::pin::PinDir;
use serde_json::Value;

use super::blocks;
use crate::{lane::Lane, shell};

/// The policy file, in the directory of the daemon.
const POLICY: &str = "policy.toml";

/// A running daemon and its directories. Fields are dropped in order: the daemon stops, then its pins go, and with
/// them the program.
pub(crate) struct Guard {
    daemon: Daemon,
    scratch: Scratch,
    binary: PathBuf,
}

/// Starts the daemon on interfaces of a lane's receiving host.
pub(crate) fn start(lane: &Lane, interfaces: &[&str], policy: &str, binary: &Path) -> Result<Guard> {
    start_with_blocks(lane, interfaces, policy, [], binary)
}

/// Starts the daemon with addresses that an operator has blocked before.
pub(crate) fn start_with_blocks(
    lane: &Lane,
    interfaces: &[&str],
    policy: &str,
    blocked: impl IntoIterator<Item = Ipv4Addr>,
    binary: &Path,
) -> Result<Guard> {
    let scratch = Scratch::new();
    blocks::keep(&scratch.dir().join("state"), blocked)?;
    let path = scratch.dir().join(POLICY);
    fs::write(&path, policy).with_context(|| format!("cannot write {}", path.display()))?;
    let daemon = Daemon::start(command(lane, interfaces, &scratch, binary));
    Ok(Guard { daemon, scratch, binary: binary.to_owned() })
}

/// Starts the daemon with clients of its service that it knows, each with what it is served on average in packets per second.
pub(crate) fn start_with_clients(
    lane: &Lane,
    interfaces: &[&str],
    policy: &str,
    clients: impl IntoIterator<Item = (Ipv4Addr, f64)>,
    binary: &Path,
) -> Result<Guard> {
    let Guard { daemon, scratch, binary } = start(lane, interfaces, policy, binary)?;
    daemon.kill_9();
    remember(&PinDir::new(scratch.pin()), clients);
    // A daemon that starts fills the filter.
    let daemon = Daemon::start(command(lane, interfaces, &scratch, &binary));
    Ok(Guard { daemon, scratch, binary })
}

fn command(lane: &Lane, interfaces: &[&str], scratch: &Scratch, binary: &Path) -> Command {
    // If this process is killed, the daemon must not stay behind.
    let mut command = lane.command("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(binary).arg("run");
    command.arg("--policy").arg(scratch.dir().join(POLICY));
    command.arg("--state").arg(scratch.dir().join("state")).arg("--pin").arg(scratch.pin());
    command.arg("--require-native").args(interfaces.iter().flat_map(|name| ["--iface", name]));
    command
}

impl Guard {
    /// The daemon's counters, as `ratelimit stats` shows them.
    pub(crate) fn stats(&self, lane: &Lane) -> Result<Value> {
        self.ask(lane, &["stats"])
    }

    /// What a verb of the command line answers.
    pub(crate) fn ask(&self, lane: &Lane, words: &[&str]) -> Result<Value> {
        let mut command = lane.command(&self.binary);
        command.args(words).args(["--output", "json", "--state"]).arg(self.scratch.dir().join("state"));
        serde_json::from_str(&shell::output(&mut command)?)
            .with_context(|| format!("`ratelimit {}` is not JSON", words.join(" ")))
    }

    /// Where the daemon's maps are pinned.
    pub(crate) fn pins(&self) -> PinDir {
        PinDir::new(self.scratch.pin())
    }

    /// A directory for files that go with the daemon.
    pub(crate) fn dir(&self) -> &Path {
        self.scratch.dir()
    }
}
