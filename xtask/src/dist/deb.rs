//! Makes the Debian package.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::machine::Machine;
use super::release::Release;
use super::tree::put;
use crate::{tool, workspace};

/// Packs the tree under a version, and returns the path of the package.
pub(super) fn pack(
    stage: &Path,
    machine: &Machine,
    release: &Release,
    version: &str,
    into: &Path,
) -> Result<PathBuf> {
    let file = into.join(format!("ratelimit_{version}_{}.deb", machine.debian));
    eprintln!("dist: {}", file.file_name().unwrap_or_default().to_string_lossy());
    let scripts = workspace::root().join("packaging/deb");
    let about = stage.join("DEBIAN");
    fs::create_dir_all(&about)?;
    let template = fs::read_to_string(scripts.join("control")).context("packaging/deb/control")?;
    let control = control(&template, version, machine.debian, size_kib(stage)?);
    super::write(&about.join("control"), &control)?;
    put(&scripts.join("conffiles"), &about.join("conffiles"), 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        put(&scripts.join(script), &about.join(script), 0o755)?;
    }
    let mut pack = tool::command("dpkg-deb");
    pack.args(["--root-owner-group", "-Zxz", "--build"]).arg(stage).arg(&file);
    let packed = tool::output(pack.env("SOURCE_DATE_EPOCH", &release.epoch));
    // These files are for dpkg only, and other packages are made of this tree next.
    fs::remove_dir_all(&about)?;
    packed.map(|_said| file)
}

fn control(template: &str, version: &str, architecture: &str, kib: u64) -> String {
    template.replace("@VERSION@", version).replace("@ARCH@", architecture).replace("@SIZE@", &kib.to_string())
}

fn size_kib(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                dirs.push(entry.path());
            } else {
                bytes += metadata.len();
            }
        }
    }
    Ok(bytes.div_ceil(1024))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_control_file_names_version_machine_and_size_and_leaves_nothing_open() {
        let template = fs::read_to_string(workspace::root().join("packaging/deb/control")).unwrap();
        let control = control(&template, "0.1.0+2026.abc", "arm64", 7);
        for line in ["Version: 0.1.0+2026.abc", "Architecture: arm64", "Installed-Size: 7"] {
            assert!(control.lines().any(|found| found == line), "{line}: {control}");
        }
        assert!(!control.contains("@VERSION@") && !control.contains("@ARCH@") && !control.contains("@SIZE@"));
    }

    #[test]
    fn scripts_of_maintenance_are_executable_and_a_shell_takes_them() {
        for script in ["postinst", "prerm", "postrm"] {
            let path = workspace::root().join("packaging/deb").join(script);
            assert_ne!(path.metadata().unwrap().permissions().mode() & 0o111, 0, "{script}");
            tool::output(tool::command("sh").arg("-n").arg(&path)).unwrap();
        }
    }
}
