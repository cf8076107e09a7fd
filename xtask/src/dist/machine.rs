//! The kinds of machines that there are packages for, and the build of a static binary for each.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::setup::Need;
use crate::{tool, workspace};

/// The profile of packed binaries; `Cargo.toml` says how it differs from a release.
const PROFILE: &str = "dist";

/// Returns the target directory of static builds. It is apart from the other one, so that no build waits for another.
pub(super) fn static_dir() -> PathBuf {
    workspace::target_dir().join("static")
}

/// One kind of machine.
pub(super) struct Machine {
    /// The name in `uname -m` and in rpm.
    pub(super) name: &'static str,
    /// The name in Debian.
    pub(super) debian: &'static str,
    /// The name of the compiler's target, with musl, so that the binary needs no library of the host.
    triple: &'static str,
    /// The program that compiles the C code of the TLS library, and links.
    compiler: &'static str,
    /// The emulator that runs the binary on another kind of machine.
    emulator: Option<&'static str>,
    pub(super) needs: &'static [Need],
}

impl Machine {
    pub(super) const NAMES: [&'static str; 2] = ["x86_64", "aarch64"];
    pub(super) const ALL: [Self; 2] = [
        Self {
            name: Self::NAMES[0],
            debian: "amd64",
            triple: "x86_64-unknown-linux-musl",
            compiler: "musl-gcc",
            emulator: None,
            needs: &[
                Need::RustTarget("x86_64-unknown-linux-musl"),
                Need::Executable { name: "musl-gcc", package: "musl-tools" },
            ],
        },
        Self {
            name: Self::NAMES[1],
            debian: "arm64",
            triple: "aarch64-unknown-linux-musl",
            // This compiler has the headers of another C library, of which the TLS library uses only types and memcpy.
            compiler: "aarch64-linux-gnu-gcc",
            emulator: Some("qemu-aarch64-static"),
            needs: &[
                Need::RustTarget("aarch64-unknown-linux-musl"),
                Need::Executable {
                    name: "aarch64-linux-gnu-gcc",
                    package: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
                },
                Need::Executable { name: "qemu-aarch64-static", package: "qemu-user-static" },
            ],
        },
    ];

    /// Returns the path at which cargo leaves the binary.
    pub(super) fn binary(&self) -> PathBuf {
        static_dir().join(self.triple).join(PROFILE).join("ratelimit")
    }

    pub(super) fn build(&self) -> Result<PathBuf> {
        eprintln!("dist: building for {}", self.triple);
        let mut cargo = tool::cargo();
        cargo.args([
            "build",
            "--locked",
            "--profile",
            PROFILE,
            "--package",
            "ratelimit-user",
            "--bin",
            "ratelimit",
        ]);
        cargo.args(["--target", self.triple]).arg("--target-dir").arg(static_dir());
        let name = self.triple.replace('-', "_");
        cargo.env(format!("CC_{name}"), self.compiler);
        if self.emulator.is_some() {
            cargo.env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), self.compiler);
        }
        tool::run(&mut cargo)?;
        Ok(self.binary())
    }

    /// Whether this machine is of this kind: only its packages can be installed here, and only its images can be run.
    pub(super) fn is_this_one(&self) -> bool {
        self.emulator.is_none()
    }

    /// Checks that the binary needs no library of the host, and runs.
    pub(super) fn check(&self, binary: &Path) -> Result<()> {
        let headers = tool::output(tool::command("readelf").arg("-lW").arg(binary))?;
        if headers.contains("INTERP") {
            bail!("{} needs a loader, so it is not static", binary.display());
        }
        let version = self.run(binary, &["--version"])?;
        let policy = workspace::root().join("packaging/etc/policy.toml");
        self.run(binary, &["check", &policy.to_string_lossy()])?;
        eprintln!("dist: {}, {}, static", version.trim(), self.name);
        Ok(())
    }

    /// Runs the binary, under an emulator if it is for another kind of machine, and returns its output.
    pub(super) fn run(&self, binary: &Path, words: &[&str]) -> Result<String> {
        match self.emulator {
            Some(emulator) => tool::output(tool::command(emulator).arg(binary).args(words)),
            None => tool::output(tool::command(binary).args(words)),
        }
    }
}
