//! What the guests start from: an initramfs with busybox, our statically linked suites and the binary.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::console;
use crate::{tool, workspace};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The test program whose modules are the suites: it loads the kernel program.
const PROGRAM: &str = "packets";
/// Suites that load the program and need nothing a guest lacks: no namespaces, no other programs.
pub(super) const SUITES: [&str; 7] =
    ["object", "verdicts", "differential", "prefilter", "cpus", "leases", "samples"];

/// Compiles everything and packs it; returns the initramfs.
pub(super) fn build(suites: &[&str]) -> Result<PathBuf> {
    eprintln!("vm: building the suites, statically linked");
    let built = cargo(["test", "--no-run", "--package", "ratelimit-tests", "--test", PROGRAM])?;
    let tests = executable(&built, PROGRAM, "test")?;
    let built = cargo(["build", "--package", "ratelimit-user", "--bin", "ratelimit"])?;
    let daemon = executable(&built, "ratelimit", "bin")?;
    pack(&[(PROGRAM, tests), ("ratelimit", daemon)], suites)
}

/// The suites for this machine, as `cargo xtask test` builds them.
pub(super) fn suites_of_this_machine() -> Result<PathBuf> {
    let mut cargo = tool::cargo();
    cargo.args(["test", "--no-run", "--package", "ratelimit-tests", "--test", PROGRAM]);
    executable(&tool::output(cargo.args(["--message-format", "json-render-diagnostics"]))?, PROGRAM, "test")
}

/// A target directory of its own: with other flags everything is compiled anew.
fn cargo<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<String> {
    let mut cargo = tool::cargo();
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static").env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.args(args).args(["--target", TARGET, "--message-format", "json-render-diagnostics"]);
    cargo.arg("--target-dir").arg(super::dir().join("cargo"));
    tool::output(&mut cargo)
}

/// The executable of this name and kind in what cargo reports with `--message-format json`.
fn executable(messages: &str, name: &str, kind: &str) -> Result<PathBuf> {
    let mut found = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let target = &message["target"];
        let fits = target["name"] == name && target["kind"][0] == kind;
        fits.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    });
    found.next_back().with_context(|| format!("cargo did not say where it put the {kind} {name}"))
}

fn pack(executables: &[(&str, PathBuf)], suites: &[&str]) -> Result<PathBuf> {
    let root = super::dir().join("root");
    let _nothing_there = fs::remove_dir_all(&root);
    for part in ["bin", "dev", "proc", "sys", "tmp"] {
        let part = root.join(part);
        fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
    }
    for (name, path) in executables {
        // Without symbols: 30 MB become 4, and the guest unpacks them in memory.
        tool::output(tool::command("strip").arg("-o").arg(root.join("bin").join(name)).arg(path))?;
    }
    let busybox = tool::find("busybox").context("busybox is not here")?;
    if !is_static(&busybox)? {
        bail!(
            "{} is not statically linked; install the package busybox-static in its place",
            busybox.display()
        );
    }
    fs::copy(&busybox, root.join("bin/busybox"))?;
    let init = root.join("init");
    fs::write(&init, console::init_script(PROGRAM, suites, &workspace::root().join("tests")))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let image = super::dir().join("initramfs");
    let archive = fs::File::create(&image).with_context(|| format!("cannot write {}", image.display()))?;
    // Not compressed: unpacking is what an emulated guest is slow at.
    tool::run(
        tool::command("sh")
            .args(["-euc", "find . | cpio --create --format=newc --quiet --owner=0:0"])
            .current_dir(&root)
            .stdout(archive),
    )?;
    Ok(image)
}

/// A dynamically linked executable names its loader.
fn is_static(path: &Path) -> Result<bool> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let loader = b"/ld-linux-x86-64.so.2\0";
    Ok(!bytes.windows(loader.len()).any(|window| window == loader))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_is_found_by_name_and_kind_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"object"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"object"},"executable":"/t/deps/object-1"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"traffic"},"executable":"/t/traffic"}
running something else
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "object", "test").unwrap(), Path::new("/t/deps/object-1"));
        assert!(executable(messages, "object", "bin").is_err());
    }
}
