//! Makes the package for Fedora and its relatives.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::machine::Machine;
use super::release::Release;
use crate::{tool, workspace};

/// Packs the tree as it is, because the specification compiles nothing, and returns the path of the package.
pub(super) fn pack(stage: &Path, machine: &Machine, release: &Release, into: &Path) -> Result<PathBuf> {
    eprintln!("dist: ratelimit-{}-{}.{}.rpm", release.version, release.revision, machine.name);
    let top = stage.with_file_name(format!("rpm-{}", machine.name));
    let define = |name: &str, value: &str| ["--define".to_owned(), format!("{name} {value}")];
    let mut pack = tool::command("rpmbuild");
    pack.args(["-bb", "--quiet", "--target", &format!("{}-linux", machine.name)]);
    pack.args(define("_topdir", &top.to_string_lossy()));
    pack.args(define("stage", &stage.to_string_lossy()));
    pack.args(define("ratelimit_version", &release.version));
    pack.args(define("ratelimit_revision", &release.revision));
    pack.arg(workspace::root().join("packaging/rpm/ratelimit.spec"));
    tool::output(pack.env("SOURCE_DATE_EPOCH", &release.epoch))?;
    let made = top.join("RPMS").join(machine.name);
    let mut packed = fs::read_dir(&made).with_context(|| format!("rpmbuild made no {}", made.display()))?;
    let path = packed.next().with_context(|| format!("{} is empty", made.display()))??.path();
    let file = into.join(path.file_name().unwrap_or_default());
    fs::rename(&path, &file)?;
    let files = tool::output(tool::command("rpm").args(["-qlp", "--nosignature"]).arg(&file))?;
    anyhow::ensure!(files.lines().any(|line| line == "/usr/bin/ratelimit"), "the rpm has no binary: {files}");
    Ok(file)
}
