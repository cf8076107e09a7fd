//! Builds the image from its Containerfile and runs it, without a network and without a container service.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::machine::Machine;
use super::say;
use crate::setup::Need;
use crate::tool;

pub(super) const NEEDS: [Need; 2] = [
    Need::Executable { name: "buildah", package: "buildah" },
    Need::Executable { name: "unshare", package: "util-linux" },
];

/// The template that prints the command of an image and its kind of machine.
const ABOUT: &str = "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}} {{.OCIv1.Architecture}}";

/// Builds the image for every kind of machine that there are files for, and runs the image for this machine.
pub(super) fn check(dist: &Path) -> Result<()> {
    let storage = dist.join("check").join("images");
    let _absent = fs::remove_dir_all(&storage);
    for machine in &Machine::ALL {
        let context = dist.join("container").join(machine.name);
        if !context.exists() {
            continue;
        }
        let image = format!("localhost/ratelimit-{}", machine.debian);
        say(&format!("image: {image} from its Containerfile"));
        let mut build = buildah(&storage);
        build.args(["build", "--quiet", "--isolation", "chroot", "--arch", machine.debian, "--tag", &image]);
        tool::output(build.arg(&context))?;
        let mut inspect = buildah(&storage);
        inspect.args(["inspect", "--type", "image", "--format", ABOUT]);
        let about = tool::output(inspect.arg(&image))?;
        let right =
            format!("[/usr/bin/ratelimit] [run --policy /etc/ratelimit/policy.toml] {}", machine.debian);
        ensure!(about.trim() == right, "the image says {about:?}, and {right:?} would be right");
        if machine.is_this_one() {
            let container = tool::output(buildah(&storage).args(["from", "--pull-never", &image]))?;
            let mut run = buildah(&storage);
            run.args(["run", "--isolation", "chroot", container.trim(), "--"]);
            let said = tool::output(run.args(["/usr/bin/ratelimit", "check", "/etc/ratelimit/policy.toml"]))?;
            ensure!(said.contains("packets"), "{said}");
        }
    }
    fs::remove_dir_all(&storage)?;
    Ok(())
}

/// Returns a buildah command. Images are kept below the target directory, as plain files, and the network cannot be reached.
fn buildah(storage: &Path) -> Command {
    let mut buildah = tool::command("unshare");
    buildah.args(["--net", "buildah", "--storage-driver", "vfs"]);
    buildah.arg("--root").arg(storage.join("root")).arg("--runroot").arg(storage.join("run"));
    buildah
}
