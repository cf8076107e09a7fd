//! Prepares a fresh machine for a command: each command names its needs, and missing ones become a list of shell lines
//! that are either run with a progress line each, or printed (`--no-install`).
//!
//! A shell line, not a function, is the unit: what `--no-install` prints is exactly what would have been run.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::fetched::Fetched;
use crate::outcome::Ending;
use crate::peer::{Peer, Source};
use crate::{deny, linker, peer, tool, workspace};

/// Whether to install what is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Install {
    Missing,
    PrintOnly,
}

/// One thing a command cannot do without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The sources of `core`, which is compiled for the BPF target.
    RustSrc,
    BpfLinker,
    Clippy,
    Rustfmt,
    /// An executable and the Debian package it comes in.
    Executable {
        name: &'static str,
        package: &'static str,
    },
    /// The BPF file system. systemd mounts it; containers and small systems often do not.
    BpfFileSystem,
    /// Prometheus' checker of metrics, for the tests.
    Promtool,
    /// Servers that the tests start and kill themselves.
    RedisServer,
    /// A program to compare with.
    Peer(Peer),
    /// A program that is fetched for this checkout.
    Fetched(Fetched),
    /// The standard library for another target.
    RustTarget(&'static str),
    /// The checker of licences, sources and advisories.
    CargoDeny,
}

/// The needs of compiling the kernel program.
pub(crate) const KERNEL_BUILD: [Need; 2] = [Need::RustSrc, Need::BpfLinker];
pub(crate) const LINTERS: [Need; 2] = [Need::Clippy, Need::Rustfmt];
/// The needs of private namespaces with real traffic.
pub(crate) const NAMESPACES: [Need; 8] = [
    Need::Executable { name: "ip", package: "iproute2" },
    Need::Executable { name: "ping", package: "iputils-ping" },
    Need::Executable { name: "nsenter", package: "util-linux" },
    Need::Executable { name: "setpriv", package: "util-linux" },
    Need::Executable { name: "mount", package: "mount" },
    Need::Executable { name: "umount", package: "mount" },
    // fsfreeze makes a disk hang.
    Need::Executable { name: "fsfreeze", package: "util-linux" },
    Need::Executable { name: "mkfs.ext4", package: "e2fsprogs" },
];

/// The needs of tests of limits across hosts: real servers, and certificates for them.
pub(crate) const REDIS: [Need; 4] = [
    Need::Executable { name: "redis-cli", package: "redis-tools" },
    Need::Executable { name: REDIS_CHECK, package: "redis-tools" },
    Need::Executable { name: "openssl", package: "openssl" },
    Need::RedisServer,
];

/// The needs of tests of the decision service: programs and a library that were written for Redis.
pub(crate) const REDIS_CLIENTS: [Need; 4] = [
    Need::Executable { name: "redis-benchmark", package: "redis-tools" },
    Need::Executable { name: "script", package: "bsdutils" },
    Need::Executable { name: "python3", package: "python3-venv" },
    Need::Fetched(Fetched::PythonRedis),
];

/// The needs of tests in which real proxies and a fuzzer ask the decision service.
pub(crate) const PROXIES: [Need; 7] = [
    Need::Executable { name: "python3", package: "python3-venv" },
    Need::Executable { name: "dpkg-deb", package: "dpkg" },
    peer::NGINX,
    Need::Fetched(Fetched::Traefik),
    Need::Fetched(Fetched::Caddy),
    Need::Fetched(Fetched::Envoy),
    Need::Fetched(Fetched::Schemathesis),
];

/// The needs of tests in which real resolvers ask a name server. None of the packages starts a server.
pub(crate) const RESOLVERS: [Need; 3] = [
    Need::Executable { name: "dig", package: "bind9-dnsutils" },
    Need::Executable { name: "kdig", package: "knot-dnsutils" },
    Need::Executable { name: "unbound-host", package: "unbound-host" },
];

/// The needs of the test of the dashboard: a real browser without a screen, and without the parts that need one (100 MB).
pub(crate) const BROWSER: [Need; 1] =
    [Need::Executable { name: "chromium-headless-shell", package: "chromium-headless-shell" }];

/// The needs of tests of manual pages and of the systemd unit.
pub(crate) const PAGES: [Need; 2] = [
    Need::Executable { name: "mandoc", package: "mandoc" },
    Need::Executable { name: "systemd-analyze", package: "systemd" },
];

/// Debian's name for the server's executable in the package that starts no server.
const REDIS_CHECK: &str = "redis-check-rdb";

const BPFFS: &str = "/sys/fs/bpf";

/// One shell line, and the message while it runs.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) does: String,
    pub(crate) command: String,
}

