//! Gets kernels from Debian packages: chosen from apt's lists, unpacked into the target directory, never installed.
//!
//! apt runs with lists and sources of its own, so that this machine's are neither needed nor changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::NEWEST;
use crate::tool;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const SUITES: [(&str, &str); 7] = [
    ("debian", "bullseye"),
    ("debian-security", "bullseye-security"),
    ("debian", "bookworm"),
    ("debian-security", "bookworm-security"),
    ("debian", "trixie"),
    ("debian-security", "trixie-security"),
    ("debian", "trixie-backports"),
];
const FLAVOUR: &str = "-cloud-amd64";
/// The age after which apt's lists are fetched again.
const FRESH: Duration = Duration::from_secs(24 * 3600);
/// The number of releases that are tried, because an archive drops superseded packages before its lists do.
const ATTEMPTS: usize = 4;

/// A kernel that can be booted.
pub(super) struct Kernel {
    /// The release, as `uname -r` prints it.
    pub(super) release: String,
    pub(super) image: PathBuf,
}

/// Returns the newest kernel of each series that was asked for, or why there is none. Each kernel comes once.
pub(super) fn obtain(asked: &[&str]) -> Result<Vec<(String, Result<Kernel>)>> {
    let apt = Apt::open(&super::dir().join("apt"))?;
    let offered = offered(&apt.package_names()?);
    let mut found: Vec<(String, Result<Kernel>)> = Vec::new();
    for series in asked {
        let kernel = apt.kernel(series, &offered);
        let known = |kernel: &Kernel| {
            found.iter().any(|(_, have)| have.as_ref().is_ok_and(|have| have.release == kernel.release))
        };
        if !kernel.as_ref().is_ok_and(known) {
            found.push(((*series).to_owned(), kernel));
        }
    }
    Ok(found)
}

/// Releases, the oldest first, each with the packages that may have its image.
type Offered = BTreeMap<Vec<u64>, (String, Vec<String>)>;

/// Reads releases from package names. Up to 6.18 the image is in linux-image, later in linux-binary; meta-packages have no release.
fn offered(package_names: &str) -> Offered {
    let mut offered = Offered::new();
    for name in package_names.lines() {
        let bare = name.strip_prefix("linux-image-").or_else(|| name.strip_prefix("linux-binary-"));
        let Some(release) = bare.map(|bare| bare.strip_suffix("-unsigned").unwrap_or(bare)) else { continue };
        let version = numbers(release.strip_suffix(FLAVOUR).unwrap_or_default());
        if version.len() < 3 || !release.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let packages = &mut offered.entry(version).or_insert_with(|| (release.to_owned(), Vec::new())).1;
        packages.push(name.to_owned());
        packages.sort();
    }
    offered
}

/// Returns the numbers by which releases are ordered: 6, 1, 0, 54 for `6.1.0-54`.
fn numbers(release: &str) -> Vec<u64> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// Returns the releases of a series, the newest first.
fn of_series<'o>(series: &str, offered: &'o Offered) -> Vec<&'o (String, Vec<String>)> {
    let wanted = numbers(series);
    let fits = |version: &[u64]| series == NEWEST || (!wanted.is_empty() && version.starts_with(&wanted));
    offered.iter().rev().filter(|(version, _)| fits(version)).map(|(_, found)| found).collect()
}

struct Apt {
    dir: PathBuf,
}

impl Apt {
    fn open(dir: &Path) -> Result<Self> {
        if tool::find("apt-get").is_none() {
            bail!("the kernels are Debian packages, and apt-get is not here to download them");
        }
        for part in ["lists/partial", "cache/archives/partial", "packages"] {
            let part = dir.join(part);
            fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
        }
        let apt = Self { dir: dir.to_owned() };
        let sources = sources();
        let path = dir.join("sources.list");
        let stamp = dir.join("updated");
        if is_fresh(&stamp) && fs::read_to_string(&path).is_ok_and(|have| have == sources) {
            return Ok(apt);
        }
        fs::write(&path, sources).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("vm: reading the package lists of Debian 11, 12 and 13");
        tool::output(apt.command("apt-get").args(["update", "-qq"]))?;
        fs::write(&stamp, "").with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = tool::command(program);
        let dir = self.dir.display();
        for option in [
            format!("Dir::Etc::sourcelist={dir}/sources.list"),
            "Dir::Etc::sourceparts=-".into(),
            format!("Dir::State::lists={dir}/lists"),
            format!("Dir::Cache={dir}/cache"),
            "APT::Sandbox::User=root".into(),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
        ] {
            command.args(["-o", &option]);
        }
        command
    }

