//! Finds the bpf-linker that matches the compiler.
//!
//! rustc hands bpf-linker LLVM bitcode, and bpf-linker loads the LLVM that ships inside the Rust toolchain. A linker
//! built for another LLVM major fails late and obscurely, so the match is made before the build.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::setup::{Step, quoted};
use crate::tool;

/// The version of bpf-linker that is installed. Later versions link a system LLVM and fail on machines that have none.
const VERSION: &str = "0.10.4";
/// The LLVM version that `cargo install bpf-linker` builds for by default.
const DEFAULT_LLVM: u32 = 22;
const SUPPORTED_LLVM: std::ops::RangeInclusive<u32> = 20..=22;

/// Without optimisation bpf-linker is built in less than half of the time. It links as fast: nearly all of its work is done in LLVM, which the
/// Rust toolchain brings along optimised.
const UNOPTIMISED: &str = "--config profile.release.opt-level=0";

/// Returns the step that makes bpf-linker match the active compiler; `None` if it matches already.
pub(crate) fn missing() -> Result<Option<Step>> {
    let about_compiler = tool::output(tool::command("rustc").arg("-vV"))?;
    let llvm = llvm_major(&about_compiler)?;
    let found = tool::find("bpf-linker");
    if found.as_deref().is_some_and(|path| is_ours(path) && built_for(path) == llvm) {
        return Ok(None);
    }
    Ok(Some(install_step(llvm)?))
}

fn is_ours(path: &Path) -> bool {
    tool::output(tool::command(path).arg("--version")).is_ok_and(|said| says_our_version(&said))
}

fn says_our_version(version_output: &str) -> bool {
    version_output.split_whitespace().any(|word| word == VERSION)
}

/// Returns the LLVM version that a bpf-linker was built for. bpf-linker does not tell it, so our install leaves a note beside the
/// executable. Without a note somebody else installed it, most likely with the default features.
fn built_for(path: &Path) -> u32 {
    fs::read_to_string(stamp(path)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_LLVM)
}

fn stamp(path: &Path) -> PathBuf {
    path.with_file_name(".bpf-linker-llvm")
}

fn install_step(llvm: u32) -> Result<Step> {
    if !SUPPORTED_LLVM.contains(&llvm) {
        bail!(
            "the active rustc uses LLVM {llvm}; bpf-linker {VERSION} works with LLVM {} to {}: \
             select such a toolchain, for example with `rustup default 1.95.0`",
            SUPPORTED_LLVM.start(),
            SUPPORTED_LLVM.end()
        );
    }
    let bin_dir = crate::workspace::cargo_bin_dir()
        .context("neither CARGO_HOME nor HOME is set; cargo install needs one of them to place bpf-linker")?;
    let features = match llvm {
        DEFAULT_LLVM => String::new(),
        other => format!(" --no-default-features --features llvm-{other},rust-llvm-{other}"),
    };
    Ok(Step {
        does: format!("installing bpf-linker {VERSION} for LLVM {llvm} (about 40 s)"),
        // --force: the version that is there, if any, is not the one that is needed.
        command: format!(
            "cargo install bpf-linker --version {VERSION} --locked --force {UNOPTIMISED}{features} && echo {llvm} > {}",
            quoted(&stamp(&bin_dir.join("bpf-linker")))
        ),
    })
}

fn llvm_major(about_compiler: &str) -> Result<u32> {
    let version = about_compiler
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version:"))
        .with_context(|| format!("`rustc -vV` names no LLVM version, it says: {about_compiler}"))?
        .trim();
    version.split('.').next().and_then(|major| major.parse().ok()).with_context(|| {
        format!("`rustc -vV` names LLVM version {version:?}; expected a number such as 22.1.2")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUSTC: &str =
        "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nrelease: 1.95.0\nLLVM version: 22.1.2\n";

    #[test]
    fn the_llvm_major_is_read_from_the_verbose_version() {
        assert_eq!(llvm_major(RUSTC).unwrap(), 22);
        assert_eq!(llvm_major("LLVM version: 21\n").unwrap(), 21);
    }

    #[test]
    fn a_compiler_without_a_usable_llvm_version_is_quoted_in_the_error() {
        assert!(
            llvm_major("rustc 1.0 (cranelift)").unwrap_err().to_string().contains("rustc 1.0 (cranelift)")
        );
        assert!(llvm_major("LLVM version: trunk").unwrap_err().to_string().contains("\"trunk\""));
    }

    #[test]
    fn the_default_llvm_needs_no_features_and_the_others_name_theirs() {
        let commands = [20, 21, 22].map(|llvm| install_step(llvm).unwrap().command);
        assert!(
            commands[0].contains("--no-default-features --features llvm-20,rust-llvm-20 "),
            "{}",
            commands[0]
        );
        assert!(
            commands[1].contains("--no-default-features --features llvm-21,rust-llvm-21 "),
            "{}",
            commands[1]
        );
        assert!(!commands[2].contains("features"), "{}", commands[2]);
    }

    #[test]
    fn an_llvm_that_bpf_linker_does_not_know_is_refused_with_the_range_that_works() {
        let said = install_step(23).unwrap_err().to_string();
        assert!(said.contains("uses LLVM 23") && said.contains("LLVM 20 to 22"), "{said}");
    }

    #[test]
    fn only_the_pinned_version_counts_as_installed() {
        assert!(says_our_version("bpf-linker 0.10.4\n"));
        assert!(!says_our_version("bpf-linker 0.10.45\n"));
        assert!(!says_our_version("bpf-linker 0.13.0\n"));
    }
}
