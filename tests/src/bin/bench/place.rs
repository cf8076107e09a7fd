//! Where a thread runs: in which network namespace, on which CPU. Both belong to the thread, so what has to happen
//! somewhere else happens in a thread of its own.

use std::{
    fs::{self, File},
    os::fd::AsFd as _,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, LinkNameSpaceType, Pid, move_into_link_name_space, sched_setaffinity};

const HIGHEST_PRIORITY: i32 = -20;

/// Runs something in a network namespace and waits for it.
pub(crate) fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    in_thread(move || {
        enter(namespace)?;
        work()
    })
}

/// Moves the calling thread into a network namespace, for good.
pub(crate) fn enter(namespace: &str) -> Result<()> {
    let path = format!("/run/netns/{namespace}");
    let file = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("cannot enter the namespace {namespace}"))
}

/// Runs something in a thread of its own and waits for it.
pub(crate) fn in_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        scope.spawn(work).join().map_err(|_| anyhow!("a thread of the benchmark panicked"))?
    })
}

/// Keeps the calling thread on a CPU.
pub(crate) fn stay_on(cpu: usize) -> Result<()> {
    keep_on(None, cpu)
}

/// Keeps a thread, or the calling one, on a CPU, ahead of whatever else wants it: a compiler that happens to run on the
/// same one would otherwise take half of it.
pub(crate) fn keep_on(thread: Option<Pid>, cpu: usize) -> Result<()> {
    pin(thread, cpu)?;
    // On Linux this is the thread, in spite of the name.
    setpriority_process(thread, HIGHEST_PRIORITY).context("cannot raise the priority")
}

/// Keeps a thread on a CPU at its ordinary priority, which takes no root.
pub(crate) fn pin(thread: Option<Pid>, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(thread, &set).with_context(|| format!("cannot stay on CPU {cpu}"))
}

/// How long a thread has been running on a CPU.
pub(crate) fn ran_for(thread: Pid) -> Result<Duration> {
    let path = format!("/proc/{}/schedstat", thread.as_raw_pid());
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Ok(Duration::from_nanos(ns.with_context(|| format!("{path} has no time in it"))?))
}
