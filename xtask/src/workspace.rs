//! Paths: the repository, the target directory, and the tools of this checkout.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};

/// The directories of the repository that people write in, without the target directory.
const WRITTEN: [&str; 6] = ["docs", "ratelimit-common", "ratelimit-ebpf", "ratelimit-user", "tests", "xtask"];

/// Returns the path of the repository. `cargo run` tells where xtask's manifest is; the compiled-in path is for running the binary by hand.
pub(crate) fn root() -> PathBuf {
    let manifest_dir =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest_dir.parent().map_or_else(|| manifest_dir.clone(), PathBuf::from)
}

/// Returns every file that people write, in order: those at the top, and those in the directories of the members and of the documentation.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut dirs: Vec<PathBuf> = WRITTEN.map(|name| root.join(name)).into();
    dirs.push(root.to_owned());
    while let Some(dir) = dirs.pop() {
        let entries = fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_file() {
                found.push(path);
            } else if path.is_dir() && dir != root {
                dirs.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Returns the directory of executables that are unpacked for this checkout only, so that they are not installed system-wide.
pub(crate) fn tools_dir() -> PathBuf {
    target_dir().join("tools")
}

/// Returns the directory in which `cargo install` puts executables.
pub(crate) fn cargo_bin_dir() -> Option<PathBuf> {
    let cargo_home = env::var_os("CARGO_INSTALL_ROOT")
        .or_else(|| env::var_os("CARGO_HOME"))
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))?;
    Some(cargo_home.join("bin"))
}
