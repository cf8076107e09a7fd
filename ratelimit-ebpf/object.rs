//! Compiles a kernel program and leaves the object in OUT_DIR. Shared by the build scripts that embed one.
//!
//! aya-build does most of this, but fixes the compiler flags: compare-and-exchange needs `target-cpu=v3`.

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    process::Command,
};

const TARGET: &str = "bpfel-unknown-none";

/// Has the build script run again when one of these paths changes, which count from the workspace on.
pub(crate) fn made_of(sources: &[&str]) -> Result<(), Box<dyn Error>> {
    let workspace = workspace()?;
    for source in sources {
        println!("cargo:rerun-if-changed={}", workspace.join(source).display());
    }
    Ok(())
}

/// Builds the binary of `package`, which has the package's name, with these features, into a directory of OUT_DIR.
pub(crate) fn build(package: &str, features: &[&str], into: &str) -> Result<(), Box<dyn Error>> {
    let workspace = workspace()?;
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
        .current_dir(&workspace)
        .args(["build", "--quiet", "--release", "--locked", "--package", package, "--bin", package])
        .args(["--target", TARGET, "-Z", "build-std=core", "--target-dir"])
        .arg(&target_dir)
        .args(["--features", &features.join(",")])
        // By cargo itself, while it holds the lock: another build script may build with other features at the same time.
        .args(["-Z", "unstable-options", "--artifact-dir"])
        .arg(out_dir.join(into))
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        // build-std and core::intrinsics are unstable; the stable compiler has them behind this switch.
        .env("RUSTC_BOOTSTRAP", "1")
        // The inner build is for another target: what cargo or clippy set for this one must not reach it.
        .env_remove("RUSTC")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    if !status.success() {
        let hint = "`cargo xtask build` installs what it needs";
        return Err(format!("the kernel program {package} did not build; {hint}").into());
    }
    Ok(())
}

/// The directory above the package whose build script this is part of.
fn workspace() -> Result<PathBuf, Box<dyn Error>> {
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    Ok(package.parent().ok_or("no workspace above this package")?.to_owned())
}

/// One directory for all profiles of the outer build, beside them: `target/bpf`. Cargo locks a target directory
/// while it builds, so the inner build needs one of its own.
fn bpf_target_dir(out_dir: &Path) -> Result<PathBuf, Box<dyn Error>> {
    // target/<profile>/build/<package>/out
    let target = out_dir.ancestors().nth(4).ok_or("OUT_DIR is not where cargo puts it")?;
    Ok(target.join("bpf"))
}
