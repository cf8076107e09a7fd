//! A receiver on a core of its own: the interface's packets are taken by a kernel thread, which is kept on that core.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::thread::Pid;

use crate::{lane::Lane, place, shell};

const PATIENCE: Duration = Duration::from_secs(2);

/// Moves the receiving side of a lane to a CPU.
pub(crate) fn move_receiver(lane: &Lane, cpu: usize) -> Result<()> {
    let switch = format!("echo 1 > /sys/class/net/{}/threaded", lane.inlet);
    // This one replaces /sys, so that it shows the interfaces of the namespace.
    shell::run("ip", ["netns", "exec", lane.namespace(), "sh", "-c", &switch])
        .context("cannot turn threaded NAPI on, which takes kernel 5.12")?;
    let thread = wait_for_thread(&format!("napi/{}-", lane.inlet))?;
    place::keep_on(Some(thread), cpu).with_context(|| format!("cannot move {}'s thread", lane.inlet))
}

fn wait_for_thread(prefix: &str) -> Result<Pid> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(pid) = find_thread(prefix) {
            return Ok(pid);
        }
        if Instant::now() > deadline {
            bail!("no kernel thread {prefix}* appeared");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A kernel thread is a process as far as /proc is concerned.
fn find_thread(prefix: &str) -> Option<Pid> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        name.starts_with(prefix).then(|| Pid::from_raw(pid))?
    })
}