/// Makes sure that everything in `needs` is there: installs what is missing, or prints the commands and fails.
pub(crate) fn ensure(needs: &[Need], install: Install) -> Result<()> {
    let steps = missing(needs)?;
    if steps.is_empty() {
        return Ok(());
    }
    if install == Install::PrintOnly {
        for step in &steps {
            println!("{}", step.command);
        }
        return Err(Ending::SomethingMissing.into());
    }
    for step in &steps {
        eprintln!("setup: {}", step.does);
        tool::run(tool::command("sh").env("DEBIAN_FRONTEND", "noninteractive").args(["-euc", &step.command]))
            .with_context(|| format!("setup stopped while {}", step.does))?;
    }
    if let Some(step) = missing(needs)?.first() {
        bail!("still missing after setup; this should have helped and did not: {}", step.command);
    }
    eprintln!("setup: done");
    Ok(())
}

/// Makes sure of the needs of a command that loads BPF programs. It is refused before anything is installed, unless we are root.
pub(crate) fn ensure_as_root(needs: &[Need], install: Install, command: &'static str) -> Result<()> {
    // Missing needs are printed even if we are not root; this fails if there are any.
    if install == Install::PrintOnly {
        ensure(needs, install)?;
    }
    if !tool::is_root() {
        return Err(Ending::NotPermitted { command }.into());
    }
    ensure(needs, install)
}

fn missing(needs: &[Need]) -> Result<Vec<Step>> {
    let mut components = Vec::new();
    let mut executables = Vec::new();
    let mut packages = Vec::new();
    let mut linker_step = None;
    let mut mount_step = None;
    let mut unpacked = Vec::new();
    let mut built = Vec::new();
    let mut redis_server = false;
    let mut fetched = Vec::new();
    let mut targets = Vec::new();
    let mut deny = None;
    for need in needs {
        match *need {
            Need::RustSrc if !has_rust_src()? => components.push("rust-src"),
            Need::Clippy if !answers("clippy") => components.push("clippy"),
            Need::Rustfmt if !answers("fmt") => components.push("rustfmt"),
            Need::BpfLinker => linker_step = linker::missing()?,
            Need::Executable { name, package } if tool::find(name).is_none() => {
                executables.push(name);
                packages.push(package);
            }
            Need::Promtool if tool::find(PROMTOOL.executable()).is_none() => unpacked.push(PROMTOOL),
            Need::RedisServer if tool::find("redis-server").is_none() => redis_server = true,
            Need::Peer(peer) if tool::find(peer.executable).is_none() => match peer.source {
                Source::Debian(file) => unpacked.push(file),
                Source::Cargo(words) => built.push((peer, words)),
            },
            Need::Fetched(program) if tool::find(program.executable()).is_none() => fetched.push(program),
            Need::RustTarget(triple) if !has_target(triple)? => targets.push(triple),
            Need::CargoDeny if !deny::is_here() => deny = Some(deny::step()),
            Need::BpfFileSystem if !is_mounted(Path::new(BPFFS)) => mount_step = Some(mount_bpffs_step()),
            _ => {}
        }
    }
    let mut steps = Vec::new();
    steps.extend(mount_step);
    steps.extend(component_step(&components)?);
    steps.extend(targets.into_iter().map(target_step));
    steps.extend(linker_step);
    if !(unpacked.is_empty() && packages.is_empty()) {
        if tool::find("apt-get").is_none() {
            executables.extend(unpacked.iter().map(DebianFile::executable));
            bail!(
                "missing executables: {}; apt-get is not here to install them, use this system's package manager",
                executables.join(", ")
            );
        }
        steps.push(Step { does: "reading the package lists".into(), command: "apt-get update -qq".into() });
        steps.extend(package_step(packages));
        steps.extend(unpacked.iter().map(|file| unpack_step(&workspace::tools_dir(), file)));
    }
    steps.extend(redis_server.then(|| redis_server_step(&workspace::tools_dir())));
    // These steps come last, because the packages before may have the tools that they are built with.
    steps.extend(
        built.into_iter().map(|(peer, words)| peer::build_step(&workspace::tools_dir(), peer, words)),
    );
    steps.extend(deny);
    steps.extend(fetched.into_iter().map(|program| program.step(&workspace::tools_dir())));
    Ok(steps)
}

fn has_rust_src() -> Result<bool> {
    let sysroot = tool::output(tool::command("rustc").args(["--print", "sysroot"]))?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir())
}

fn has_target(triple: &str) -> Result<bool> {
    let libraries =
        tool::output(tool::command("rustc").args(["--print", "target-libdir", "--target", triple]))?;
    Ok(Path::new(libraries.trim()).is_dir())
}

