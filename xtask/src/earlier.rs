//! Builds daemons of earlier commits, with which upgrades and downgrades are tested.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{tool, workspace};

/// The last commit whose maps had layout 6: before the express lane, with another kernel program. `cargo xtask test` upgrades from it and
/// goes back to it. Move it on when its dependencies are so far from today's that building it takes minutes.
pub(crate) const OTHER_LAYOUT: &str = "9c22607";
/// A commit with the express lane, whose maps had layout 7.
pub(crate) const WITH_LANE: &str = "202f430";
/// A commit whose maps have today's layout, and whose kernel program is another one: its daemon adopts the maps that it finds.
pub(crate) const SAME_LAYOUT: &str = "3ec06f5";

/// Builds the daemon of an earlier commit, from the history of this repository, unless it is built already.
pub(crate) fn build(commit: &str) -> Result<PathBuf> {
    let built = aside(commit);
    if built.exists() {
        return Ok(built);
    }
    eprintln!("building commit {commit}");
    let (sources, archive) = (dir().join(format!("{commit}-sources")), dir().join(format!("{commit}.tar")));
    fs::create_dir_all(&sources).with_context(|| format!("cannot make {}", sources.display()))?;
    tool::run(tool::command("git").arg("archive").arg("--output").arg(&archive).arg(commit))
        .with_context(|| format!("commit {commit} is needed; a shallow clone does not have it"))?;
    tool::run(tool::command("tar").arg("-xf").arg(&archive).arg("-C").arg(&sources))?;
    rename_version(&sources, commit)?;
    share_flags(&sources)?;
    build_aside(&sources, commit, &[])
}

/// Builds `ratelimit` from a source tree and leaves it under a name of its own; the suites start the one that is in the directory of the
/// profile. Everything else is built as for the whole workspace and where that is built, so that dependencies are built once.
pub(crate) fn build_aside(sources: &Path, name: &str, words: &[&str]) -> Result<PathBuf> {
    let mut cargo = tool::cargo();
    cargo.current_dir(sources).args(["build", "--quiet", "--workspace", "--bin", "ratelimit"]).args(words);
    // The directory is not set by a variable, because the build script's own cargo would see it.
    cargo.arg("--config").arg(format!("build.build-dir={:?}", workspace::target_dir()));
    cargo.arg("--target-dir").arg(dir().join(name));
    tool::run(&mut cargo)?;
    Ok(aside(name))
}

/// Returns the path of a build with this name.
pub(crate) fn aside(name: &str) -> PathBuf {
    dir().join(name).join("debug").join("ratelimit")
}

/// Returns the directory of the sources and builds that take over from this commit's.
fn dir() -> PathBuf {
    workspace::target_dir().join("earlier")
}

/// Gives the packages of a source tree a version of their own. Cargo tells packages of two trees apart by name, version and place below the
/// tree, so with equal versions it would take the build of one commit for that of another.
fn rename_version(sources: &Path, commit: &str) -> Result<()> {
    let own = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    let number = u64::from_str_radix(commit, 16).with_context(|| format!("{commit} is no commit"))?;
    replace(&sources.join("Cargo.toml"), &own, &format!("version = \"0.0.{number}\""))
}

/// Has the kernel programs of a source tree compiled with the flags that this checkout's have. Otherwise `core` and the crates of aya are compiled once
/// more for them, because the flags name the tree whose paths are to be left out of the object.
fn share_flags(sources: &Path) -> Result<()> {
    let own = "format!(\"--remap-path-prefix={}=.\", workspace.display())";
    let ours = format!("{:?}.into()", format!("--remap-path-prefix={}=.", workspace::root().display()));
    replace(&sources.join("ratelimit-ebpf").join("object.rs"), own, &ours)
}

/// Replaces a text in a file, where it is found first.
fn replace(file: &Path, text: &str, by: &str) -> Result<()> {
    let found = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    fs::write(file, found.replacen(text, by, 1)).with_context(|| format!("cannot write {}", file.display()))
}
