//! The limiter as operators run it: `ratelimit run`.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use ratelimit_tests::{bpffs::Scratch, daemon::Daemon};

use crate::lane::Lane;

/// A running daemon and its directories. Fields are dropped in order: the daemon stops, then its pins go, and with
/// them the program.
#[expect(dead_code, reason = "held for what happens when it is dropped")]
pub(crate) struct Guard {
    daemon: Daemon,
    scratch: Scratch,
}

pub(super) fn start(lane: &Lane, policy: &str, binary: &Path) -> Result<Guard> {
    let scratch = Scratch::new();
    let path = scratch.dir().join("policy.toml");
    fs::write(&path, policy).with_context(|| format!("cannot write {}", path.display()))?;
    // If this process is killed, the daemon must not stay behind.
    let mut command = lane.command("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(binary).arg("run").arg("--policy").arg(&path);
    command.arg("--state").arg(scratch.dir().join("state")).arg("--pin").arg(scratch.pin());
    command.args(["--require-native", "--iface", &lane.inlet]);
    Ok(Guard { daemon: Daemon::start(command), scratch })
}
