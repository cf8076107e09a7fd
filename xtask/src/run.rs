//! `cargo xtask run`: the limiter on an interface you name, or a demonstration that touches none of yours.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::build::{Binary, BuildProfile};
use crate::demo::{self, policy};
use crate::setup::{self, Install, Need};
use crate::{build, tool, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run on this interface, in the foreground; may be given several times. Without it: the demonstration
    #[arg(long, value_name = "NAME")]
    iface: Vec<String>,
    /// The policy to enforce, instead of a small built-in one
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// How long the attack of the demonstration lasts
    #[arg(long, value_name = "N", default_value_t = 6, conflicts_with = "iface", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Print each verdict with source, service and reason: warn prints frames that are dropped, info also those that are answered, debug all
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "debug")]
    trace: Option<String>,
}

pub(crate) fn run(options: &Options, install: Install) -> Result<()> {
    let on_interface = !options.iface.is_empty();
    let needs = if on_interface { &[Need::BpfFileSystem][..] } else { &setup::NAMESPACES };
    setup::ensure_as_root(&[&setup::KERNEL_BUILD, needs].concat(), install, "run")?;
    // The path is checked early, because a wrong name should not cost the minutes of a build. It is made absolute, because children
    // run in the repository, not where the command was typed.
    let policy = match &options.policy {
        Some(path) => {
            Some(path.canonicalize().with_context(|| format!("cannot find the policy {}", path.display()))?)
        }
        None => None,
    };
    eprintln!("run: building");
    let features = if options.trace.is_some() { &["trace"][..] } else { &[] };
    let profile = profile(on_interface);
    build::with_features(&Binary::RATELIMIT, profile, features)?;
    if on_interface {
        return on_interfaces(&options.iface, policy, options.trace.as_deref());
    }
    build::with_features(&Binary::TRAFFIC, profile, &[])?;
    demo::run(profile, policy, Duration::from_secs(options.seconds), options.trace.as_deref())
}

/// Returns the profile to build: that of operators for an interface, and also for the demonstration if it was built before, because less is built then.
fn profile(on_interface: bool) -> BuildProfile {
    if on_interface || BuildProfile::Release.path_of(Binary::RATELIMIT.name).exists() {
        BuildProfile::Release
    } else {
        BuildProfile::Demo
    }
}

/// Replaces this process by the daemon, so that every signal reaches it and its exit code is ours.
fn on_interfaces(interfaces: &[String], policy: Option<PathBuf>, trace: Option<&str>) -> Result<()> {
    let policy = match policy {
        Some(path) => path,
        None => write_built_in_policy()?,
    };
    let mut daemon = tool::command(BuildProfile::Release.path_of("ratelimit"));
    daemon.arg("run").arg("--policy").arg(policy);
    for interface in interfaces {
        daemon.args(["--iface", interface]);
    }
    if let Some(level) = trace {
        daemon.arg(format!("--trace={level}"));
    }
    eprintln!("run: starting on {}", interfaces.join(", "));
    let error = daemon.exec();
    Err(error).context("cannot start target/release/ratelimit")
}

/// Writes the built-in policy into the target directory rather than a temporary one, so that it can be edited: the daemon reads it again on SIGHUP.
fn write_built_in_policy() -> Result<PathBuf> {
    let path = workspace::target_dir().join("built-in-policy.toml");
    fs::write(&path, policy::BUILT_IN).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("run: no --policy given; using a small built-in one, {}:", path.display());
    for line in policy::BUILT_IN.lines() {
        eprintln!("    {line}");
    }
    Ok(path)
}
