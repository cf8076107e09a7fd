//! A group of processes that may have only so much memory, the kernel's on their behalf included: BPF maps count.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::netns::run;

/// A memory cgroup with a view of the hierarchy of its own, of whichever version the host has; both go with the value.
#[derive(Debug)]
pub struct MemoryCap {
    view: PathBuf,
    group: PathBuf,
}

impl MemoryCap {
    /// Makes one. `Err` in a container whose own processes are in the way: below such a group no other can be limited.
    pub fn new(dir: &Path, bytes: u64) -> io::Result<Self> {
        let view = dir.join("cgroup");
        fs::create_dir(&view)?;
        run(Command::new("mount").args(["-t", "cgroup2", "none"]).arg(&view));
        let controllers = fs::read_to_string(view.join("cgroup.controllers"))?;
        let unified = controllers.split_whitespace().any(|one| one == "memory");
        if !unified {
            run(Command::new("umount").arg(&view));
            run(Command::new("mount").args(["-t", "cgroup", "-o", "memory", "none"]).arg(&view));
        }
        let name = format!("ratelimit-test-{}", dir.file_name().unwrap_or_default().display());
        let cap = Self { group: view.join(name), view };
        if unified {
            fs::write(cap.view.join("cgroup.subtree_control"), "+memory")?;
        }
        fs::create_dir(&cap.group)?;
        let limit = if unified { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(cap.group.join(limit), bytes.to_string())?;
        Ok(cap)
    }

    /// The command, started as a member of the group.
    pub fn hold(&self, command: &Command) -> Command {
        let mut held = Command::new("sh");
        held.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.group.join("cgroup.procs"));
        held.arg(command.get_program()).args(command.get_args());
        held
    }
}

impl Drop for MemoryCap {
    fn drop(&mut self) {
        let _gone = fs::remove_dir(&self.group);
        let _gone = Command::new("umount").arg("-l").arg(&self.view).status();
    }
}
