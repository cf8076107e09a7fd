//! Compiles the kernel program, so that `ratelimit` is one file with the object inside.
//!
//! aya-build does most of this, but fixes the compiler flags: compare-and-exchange needs `target-cpu=v3`.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const PACKAGE: &str = "ratelimit-ebpf";
const TARGET: &str = "bpfel-unknown-none";

fn main() -> Result<(), Box<dyn Error>> {
    let workspace =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no workspace above this package")?;
    for source in ["ratelimit-ebpf", "ratelimit-common/src", "ratelimit-common/Cargo.toml", "Cargo.toml"] {
        println!("cargo:rerun-if-changed={}", workspace.join(source).display());
    }
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    let target_dir = bpf_target_dir(&out_dir)?;
    let arch = env::var("CARGO_CFG_TARGET_ARCH")?;
    let flags = [
        format!("--cfg=bpf_target_arch=\"{arch}\""),
        "-Cdebuginfo=2".into(),
        "-Clink-arg=--btf".into(),
        // 64-bit atomics with compare-and-exchange; kernel 5.12 and later.
        "-Ctarget-cpu=v3".into(),
        // The object in use says nothing about the machine it was built on.
        format!("--remap-path-prefix={}=.", workspace.display()),
    ];
    let status = Command::new(env::var("CARGO")?)
        .current_dir(workspace)
        .args(["build", "--quiet", "--release", "--locked", "--package", PACKAGE, "--bin", PACKAGE])
        .args(["--target", TARGET, "-Z", "build-std=core", "--target-dir"])
        .arg(&target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        // build-std and core::intrinsics are unstable; the stable compiler has them behind this switch.
        .env("RUSTC_BOOTSTRAP", "1")
        // The inner build is for another target: what cargo or clippy set for this one must not reach it.
        .env_remove("RUSTC")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    if !status.success() {
        return Err("the kernel program did not build; `cargo xtask build` installs what it needs".into());
    }
    fs::copy(target_dir.join(TARGET).join("release").join(PACKAGE), out_dir.join(PACKAGE))?;
    Ok(())
}

/// One directory for all profiles of the outer build, beside them: `target/bpf`. Cargo locks a target directory
/// while it builds, so the inner build needs one of its own.
fn bpf_target_dir(out_dir: &Path) -> Result<PathBuf, Box<dyn Error>> {
    // target/<profile>/build/<package>/out
    let target = out_dir.ancestors().nth(4).ok_or("OUT_DIR is not where cargo puts it")?;
    Ok(target.join("bpf"))
}