    fn package_names(&self) -> Result<String> {
        tool::output(self.command("apt-cache").args(["pkgnames", "linux-"]))
    }

    fn kernel(&self, series: &str, offered: &Offered) -> Result<Kernel> {
        let mut refusals = Vec::new();
        for (release, packages) in of_series(series, offered).into_iter().take(ATTEMPTS) {
            let image = super::dir().join(format!("vmlinuz-{release}"));
            if image.is_file() {
                return Ok(Kernel { release: release.clone(), image });
            }
            for package in packages {
                match self.unpack(package, release, &image) {
                    Ok(()) => return Ok(Kernel { release: release.clone(), image }),
                    Err(why) => refusals.push(format!("{package}: {why:#}")),
                }
            }
        }
        match refusals.last() {
            Some(last) => bail!("no package of kernel {series} could be unpacked, the last one was {last}"),
            None => bail!("apt offers no cloud kernel {series}"),
        }
    }

    /// Downloads a package and keeps only its kernel image.
    fn unpack(&self, package: &str, release: &str, image: &Path) -> Result<()> {
        eprintln!("vm: downloading {package}");
        let packages = self.dir.join("packages");
        let root = packages.join("unpacked");
        // A package that an interrupted run has left would be taken for this one.
        let _nothing_there = fs::remove_dir_all(&packages);
        fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
        tool::output(self.command("apt-get").args(["download", "-qq", package]).current_dir(&packages))?;
        let archive = fs::read_dir(&packages)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|ext| ext == "deb"))
            .context("apt-get downloaded nothing")?;
        tool::output(tool::command("dpkg-deb").arg("-x").arg(archive).arg(&root))?;
        let places = [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")];
        let found = places.iter().map(|place| root.join(place)).find(|path| path.is_file());
        fs::rename(found.context("it has no kernel image")?, image)?;
        fs::remove_dir_all(&packages)?;
        Ok(())
    }
}

fn sources() -> String {
    let line = |(archive, suite): &(&str, &str)| {
        format!("deb [signed-by={KEYRING}] http://deb.debian.org/{archive} {suite} main\n")
    };
    SUITES.iter().map(line).collect()
}

fn is_fresh(stamp: &Path) -> bool {
    let age = stamp.metadata().and_then(|found| found.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age < FRESH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "linux-image-6.1-cloud-amd64\n\
                         linux-image-cloud-amd64\n\
                         linux-image-6.1.0-54-cloud-amd64-unsigned\n\
                         linux-image-6.1.0-54-cloud-amd64\n\
                         linux-image-6.1.0-9-cloud-amd64\n\
                         linux-image-6.1.0-0.deb11.52-cloud-amd64\n\
                         linux-image-6.12.115+deb12-cloud-amd64\n\
                         linux-image-6.12.115+deb12-cloud-amd64-dbg\n\
                         linux-image-6.12.115+deb12-amd64\n\
                         linux-headers-6.12.115+deb12-cloud-amd64\n\
                         linux-image-7.2.12+deb13-cloud-amd64\n\
                         linux-binary-7.2.12+deb13-cloud-amd64\n";

    fn newest_of(series: &str) -> Option<(String, Vec<String>)> {
        of_series(series, &offered(NAMES)).first().map(|found| (*found).clone())
    }

    #[test]
    fn the_newest_release_of_a_series_is_found_by_number_and_not_by_letter() {
        let (release, packages) = newest_of("6.1").unwrap();
        assert_eq!(release, "6.1.0-54-cloud-amd64");
        assert_eq!(
            packages,
            ["linux-image-6.1.0-54-cloud-amd64", "linux-image-6.1.0-54-cloud-amd64-unsigned"]
        );
    }

    #[test]
    fn newest_is_the_newest_of_all_and_both_places_of_its_image_are_known() {
        let (release, packages) = newest_of(NEWEST).unwrap();
        assert_eq!(release, "7.2.12+deb13-cloud-amd64");
        assert_eq!(packages[0], "linux-binary-7.2.12+deb13-cloud-amd64");
    }

    #[test]
    fn meta_packages_debug_symbols_and_other_flavours_are_no_kernels() {
        assert_eq!(offered(NAMES).len(), 5);
    }

    #[test]
    fn a_series_nobody_offers_and_a_word_that_is_none_find_nothing() {
        assert_eq!(newest_of("4.19"), None);
        assert_eq!(newest_of("latest"), None);
    }
}
