//! A mount namespace of our own: the BPF file systems and the names of network namespaces that a run makes exist in
//! there only, and go with it however it ends.

use std::{
    env, fs,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};

use crate::shell;

/// Set in the process that is already inside.
const INSIDE: &str = "RATELIMIT_BENCH_SECLUDED";
/// Where `ip netns` keeps names.
const NETNS: &str = "/run/netns";

/// Starts this program again, inside; returns only there.
pub(crate) fn enter() -> Result<()> {
    if env::var_os(INSIDE).is_none() {
        let own = env::current_exe().context("cannot find the path of this program")?;
        let mut again = Command::new("unshare");
        again.args(["--mount", "--propagation", "private", "--"]).arg(own).args(env::args_os().skip(1));
        let error = again.env(INSIDE, "yes").exec();
        return Err(error).context("cannot start unshare, of util-linux");
    }
    fs::create_dir_all(NETNS).with_context(|| format!("cannot make {NETNS}"))?;
    // If this were the namespace everybody lives in, the next line would hide their network namespaces.
    if fs::read_link("/proc/self/ns/mnt").ok() == fs::read_link("/proc/1/ns/mnt").ok() {
        bail!("this is the machine's own mount namespace, although {INSIDE} is set; unset it");
    }
    shell::run("mount", ["-t", "tmpfs", "ratelimit-bench", NETNS])?;
    debug_assert!(Path::new(NETNS).is_dir());
    Ok(())
}

/// What the shell gets: 4 is "not permitted" everywhere in this project.
pub(crate) fn require_rights() -> Option<ExitCode> {
    if ratelimit_user::dataplane::probe::require_rights("this benchmark").is_ok() {
        return None;
    }
    eprintln!(
        "bench: loads BPF programs and makes network namespaces, which takes root; run it in a root shell"
    );
    Some(ExitCode::from(4))
}
