//! A receiver on a core of its own: the interface's packets are taken by a kernel thread, which can be kept on that core.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::thread::Pid;

use crate::shell;

const PATIENCE: Duration = Duration::from_secs(2);

/// Gives the receiving side of an interface, which has a program or GRO, a kernel thread.
pub(crate) fn receiver(namespace: &str, interface: &str) -> Result<Pid> {
    let prefix = format!("napi/{interface}-");
    // Kernel threads know no namespaces: another run on this machine may have an interface of the same name.
    let others = threads(&prefix);
    let switch = format!("echo 1 > /sys/class/net/{interface}/threaded");
    // `ip netns exec` replaces /sys, so that /sys shows the interfaces of the namespace.
    shell::run("ip", ["netns", "exec", namespace, "sh", "-c", &switch])
        .context("cannot turn threaded NAPI on, which takes kernel 5.12")?;
    wait_for_thread(&prefix, &others)
}

fn wait_for_thread(prefix: &str, others: &[Pid]) -> Result<Pid> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(pid) = threads(prefix).into_iter().find(|pid| !others.contains(pid)) {
            return Ok(pid);
        }
        if Instant::now() > deadline {
            bail!("no kernel thread {prefix}* appeared");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A kernel thread is a process as far as /proc is concerned.
fn threads(prefix: &str) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let named = |entry: fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        name.starts_with(prefix).then(|| Pid::from_raw(pid))?
    };
    processes.flatten().filter_map(named).collect()
}
