//! `cargo xtask soak`: floods two hosts in private namespaces while everything around their daemons fails, and counts every packet.
//!
//! Other builds take over and give back meanwhile: this commit with another kernel program on the same maps, and with `--earlier` builds of
//! earlier commits.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::setup::{self, Install, Need};
use crate::{earlier, fuzz, tool, workspace};

/// The program that gives a daemon a clock of its own.
pub(crate) const CLOCK: Need = Need::Executable { name: "faketime", package: "faketime" };
pub(crate) const SYSCTL: Need = Need::Executable { name: "sysctl", package: "procps" };

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long things happen: 2m is the short form, 1h the long one. Every kind of event happens, if it takes longer
    #[arg(long = "for", value_name = "TIME", default_value = "2m", value_parser = fuzz::seconds)]
    seconds: u32,
    /// Fixes what happens, in which order and for how long
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only this event; may be given several times. A wrong name is answered with all there are
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    only: Vec<String>,
    /// Also upgrade from, and downgrade to, builds of three earlier commits; building them takes minutes, once
    #[arg(long)]
    earlier: bool,
    /// Load a service and a host instead, and hold memory and times against docs/sizing.md: 10 000 connections that do not read on each
    /// listener (connections), 1 M users (users), 10 M sources (sources), 100 k blocks (blocks); all of them, or those that are named
    #[arg(long, value_name = "WITH", num_args = 0.., value_delimiter = ',', conflicts_with_all = ["earlier", "only"])]
    load: Option<Vec<String>>,
}

pub(crate) fn run(options: &Options, install: Install) -> Result<()> {
    let needs = [&setup::KERNEL_BUILD[..], &setup::NAMESPACES, &setup::REDIS, &[CLOCK, SYSCTL]].concat();
    setup::ensure_as_root(&needs, install, "soak")?;
    eprintln!("soak: building");
    let mut words = Vec::new();
    if options.earlier {
        for (option, commit) in [
            ("--other", earlier::OTHER_LAYOUT),
            ("--other", earlier::WITH_LANE),
            ("--same-layout", earlier::SAME_LAYOUT),
        ] {
            let built = earlier::build(commit)?;
            words.extend([option.to_owned(), format!("commit {commit}={}", built.display())]);
        }
    }
    if options.load.is_none() {
        let traced =
            earlier::build_aside(&workspace::root(), "traced", &["--features", "ratelimit-user/trace"])?;
        words.extend([
            "--same-layout".to_owned(),
            format!("another program={} --trace=warn", traced.display()),
        ]);
    }
    // It is built like the suites, so that neither builds dependencies again.
    let mut cargo = tool::cargo();
    cargo.args([
        "build",
        "--quiet",
        "--workspace",
        "--bin",
        "ratelimit",
        "--bin",
        "traffic",
        "--bin",
        "soak",
    ]);
    tool::run(&mut cargo)?;
    let debug = workspace::target_dir().join("debug");
    let mut soak = tool::command(debug.join("soak"));
    soak.arg("--build").arg(copied(&debug.join("ratelimit"))?).args(words);
    soak.arg("--logs").arg(workspace::target_dir().join("soak/logs"));
    soak.args(["--for", &options.seconds.to_string(), "--seed", &options.seed.to_string()]);
    soak.args(options.only.iter().flat_map(|event| ["--only", event]));
    if let Some(loads) = &options.load {
        soak.arg("--load").args(loads);
    }
    // This process becomes the soak program, so that the shell waits until it has cleaned up.
    let error = soak.exec();
    Err(error).context("cannot start target/debug/soak")
}

/// Makes a copy of a binary that later builds do not overwrite.
fn copied(built: &Path) -> Result<PathBuf> {
    let dir = workspace::target_dir().join("soak");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let copy = dir.join("ratelimit");
    // The old copy is removed, not overwritten: a daemon of another soak may run it.
    let _absent = fs::remove_file(&copy);
    fs::copy(built, &copy).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(copy)
}