fn target_step(triple: &str) -> Step {
    Step {
        does: format!("adding the standard library for {triple} to the Rust toolchain"),
        command: format!("rustup target add {triple}"),
    }
}

pub(crate) fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|mounted| Path::new(mounted) == path))
}

fn mount_bpffs_step() -> Step {
    Step {
        does: format!("mounting the BPF file system at {BPFFS}"),
        command: format!("mount -t bpf bpf {BPFFS}"),
    }
}

/// Whether a cargo subcommand runs. A rustup proxy exists even for components that are not installed, so its file proves nothing.
fn answers(cargo_subcommand: &str) -> bool {
    tool::output(tool::cargo().args([cargo_subcommand, "--version"])).is_ok()
}

fn component_step(components: &[&str]) -> Result<Option<Step>> {
    if components.is_empty() {
        return Ok(None);
    }
    let list = components.join(" ");
    if tool::find("rustup").is_none() {
        bail!(
            "missing parts of the Rust toolchain: {list}; rustup is not here to add them, install it from https://rustup.rs"
        );
    }
    Ok(Some(Step {
        does: format!("adding {list} to the Rust toolchain"),
        command: format!("rustup component add {list}"),
    }))
}

fn package_step(mut packages: Vec<&str>) -> Option<Step> {
    packages.dedup();
    let list = packages.join(" ");
    (!packages.is_empty()).then(|| Step {
        does: format!("installing Debian packages: {list}"),
        command: format!("apt-get install -y -qq --no-install-recommends {list}"),
    })
}

/// One executable of a Debian package that would start a server if it were installed. Only this file is needed, so it is unpacked for this
/// checkout, and the system stays as it was.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DebianFile {
    pub(crate) package: &'static str,
    /// The path of the executable below the root, always with three parts, such as `usr/bin/promtool`.
    pub(crate) path: &'static str,
}

impl DebianFile {
    fn executable(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }
}

const PROMTOOL: DebianFile = DebianFile { package: "prometheus", path: "usr/bin/promtool" };

fn unpack_step(tools_dir: &Path, file: &DebianFile) -> Step {
    let (dir, DebianFile { package, path }) = (quoted(tools_dir), file);
    Step {
        does: format!(
            "unpacking {} from Debian's package {package} into the target directory",
            file.executable()
        ),
        command: format!(
            "mkdir -p {dir} && (cd {dir} && apt-get download -qq -o APT::Sandbox::User=root {package} && \
             dpkg-deb --fsys-tarfile {package}_*.deb | tar -x --strip-components=3 ./{path} && rm {package}_*.deb)"
        ),
    }
}

/// Returns the step that provides redis-server. Debian's package starts a server when it is installed, and otherwise only has a link to the checker
/// in redis-tools: one executable that acts by the name it is called by. So the link is made for this checkout, and the system gets no server.
fn redis_server_step(tools_dir: &Path) -> Step {
    let dir = quoted(tools_dir);
    Step {
        does: "linking redis-server into the target directory".into(),
        command: format!("mkdir -p {dir} && ln -sf \"$(command -v {REDIS_CHECK})\" {dir}/redis-server"),
    }
}

/// Quotes a path as one word of a shell line.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c));
    if is_plain { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_package_that_brings_two_executables_is_installed_once() {
        let step = package_step(vec!["iproute2", "mount", "mount"]).unwrap();
        assert_eq!(step.command, "apt-get install -y -qq --no-install-recommends iproute2 mount");
    }

    #[test]
    fn nothing_missing_needs_no_step() {
        assert!(package_step(Vec::new()).is_none());
        assert!(component_step(&[]).unwrap().is_none());
    }

    #[test]
    fn redis_server_is_a_link_to_what_redis_tools_has() {
        let step = redis_server_step(Path::new("/t/tools"));
        let link = "ln -sf \"$(command -v redis-check-rdb)\" /t/tools/redis-server";
        assert_eq!(step.command, format!("mkdir -p /t/tools && {link}"));
    }

    #[test]
    fn one_file_of_a_package_is_unpacked_under_its_own_name() {
        let step = unpack_step(Path::new("/t/tools"), &PROMTOOL);
        assert!(step.command.contains("apt-get download -qq -o APT::Sandbox::User=root prometheus &&"));
        assert!(step.command.contains("tar -x --strip-components=3 ./usr/bin/promtool"), "{}", step.command);
        assert!(step.does.starts_with("unpacking promtool from"), "{}", step.does);
    }

    #[test]
    fn a_path_with_a_space_or_a_quote_stays_one_word() {
        assert_eq!(quoted(Path::new("/a/b-c.d")), "/a/b-c.d");
        assert_eq!(quoted(Path::new("/my code/it's")), r"'/my code/it'\''s'");
    }
}
