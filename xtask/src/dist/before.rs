//! The packages that `--check` upgrades from: this build under an earlier version, a file, or the packages of an earlier commit.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::machine::{self, Machine};
use super::release::Release;
use super::{deb, rpm, say};
use crate::{tool, workspace};

/// The packages that are installed before the upgrade.
pub(super) struct Before {
    pub(super) deb: PathBuf,
    pub(super) rpm: PathBuf,
}

impl Before {
    /// Packs this build under a version that is lower than its own.
    pub(super) fn of_this_build(dist: &Path, release: &Release) -> Result<Self> {
        let (machine, kept) = (&Machine::ALL[0], dist.join("check"));
        fs::create_dir_all(&kept)?;
        let stage = dist.join("work").join(machine.name);
        let older = Release { revision: "0.before".to_owned(), ..release.clone() };
        Ok(Self {
            deb: deb::pack(&stage, machine, release, "0~before", &kept)?,
            rpm: rpm::pack(&stage, machine, &older, &kept)?,
        })
    }

    /// Makes the packages of a commit with that commit's own `cargo xtask dist`, so that they have the unit and the scripts that were shipped then.
    /// They are made only once.
    pub(super) fn of_commit(commit: &str) -> Result<Self> {
        let mut name = tool::command("git");
        name.args(["rev-parse", "--verify", "--short", &format!("{commit}^{{commit}}")]);
        let name = tool::output(&mut name).with_context(|| {
            format!("{commit} is no commit of this repository; a shallow clone has few of them")
        })?;
        let checkout = workspace::target_dir().join("earlier").join(format!("{}-packages", name.trim()));
        let dist = checkout.join("target/dist");
        if !dist.join("SHA256SUMS").exists() {
            say(&format!("making the packages of commit {} (minutes)", name.trim()));
            check_out(commit, &checkout)?;
            let mut packages = tool::cargo();
            packages.current_dir(&checkout).env_remove("CARGO_TARGET_DIR");
            tool::run(packages.args(["xtask", "dist", "--only", Machine::ALL[0].name]))?;
        }
        Ok(Self { deb: file_of(&dist, ".deb")?, rpm: file_of(&dist, ".rpm")? })
    }
}

/// Clones a commit, with a copy of what cargo has built for packages here, so that dependencies that both commits have are not built again.
fn check_out(commit: &str, checkout: &Path) -> Result<()> {
    let _absent = fs::remove_dir_all(checkout);
    let (root, built) = (workspace::root(), checkout.join("target"));
    let mut clone = tool::command("git");
    clone.args(["clone", "--quiet", "--shared", "--no-checkout"]);
    tool::run(clone.arg(&root).arg(checkout))?;
    fs::create_dir_all(&built)?;
    tool::run(tool::command("cp").args(["-a", "--reflink=auto"]).arg(machine::static_dir()).arg(&built))?;
    // The sources are checked out last, so that they are newer than the builds: otherwise cargo would take builds of our own crates for those of the other commit.
    let mut sources = tool::command("git");
    tool::run(sources.current_dir(checkout).args(["checkout", "--quiet", "--detach", commit]))
}

/// Returns the only file of a directory with this ending.
pub(super) fn file_of(dist: &Path, ending: &str) -> Result<PathBuf> {
    let mut files = fs::read_dir(dist)
        .with_context(|| format!("cannot list {}", dist.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()));
    files
        .find(|path| path.to_string_lossy().ends_with(ending))
        .with_context(|| format!("no *{ending} in {}", dist.display()))
}
