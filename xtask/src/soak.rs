//! `cargo xtask soak`: floods two hosts in private namespaces while everything around their daemons fails, and counts every packet.
//!
//! Other builds take over and give back meanwhile: this commit with another layout of maps, this commit with another kernel program on the
//! same maps, and with `--earlier` builds of earlier commits.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::setup::{self, Install, Need};
use crate::{fuzz, tool, workspace};

/// A commit whose maps have the layout that maps have now, with another kernel program.
const SAME_LAYOUT: &str = "111097d";
/// A commit whose maps have another layout. It begins on empty maps where it finds those of another build.
const OTHER_LAYOUT: &str = "eb7b05a";

/// Builds of this commit that take over: what each is called, its feature, and words for its `run`.
const FEATURES: [(&str, &str, &str); 2] =
    [("another layout", "other-layout", ""), ("another program", "trace", " --trace=warn")];

/// What a daemon gets a clock of its own from.
const CLOCK: Need = Need::Executable { name: "faketime", package: "faketime" };
const SYSCTL: Need = Need::Executable { name: "sysctl", package: "procps" };

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long things happen: 2m is the short form, 1h the long one
    #[arg(long = "for", value_name = "TIME", default_value = "2m", value_parser = fuzz::seconds)]
    seconds: u32,
    /// Fixes what happens, in which order and for how long
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only this event; may be given several times. A wrong name is answered with all there are
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    only: Vec<String>,
    /// Also upgrade from, and downgrade to, builds of two earlier commits; building them takes minutes, once
    #[arg(long)]
    earlier: bool,
    /// Load a service and a host instead, and hold memory and times against docs/sizing.md: 10 000 connections that do not read on each
    /// listener, 1 M users, 10 M sources, 100 k blocks
    #[arg(long, conflicts_with_all = ["earlier", "only"])]
    load: bool,
}

pub(crate) fn run(options: &Options, install: Install) -> Result<()> {
    let needs = [&setup::KERNEL_BUILD[..], &setup::NAMESPACES, &setup::REDIS, &[CLOCK, SYSCTL]].concat();
    setup::ensure_as_root(&needs, install, "soak")?;
    eprintln!("soak: building");
    let dir = workspace::target_dir().join("soak");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut words = Vec::new();
    let features = if options.load { &[][..] } else { &FEATURES[..] };
    for &(name, feature, run) in features {
        let built = with_feature(&dir, Some(feature))?;
        words.extend(["--other".to_owned(), format!("{name}={}{run}", built.display())]);
    }
    if options.earlier {
        for (kind, commit) in [("--other", SAME_LAYOUT), ("--former", OTHER_LAYOUT)] {
            let built = of_commit(&dir, commit)?;
            words.extend([kind.to_owned(), format!("commit {commit}={}", built.display())]);
        }
    }
    // Last: the suites start what is left in the directory of the profile.
    let build = with_feature(&dir, None)?;
    for (package, name) in [("ratelimit-traffic", "traffic"), ("ratelimit-tests", "soak")] {
        tool::run(tool::cargo().args(["build", "--quiet", "--package", package, "--bin", name]))?;
    }
    let mut soak = tool::command(workspace::target_dir().join("debug/soak"));
    soak.arg("--build").arg(build).args(words).arg("--logs").arg(dir.join("logs"));
    soak.args(["--for", &options.seconds.to_string(), "--seed", &options.seed.to_string()]);
    soak.args(options.only.iter().flat_map(|event| ["--only", event]));
    soak.args(options.load.then_some("--load"));
    // Becomes it, so that the shell waits until it has cleaned up.
    let error = soak.exec();
    Err(error).context("cannot start target/debug/soak")
}

/// A build of this commit, put aside under a name of its own.
fn with_feature(dir: &Path, feature: Option<&str>) -> Result<PathBuf> {
    let mut cargo = tool::cargo();
    cargo.args(["build", "--quiet", "--package", "ratelimit-user", "--bin", "ratelimit"]);
    tool::run(cargo.args(["--features", feature.unwrap_or_default()]))?;
    put_aside(&workspace::target_dir().join("debug/ratelimit"), dir, feature.unwrap_or("plain"))
}

/// A build of an earlier commit, from the history of this repository.
fn of_commit(dir: &Path, commit: &str) -> Result<PathBuf> {
    let aside = dir.join(format!("ratelimit-{commit}"));
    if aside.exists() {
        return Ok(aside);
    }
    eprintln!("soak: building commit {commit}");
    let (sources, archive) = (dir.join(commit), dir.join(format!("{commit}.tar")));
    fs::create_dir_all(&sources).with_context(|| format!("cannot make {}", sources.display()))?;
    tool::run(tool::command("git").arg("archive").arg("--output").arg(&archive).arg(commit))
        .with_context(|| format!("commit {commit} is needed; a shallow clone does not have it"))?;
    tool::run(tool::command("tar").arg("-xf").arg(&archive).arg("-C").arg(&sources))?;
    let target = dir.join("target");
    let mut cargo = tool::cargo();
    cargo.current_dir(&sources).args([
        "build",
        "--quiet",
        "--package",
        "ratelimit-user",
        "--bin",
        "ratelimit",
    ]);
    tool::run(cargo.arg("--target-dir").arg(&target))?;
    put_aside(&target.join("debug/ratelimit"), dir, commit)
}

fn put_aside(built: &Path, dir: &Path, name: &str) -> Result<PathBuf> {
    let aside = dir.join(format!("ratelimit-{name}"));
    // Not over the old one: a daemon of another soak may run it.
    let _absent = fs::remove_file(&aside);
    fs::copy(built, &aside).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(aside)
}
