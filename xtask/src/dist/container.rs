//! The directory that an image is built from, and a check of the manifests that start it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::machine::Machine;
use super::tree::put;
use crate::{tool, workspace};

/// Directories of the image that a daemon writes to, or that the host puts something into.
const EMPTY: [&str; 5] = ["run/ratelimit", "var/lib/ratelimit", "sys/fs/bpf", "proc", "tmp"];

/// Lays out a directory for `podman build` and `docker build`: the Containerfile, and the file system of the image.
pub(super) fn lay_out(stage: &Path, machine: &Machine, dist: &Path) -> Result<()> {
    let context = dist.join("container").join(machine.name);
    let rootfs = context.join("rootfs");
    let packaging = workspace::root().join("packaging/container");
    put(&packaging.join("Containerfile"), &context.join("Containerfile"), 0o644)?;
    put(&stage.join("usr/bin/ratelimit"), &rootfs.join("usr/bin/ratelimit"), 0o755)?;
    put(&stage.join("etc/ratelimit/policy.toml"), &rootfs.join("etc/ratelimit/policy.toml"), 0o644)?;
    for file in ["passwd", "group"] {
        put(&packaging.join(file), &rootfs.join("etc").join(file), 0o644)?;
    }
    for dir in EMPTY {
        fs::create_dir_all(rootfs.join(dir)).with_context(|| format!("cannot make {dir} of the image"))?;
    }
    Ok(())
}

/// Checks the policy inside the manifest with this machine's binary. `image` builds and runs the image.
pub(super) fn check_manifests() -> Result<()> {
    let manifest = fs::read_to_string(workspace::root().join("packaging/kubernetes/daemonset.yaml"))?;
    let policy = policy_of(&manifest);
    let file = workspace::target_dir().join("dist/work/daemonset-policy.toml");
    super::write(&file, &policy)?;
    let binary = Machine::ALL[0].binary();
    if binary.exists() {
        tool::output(tool::command(binary).arg("check").arg(&file))
            .context("the policy in packaging/kubernetes/daemonset.yaml")?;
    }
    ensure!(policy.contains("mode = \"monitor\""), "the policy of the DaemonSet is no trial");
    Ok(())
}

/// Returns the block of text under `policy.toml: |`.
fn policy_of(manifest: &str) -> String {
    let lines = manifest.lines().skip_while(|line| !line.trim_start().starts_with("policy.toml: |")).skip(1);
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_of_the_manifest_is_taken_out_of_it_as_it_is() {
        let manifest = "data:\n  policy.toml: |\n    a = 1\n\n    [b]\n---\nkind: x\n";
        assert_eq!(policy_of(manifest), "a = 1\n\n[b]\n");
    }

    #[test]
    fn the_manifest_asks_for_the_capabilities_of_the_unit_and_no_others() {
        let read = |file: &str| fs::read_to_string(workspace::root().join("packaging").join(file)).unwrap();
        let (unit, manifest) = (read("systemd/ratelimit.service"), read("kubernetes/daemonset.yaml"));
        let of_unit = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
        let of_manifest = manifest.lines().find_map(|line| line.trim().strip_prefix("add: ")).unwrap();
        let of_unit: Vec<String> =
            of_unit.split(' ').map(|name| format!("{:?}", name.trim_start_matches("CAP_"))).collect();
        assert_eq!(of_manifest, format!("[{}]", of_unit.join(", ")));
    }
}
