//! Finds the process that holds the lock of a state directory when no daemon answers on the control socket.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use rustix::fs::{major, minor};

/// The file in a state directory that the running daemon keeps locked.
pub(crate) const LOCK: &str = "lock";

/// Returns the process that holds a state directory, if the kernel shows it. The lock is not tried, because that could keep out a daemon that starts just then.
pub(super) fn holder(state: &Path) -> Option<u32> {
    let file = fs::metadata(state.join(LOCK)).ok()?;
    let place = format!("{:02x}:{:02x}:{}", major(file.dev()), minor(file.dev()), file.ino());
    find(&fs::read_to_string("/proc/locks").ok()?, &place)
}

/// Finds the process that has locked a file in the kernel's list of locks. The kernel shows 0 for processes that this one may not see.
fn find(locks: &str, place: &str) -> Option<u32> {
    let pid = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, "WRITE", pid, at, ..] if at == place => pid.parse().ok().filter(|pid| *pid != 0),
        _ => None,
    };
    locks.lines().find_map(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_who_has_locked_the_file_is_found_and_nobody_else() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:00:12 0 EOF\n\
                     2: FLOCK  ADVISORY  READ 8 fe:00:12 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 fe:00:12 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 10 fe:00:123 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 11 fe:00:12 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE 0 fe:00:13 0 EOF\n";
        assert_eq!(find(locks, "fe:00:12"), Some(11));
        assert_eq!((find(locks, "fe:00:13"), find(locks, "fe:01:12"), find("x\n\n", "")), (None, None, None));
    }
}
