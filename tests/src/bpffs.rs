//! A BPF file system of one's own: pins of a test cannot meet those of another, or of the machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::netns::run;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A temporary directory with a BPF file system in it; both go with the value.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    /// Makes the directory and mounts the file system.
    pub fn new() -> Self {
        let unique =
            format!("ratelimit-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(unique);
        fs::create_dir_all(dir.join("bpf")).expect("a temporary directory");
        run(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(dir.join("bpf")));
        Self { dir }
    }

    /// The directory around the BPF file system, for ordinary files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A pin directory on the BPF file system.
    pub fn pin(&self) -> PathBuf {
        self.dir.join("bpf/ratelimit")
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Lazily: a daemon that is just being killed may still have it open.
        let _gone = Command::new("umount").arg("-l").arg(self.dir.join("bpf")).status();
        let _gone = fs::remove_dir_all(&self.dir);
    }
}
