//! Recognises kernels on which two programs may interleave on one CPU.
//!
//! Per-CPU state (the tail-call context, shares of totals, counters, budgets) needs no locks, because a program ends before the next one
//! starts on a CPU. A PREEMPT_RT kernel may run another task in between; older ones hold a lock of the CPU meanwhile, so that the other
//! program waits. Since 6.18, and in 6.12 since 6.12.57, the kernel has this lock only if it was built with it.

use std::fs;

use super::probe::KernelRelease;

/// The first long-term release that may be without the lock.
const MAY_LACK_LOCK: KernelRelease = KernelRelease(6, 12);
const LOCK: &str = "CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y";

/// Whether programs may interleave on the running kernel.
pub fn interleaves(release: &str) -> bool {
    let realtime = fs::read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1");
    realtime && may_interleave(release, fs::read_to_string(format!("/boot/config-{release}")).ok().as_deref())
}

/// Whether programs may interleave on a PREEMPT_RT kernel of this release. `config` is the configuration of the kernel, if it can be read.
fn may_interleave(release: &str, config: Option<&str>) -> bool {
    let locked = config.is_some_and(|config| config.lines().any(|line| line == LOCK));
    KernelRelease::parse(release).is_none_or(|release| release >= MAY_LACK_LOCK) && !locked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_interleave_on_newer_realtime_kernels_that_were_built_without_the_lock() {
        let with = Some("CONFIG_PREEMPT_RT=y\nCONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y\n");
        let without = Some("CONFIG_PREEMPT_RT=y\n# CONFIG_PREEMPT_RT_NEEDS_BH_LOCK is not set\n");
        for (release, config, expected) in [
            ("5.15.0-rt17", None, false),
            ("6.1.0-18-rt-amd64", without, false),
            ("6.12.48-rt-amd64", None, true),
            ("6.12.60-rt-amd64", with, false),
            ("6.18.0-rt", without, true),
            ("unknown", None, true),
        ] {
            assert_eq!(may_interleave(release, config), expected, "{release}");
        }
    }
}
