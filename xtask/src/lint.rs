//! `cargo xtask lint`: checks formatting, clippy, where unsafe code may live, the words of the glossary, and links in comments.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::setup::{self, Install};
use crate::{comments, deny, structure, tool, type_names, words, workspace};

/// The files that may opt out of `unsafe_code`, which the workspace denies, with an attribute.
const MAY_OPT_OUT: [&str; 14] = [
    "ratelimit-common/src/abi/layout.rs",
    // Two instructions that neither the compiler nor the verifier sees through.
    "ratelimit-ebpf/src/forget.rs",
    // Variables at addresses known when the program is loaded.
    "ratelimit-ebpf/src/globals.rs",
    "ratelimit-ebpf/src/frame.rs",
    // Tail calls, and notes for the next program.
    "ratelimit-ebpf/src/jumps.rs",
    "ratelimit-ebpf/src/kernel_tables.rs",
    // Sockets on loan.
    "ratelimit-ebpf/src/sockets.rs",
    // Exported functions that take addresses.
    "ratelimit-ebpf/src/stages.rs",
    // The sampler of each CPU, and an exported function.
    "ratelimit-ebpf/src/samples.rs",
    // Only in builds with the feature `trace`.
    "ratelimit-ebpf/src/trace.rs",
    "ratelimit-user/src/dataplane/batch.rs",
    // The kernel side of the benchmark.
    "tests/rig/src/packet.rs",
    "tests/rig/src/tables.rs",
    // System calls as an intruder makes them.
    "tests/src/bin/taken-over.rs",
];

pub(crate) fn run(install: Install) -> Result<()> {
    setup::ensure(&[&setup::KERNEL_BUILD[..], &setup::LINTERS].concat(), install)?;
    check_all_but_host_crates()?;
    eprintln!("lint: clippy, host crates");
    tool::run(tool::cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    eprintln!("lint: links in comments");
    check_links()
}

/// Checks that every link in a comment has a target, private items included. It is no part of `cargo xtask test`, which compiles dependencies to run them:
/// rustdoc needs them compiled for checking only, as clippy does.
fn check_links() -> Result<()> {
    let mut cargo = tool::cargo();
    cargo.env("RUSTDOCFLAGS", "-D warnings");
    tool::run(cargo.args(["doc", "--workspace", "--no-deps", "--document-private-items"]))
}

/// Runs the checks that are no part of a build by clippy (`compile.rs`), without the setup.
pub(crate) fn check_all_but_host_crates() -> Result<()> {
    eprintln!("lint: formatting");
    tool::run(tool::cargo().args(["fmt", "--all", "--check"]))
        .context("some file is not formatted; `cargo fmt --all` formats it")?;
    eprintln!("lint: places of unsafe code");
    check_unsafe_places(&workspace::root())?;
    eprintln!("lint: words");
    words::check(&workspace::root())?;
    eprintln!("lint: comments");
    comments::check(&workspace::root())?;
    eprintln!("lint: names of types");
    type_names::check(&workspace::root())?;
    eprintln!("lint: directions of imports");
    structure::check(&workspace::root())?;
    eprintln!("lint: licences and sources of crates");
    deny::check_if_here()?;
    eprintln!("lint: clippy, kernel programs");
    clippy_kernel_program()
}

/// Runs clippy over the kernel program, in a pass of its own: on the host the panic handler would collide with that of std. `core` is
/// compiled from source, which a stable compiler refuses unless RUSTC_BOOTSTRAP is set. A separate target directory keeps that
/// variable from invalidating the builds of the host pass.
fn clippy_kernel_program() -> Result<()> {
    let mut cargo = tool::cargo();
    cargo.env("RUSTC_BOOTSTRAP", "1");
    cargo.args([
        "clippy",
        "--package",
        "ratelimit-ebpf",
        "--package",
        "ratelimit-rig",
        "--bins",
        "--release",
    ]);
    cargo.args(["--target", "bpfel-unknown-none", "-Z", "build-std=core"]);
    cargo.arg("--target-dir").arg(workspace::target_dir().join("bpf"));
    tool::run(cargo.args(["--", "-D", "warnings"]))
}

fn check_unsafe_places(root: &Path) -> Result<()> {
    let mut offenders = Vec::new();
    for path in rust_files(root)? {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let relative = path.strip_prefix(root).unwrap_or(&path);
        let may = MAY_OPT_OUT.iter().any(|allowed| relative == Path::new(allowed));
        offenders.extend(
            (!may)
                .then(|| opt_outs(&text))
                .into_iter()
                .flatten()
                .map(|line| format!("{}:{line}", relative.display())),
        );
    }
    if !offenders.is_empty() {
        bail!(
            "unsafe code is let in at {}; only these files may: {}",
            offenders.join(", "),
            MAY_OPT_OUT.join(", ")
        );
    }
    Ok(())
}

/// Returns the line numbers of attributes that permit unsafe code. An attribute starts a line and may span several.
fn opt_outs(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        if !line.trim_start().starts_with('#') {
            continue;
        }
        let mut attribute = line.to_owned();
        while attribute.matches('[').count() > attribute.matches(']').count() {
            let Some((more, _)) = lines.next() else { break };
            attribute.push_str(more);
        }
        if attribute.contains("unsafe_code") && !attribute.contains("forbid(") && !attribute.contains("deny(")
        {
            found.push(number);
        }
    }
    found
}

fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let files = workspace::files(root)?;
    Ok(files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_that_lets_unsafe_in_is_found_by_line() {
        assert_eq!(opt_outs("//! x\n#![expect(unsafe_code, reason = \"y\")]\n"), [2]);
        assert_eq!(opt_outs("#[allow(unsafe_code)]\nfn f() {}\n"), [1]);
        assert_eq!(opt_outs("    #[cfg_attr(not(test), warn(unsafe_code))]\n"), [1]);
        assert_eq!(opt_outs("\n#![expect(\n    unsafe_code,\n    reason = \"y\"\n)]\n"), [2]);
    }

    #[test]
    fn forbidding_unsafe_or_writing_about_it_is_fine() {
        assert!(
            opt_outs("#![forbid(unsafe_code)]\n// the unsafe_code lint\nlet unsafe_code = 1;\n").is_empty()
        );
    }

    #[test]
    fn the_files_that_may_are_the_only_ones_in_this_repository() {
        check_unsafe_places(&workspace::root()).unwrap();
    }
}
