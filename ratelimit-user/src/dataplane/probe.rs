//! Checks what the host offers before anything is loaded, and reads its clocks. Nothing is changed.

use std::path::{Path, PathBuf};

use ratelimit_common::{abi::Clock, limit::gcra};
use rustix::thread::{CapabilitySet, capabilities};

use super::DataplaneError;

/// The oldest kernel that is tested, see `docs/kernels.md`. Multi-buffer XDP, which is used, came with 5.18.
pub const KERNEL_FLOOR: KernelRelease = KernelRelease(6, 1);

/// The file system magic of bpffs.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Major and minor number of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRelease(pub u32, pub u32);

impl KernelRelease {
    /// Parses a release string such as `6.1.0-18-cloud-amd64`.
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some(Self(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

/// Returns the release string of the running kernel.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Refuses kernels below the floor. A release that cannot be read is refused too.
pub fn require_kernel(release: &str) -> Result<KernelRelease, DataplaneError> {
    match KernelRelease::parse(release) {
        Some(found) if found >= KERNEL_FLOOR => Ok(found),
        _ => Err(DataplaneError::KernelTooOld {
            floor: (KERNEL_FLOOR.0, KERNEL_FLOOR.1),
            found: release.to_owned(),
        }),
    }
}

/// Refuses a process without the rights to work with XDP programs. `what` names the action in the error.
pub fn require_rights(what: &'static str) -> Result<(), DataplaneError> {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let missing: Vec<&str> = missing(held).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => {
            let uid = rustix::process::geteuid().as_raw();
            Err(DataplaneError::NoRights { what, uid, missing: missing.join(", ") })
        }
    }
}

/// Returns the capabilities for XDP programs that are not held. CAP_SYS_ADMIN includes the capabilities that were split off from it.
fn missing(held: CapabilitySet) -> impl Iterator<Item = &'static str> {
    let wanted = [
        (CapabilitySet::BPF | CapabilitySet::SYS_ADMIN, "CAP_BPF"),
        (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
        (CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN, "CAP_PERFMON"),
    ];
    wanted.into_iter().filter(move |(any, _)| !held.intersects(*any)).map(|(_, name)| name)
}

/// Refuses a pin directory that is not on a BPF file system.
pub fn require_bpffs(pin_dir: &Path) -> Result<(), DataplaneError> {
    // The directory itself is made later, so its nearest existing ancestor tells the file system.
    let existing = pin_dir.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    let stat = rustix::fs::statfs(existing)
        .map_err(|e| DataplaneError::io(format!("look at {}", existing.display()))(e.into()))?;
    if stat.f_type as u64 & 0xffff_ffff == BPF_FS_MAGIC {
        return Ok(());
    }
    let mount_point = if pin_dir.starts_with("/sys/fs/bpf") {
        PathBuf::from("/sys/fs/bpf")
    } else {
        pin_dir.parent().unwrap_or(pin_dir).to_owned()
    };
    Err(DataplaneError::NoBpfFs { path: pin_dir.to_owned(), mount_point })
}

/// Whether a directory is on a file system that does not outlive a reboot.
pub fn is_in_memory(directory: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    let kind = rustix::fs::statfs(directory).map(|stat| stat.f_type as u64 & 0xffff_ffff);
    kind.is_ok_and(|kind| [TMPFS, RAMFS].contains(&kind))
}

/// Returns how far the coarse clock can lag behind the precise one, in nanoseconds: a timer tick.
pub fn tick_ns() -> u64 {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64
}

/// Returns the number of CPUs that the program could ever run on.
pub fn possible_cpus() -> u32 {
    aya::util::nr_cpus().map_or(1, |cpus| cpus as u32)
}

/// Returns random words for the prefilter's hash.
pub fn random_secret() -> Result<[u64; 2], DataplaneError> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| DataplaneError::io("get random numbers")(error.into()))?;
    let (a, b) = bytes.split_at(8);
    Ok([a, b].map(|half| half.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte))))
}

/// Returns the host name of the system, with other characters than a name in the store may have replaced by `-`.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain: String = name
        .chars()
        .take(64)
        .map(|c| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' })
        .collect();
    if plain.is_empty() { "host".to_owned() } else { plain }
}

/// Returns the time in nanoseconds by the clock that the kernel program reads.
pub fn now_ns() -> u64 {
    now_by(Clock::Precise)
}

/// Returns the nanoseconds that the system was suspended since it started. The clock that the kernel program reads stands still in that time;
/// other clocks do not.
pub fn suspended_ns() -> u64 {
    let read = |clock| {
        let now = rustix::time::clock_gettime(clock);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    // In this order time that passes between the two readings makes the result smaller, never larger, so the largest of three tries is taken.
    let once =
        || read(rustix::time::ClockId::Boottime).saturating_sub(read(rustix::time::ClockId::Monotonic));
    (0..3).map(|_| once()).max().unwrap_or(0)
}

/// The longest time from compiling a policy until it is in force, on a machine that is not overloaded: 10 to 20 ms were measured for a
/// limit, 0.3 s for a hundred thousand prefixes.
const SWITCH_NS: u64 = 1_000_000_000;

/// Returns the time by which a policy that is compiled now is in force, as a time word.
pub fn switch_q8() -> u64 {
    gcra::time_q8(now_ns() + SWITCH_NS)
}

/// Returns the time in nanoseconds by one of the clocks that a kernel program can read.
pub fn now_by(clock: Clock) -> u64 {
    let now = rustix::time::clock_gettime(match clock {
        Clock::Precise => rustix::time::ClockId::Monotonic,
        Clock::Coarse => rustix::time::ClockId::MonotonicCoarse,
    });
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_and_the_old_right_stands_for_the_new_ones() {
        let words = |held: CapabilitySet| missing(held).collect::<Vec<_>>().join(" ");
        assert_eq!(words(CapabilitySet::empty()), "CAP_BPF CAP_NET_ADMIN CAP_PERFMON");
        assert_eq!(words(CapabilitySet::BPF | CapabilitySet::NET_ADMIN), "CAP_PERFMON");
        assert_eq!(words(CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::PERFMON), "");
        assert_eq!(words(CapabilitySet::SYS_ADMIN), "CAP_NET_ADMIN");
    }

    #[test]
    fn a_kernel_below_the_floor_is_refused_by_name() {
        let error = require_kernel("5.10.0-30-cloud-amd64").unwrap_err();
        assert_eq!(error.to_string(), "needs kernel 6.1 or newer, this is 5.10.0-30-cloud-amd64");
    }

    #[test]
    fn the_floor_itself_and_newer_major_versions_are_accepted() {
        assert!(require_kernel("6.0.19").is_err());
        assert_eq!(require_kernel("6.1.0-18-cloud-amd64").unwrap(), KernelRelease(6, 1));
        assert_eq!(require_kernel("10.0-rc1").unwrap(), KernelRelease(10, 0));
    }

    #[test]
    fn a_release_without_numbers_is_refused() {
        assert!(require_kernel("unknown").is_err());
        assert!(require_kernel("6").is_err());
    }

    #[test]
    fn a_pin_directory_on_an_ordinary_file_system_is_refused_with_the_mount_command() {
        let error = require_bpffs(Path::new("/proc/ratelimit")).unwrap_err().to_string();
        assert!(error.contains("no BPF file system at /proc/ratelimit"), "{error}");
        assert!(error.contains("mount -t bpf"), "{error}");
    }
}
