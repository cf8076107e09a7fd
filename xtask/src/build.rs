//! `cargo xtask build`: builds the release binary. Other commands build their binaries here too.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::setup::{self, Install};
use crate::{tool, workspace};

pub(crate) fn run(install: Install) -> Result<()> {
    setup::ensure(&setup::KERNEL_BUILD, install)?;
    release(&Binary::RATELIMIT)?;
    let path = BuildProfile::Release.path_of(Binary::RATELIMIT.name);
    let size = path.metadata().with_context(|| format!("cargo built no {}", path.display()))?.len();
    let shown = path.strip_prefix(workspace::root()).unwrap_or(&path);
    println!("{} ({:.1} MB)", shown.display(), size as f64 / 1e6);
    Ok(())
}

/// A binary of the workspace and the package that has it.
pub(crate) struct Binary {
    package: &'static str,
    pub(crate) name: &'static str,
}

impl Binary {
    /// The limiter. Its build script compiles the kernel program and embeds it.
    pub(crate) const RATELIMIT: Self = Self { package: "ratelimit-user", name: "ratelimit" };
    /// The sender and receiver of real traffic.
    pub(crate) const TRAFFIC: Self = Self { package: "ratelimit-traffic", name: "traffic" };
    /// The measuring program.
    pub(crate) const BENCH: Self = Self { package: "ratelimit-tests", name: "bench" };
}

/// The profile of a build: `[profile.release]` and `[profile.demo]` of Cargo.toml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuildProfile {
    /// The profile of the binary that operators run and benchmarks measure.
    Release,
    /// The profile of the demonstration, which builds in half the time.
    Demo,
}

impl BuildProfile {
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Demo => "demo",
        }
    }

    /// Returns the path at which cargo leaves a binary.
    pub(crate) fn path_of(self, name: &str) -> PathBuf {
        workspace::target_dir().join(self.name()).join(name)
    }
}

pub(crate) fn release(binary: &Binary) -> Result<()> {
    with_features(binary, BuildProfile::Release, &[])
}

/// Builds one binary with features that a usual build does not have. Binaries are built one at a time: several packages together would ask for
/// other features of a dependency than each alone, and the dependency would be built again for the next command.
pub(crate) fn with_features(binary: &Binary, profile: BuildProfile, features: &[&str]) -> Result<()> {
    let mut cargo = tool::cargo();
    cargo.args(["build", "--profile", profile.name(), "--package", binary.package, "--bin", binary.name]);
    tool::run(cargo.args(["--features", &features.join(",")]))
}
