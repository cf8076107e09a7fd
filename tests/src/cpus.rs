//! The CPUs of this process, and threads that stay on one of them.

use rustix::{
    process::getpid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// The CPUs that this process may run on, whichever the calling thread stays on.
pub fn of_process() -> Vec<usize> {
    let ours = sched_getaffinity(Some(getpid())).expect("the CPUs of this process");
    (0..CpuSet::MAX_CPU).filter(|cpu| ours.is_set(*cpu)).collect()
}

/// Keeps the calling thread on a CPU.
pub fn stay_on(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).unwrap_or_else(|error| panic!("stay on CPU {cpu}: {error}"));
}
