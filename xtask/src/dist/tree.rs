//! Lays out the files of a package at their places on a host.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::machine::Machine;
use super::release::Release;
use crate::{tool, workspace};

/// Files of the repository, and their paths on a host.
const FILES: [(&str, &str); 15] = [
    ("packaging/systemd/ratelimit.service", "usr/lib/systemd/system/ratelimit.service"),
    ("packaging/systemd/ratelimit-front.socket", "usr/lib/systemd/system/ratelimit-front.socket"),
    ("packaging/systemd/ratelimit-front@.service", "usr/lib/systemd/system/ratelimit-front@.service"),
    ("packaging/systemd/ratelimit.sysusers", "usr/lib/sysusers.d/ratelimit.conf"),
    ("packaging/etc/policy.toml", "etc/ratelimit/policy.toml"),
    ("packaging/etc/60-ratelimit.conf", "usr/share/doc/ratelimit/60-ratelimit.conf"),
    ("packaging/deb/copyright", "usr/share/doc/ratelimit/copyright"),
    ("packaging/grafana/ratelimit.json", "usr/share/doc/ratelimit/grafana.json"),
    ("packaging/prometheus/alerts.yml", "usr/share/doc/ratelimit/alerts.yml"),
    ("packaging/kubernetes/daemonset.yaml", "usr/share/doc/ratelimit/daemonset.yaml"),
    ("README.md", "usr/share/doc/ratelimit/README.md"),
    ("CHANGELOG.md", "usr/share/doc/ratelimit/CHANGELOG.md"),
    ("LICENSE-MIT", "usr/share/doc/ratelimit/LICENSE-MIT"),
    ("LICENSE-APACHE", "usr/share/doc/ratelimit/LICENSE-APACHE"),
    ("LICENSE-GPL2", "usr/share/doc/ratelimit/LICENSE-GPL2"),
];

/// Shells, and the path at which each looks for completions.
const COMPLETIONS: [(&str, &str); 4] = [
    ("bash", "usr/share/bash-completion/completions/ratelimit"),
    ("fish", "usr/share/fish/vendor_completions.d/ratelimit.fish"),
    ("zsh", "usr/share/zsh/site-functions/_ratelimit"),
    // This path is Debian's.
    ("zsh", "usr/share/zsh/vendor-completions/_ratelimit"),
];

/// Lays out the files in a directory. `speaks` is a binary that writes its own manual pages, and the kind of machine that it is for.
pub(super) fn stage(
    work: &Path,
    machine: &Machine,
    binary: &Path,
    (of, speaks): (&Machine, &Path),
    beside: &[&Path],
) -> Result<PathBuf> {
    let stage = work.join(machine.name);
    put(binary, &stage.join("usr/bin/ratelimit"), 0o755)?;
    let root = workspace::root();
    for (from, to) in FILES {
        put(&root.join(from), &stage.join(to), 0o644)?;
    }
    for file in beside {
        let name = file.file_name().unwrap_or_default();
        put(file, &stage.join("usr/share/doc/ratelimit").join(name), 0o644)?;
    }
    pages_of_the_book(&root.join("docs"), &stage.join("usr/share/doc/ratelimit/docs"))?;
    for (shell, to) in COMPLETIONS {
        let script = of.run(speaks, &["completions", shell])?;
        let to = stage.join(to);
        fs::create_dir_all(to.parent().unwrap_or(&stage))?;
        super::write(&to, &script)?;
    }
    let man = stage.join("usr/share/man/man1");
    of.run(speaks, &["man", &man.to_string_lossy()])?;
    tool::run(tool::command("sh").current_dir(&man).args(["-euc", "gzip -9n *.1"]))?;
    // Other users may not read the directory, because the policy may name files with secrets.
    fs::set_permissions(stage.join("etc/ratelimit"), fs::Permissions::from_mode(0o750))?;
    Ok(stage)
}

/// Copies the pages of the documentation and their pictures, without the records of decisions.
fn pages_of_the_book(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let path = entry?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_file() {
            put(&path, &to, 0o644)?;
        } else if !path.ends_with("decisions") {
            pages_of_the_book(&path, &to)?;
        }
    }
    Ok(())
}

pub(super) fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let failed = || format!("cannot copy {} to {}", from.display(), to.display());
    fs::create_dir_all(to.parent().unwrap_or(Path::new("/"))).with_context(failed)?;
    fs::copy(from, to).with_context(failed)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).with_context(failed)
}

/// Packs the tree as a tarball that has one directory at its top.
pub(super) fn pack(stage: &Path, dist: &Path, name: &str, release: &Release) -> Result<()> {
    eprintln!("dist: {name}.tar.xz");
    let mut tar = tool::command("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
    tar.arg(format!("--mtime=@{}", release.epoch)).arg(format!("--transform=s,^\\.,{name},"));
    let file = dist.join(format!("{name}.tar.xz"));
    tar.arg("-C").arg(stage).arg("-cJf").arg(&file).arg(".");
    tool::run(&mut tar)?;
    unpack_as_documented(&file, stage)
}

/// Checks that the line in `docs/install.md` for unpacking a tarball gives the tree, by unpacking into another directory than `/`.
fn unpack_as_documented(file: &Path, stage: &Path) -> Result<()> {
    let root = file.with_extension("unpacked");
    fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
    tool::run(tool::command("tar").arg("-C").arg(&root).args(["--strip-components=1", "-xf"]).arg(file))?;
    tool::run(tool::command("diff").args(["-r", "--no-dereference"]).arg(stage).arg(&root))?;
    fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))
}
