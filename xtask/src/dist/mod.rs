//! `cargo xtask dist`: makes everything that an operator installs, under `target/dist`, with checksums.
//!
//! One static binary is built for each kind of machine, and everything else is made of it and of `packaging`. Nothing is built twice.

mod before;
mod container;
mod crates;
mod deb;
mod debian_host;
mod image;
mod licences;
mod lifecycle;
mod machine;
mod release;
mod rpm;
mod rpm_life;
mod sbom;
mod tree;
mod unit;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::setup::{self, Install, Need};
use crate::{tool, workspace};
use before::Before;
use machine::Machine;
use release::Release;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Install, upgrade, remove and purge the packages in a clean Debian root under systemd as well, and build the image; needs root
    #[arg(long)]
    check: bool,
    /// Upgrade in --check from the packages of this commit, which are made first; otherwise, from this build under an earlier version
    #[arg(long, value_name = "COMMIT", requires = "check")]
    upgrade_from: Option<String>,
    /// Upgrade in --check from this Debian package
    #[arg(long, value_name = "FILE", requires = "check", conflicts_with = "upgrade_from")]
    previous: Option<PathBuf>,
    /// Make it for one kind of machine only
    #[arg(long, value_name = "MACHINE", value_parser = Machine::NAMES)]
    only: Option<String>,
    /// Look for advisories in this local clone of RustSec's database, instead of fetching it
    #[arg(long, value_name = "DIR")]
    advisories: Option<PathBuf>,
    /// Take the static binaries that are there already
    #[arg(long)]
    no_build: bool,
}

/// The programs that packing needs, beside those for building.
const PACKERS: [Need; 6] = [
    Need::Executable { name: "dpkg-deb", package: "dpkg" },
    Need::Executable { name: "rpmbuild", package: "rpm" },
    Need::Executable { name: "xz", package: "xz-utils" },
    Need::Executable { name: "readelf", package: "binutils" },
    Need::Executable { name: "systemd-analyze", package: "systemd" },
    Need::CargoDeny,
];

pub(crate) fn run(options: &Options, install: Install) -> Result<()> {
    let machines: Vec<&Machine> = Machine::ALL
        .iter()
        .filter(|machine| options.only.as_deref().is_none_or(|only| only == machine.name))
        .collect();
    let mut needs = [&setup::KERNEL_BUILD[..], &PACKERS].concat();
    machines.iter().for_each(|machine| needs.extend(machine.needs));
    if options.check {
        needs.extend(debian_host::NEEDS);
        needs.extend(image::NEEDS);
        setup::ensure_as_root(&needs, install, "dist --check")?;
    } else {
        setup::ensure(&needs, install)?;
    }
    unit::check()?;
    crate::deny::check(options.advisories.as_deref())?;
    let release = Release::of_checkout()?;
    let dist = workspace::target_dir().join("dist");
    start_over(&dist)?;
    let name = format!("ratelimit-{}", release.version);
    let parts = crates::in_the_binary()?;
    let bom = dist.join(format!("{name}.cdx.json"));
    write(&bom, &serde_json::to_string_pretty(&sbom::bill(&release, &parts))?)?;
    let texts = dist.join(format!("{name}-licences.txt"));
    write(&texts, &licences::texts(&parts)?)?;
    // Manual pages and completions are the same for every kind of machine, so the first binary writes them. It needs no emulator unless it is the only one.
    let mut pages = None;
    for machine in machines {
        let binary = if options.no_build { machine.binary() } else { machine.build()? };
        machine.check(&binary)?;
        let pages = pages.get_or_insert((machine, binary.clone()));
        let stage = tree::stage(&dist.join("work"), machine, &binary, (pages.0, &pages.1), &[&bom, &texts])?;
        deb::pack(&stage, machine, &release, &release.debian(), &dist)?;
        rpm::pack(&stage, machine, &release, &dist)?;
        tree::pack(&stage, &dist, &format!("{name}-{}", machine.name), &release)?;
        container::lay_out(&stage, machine, &dist)?;
    }
    container::check_manifests()?;
    tool::run(
        tool::command("sh")
            .current_dir(&dist)
            .args(["-euc", "sha256sum *.deb *.rpm *.tar.xz *.json *.txt > SHA256SUMS"]),
    )?;
    list(&dist)?;
    if options.check {
        let mut before = match &options.upgrade_from {
            Some(commit) => Before::of_commit(commit)?,
            None => Before::of_this_build(&dist, &release)?,
        };
        if let Some(file) = &options.previous {
            before.deb.clone_from(file);
        }
        lifecycle::check(&dist, &release, &before)?;
    }
    Ok(())
}

/// Empties the directory, except for what a check keeps to be quicker the next time.
fn start_over(dist: &Path) -> Result<()> {
    fs::create_dir_all(dist).with_context(|| format!("cannot make {}", dist.display()))?;
    for entry in fs::read_dir(dist)? {
        let path = entry?.path();
        if path.is_file() {
            fs::remove_file(&path)?;
        } else if !path.ends_with("check") {
            fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}

fn say(what: &str) {
    eprintln!("dist: {what}");
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn list(dist: &Path) -> Result<()> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(dist)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    files.retain(|path| path.is_file());
    files.sort();
    for path in files {
        let size = path.metadata()?.len();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        println!("{:>9.2} MB  target/dist/{name}", size as f64 / 1e6);
    }
    Ok(())
}
