//! The image that guests start from: an initramfs with busybox, the suites, the daemon and those of earlier commits, and the libraries of this machine
//! that they are linked with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::console;
use crate::{earlier, tool, workspace};

/// The test program whose modules are the suites: it loads the kernel program.
const PROGRAM: &str = "packets";
/// The suites that guests run: three of the script that they start with, and modules of the program. Its other modules could run there too, but an
/// emulated guest takes seconds to load the kernel program for each test.
pub(super) const SUITES: [&str; 11] = [
    "daemon",
    "cookies",
    UPGRADE,
    "object",
    "verdicts",
    "express",
    "differential",
    "prefilter",
    "cpus",
    "leases",
    "samples",
];
/// The suite in which daemons of earlier commits take over from this one, and this one from them.
pub(super) const UPGRADE: &str = "upgrade";
/// The names of the daemons of earlier commits in a guest: one with the map layout of this commit, and one with another.
const EARLIER: [&str; 2] = ["ratelimit-same-layout", "ratelimit-other-layout"];

/// The executables for guests, as cargo has built them for this machine.
pub(super) struct Executables {
    /// The program with the suites.
    pub(super) suites: PathBuf,
    daemon: PathBuf,
    /// Daemons of earlier commits, named `EARLIER`, if the suite that needs them is run.
    earlier: Option<[PathBuf; 2]>,
}

impl Executables {
    /// Compiles the executables, with the whole workspace: with fewer packages, dependencies would have other features and be compiled once more.
    pub(super) fn build(suites: &[&str]) -> Result<Self> {
        eprintln!("vm: building the suites and the daemon");
        let mut built = cargo(&["test", "--no-run", "--workspace", "--test", PROGRAM])?;
        built.extend(cargo(&["build", "--workspace", "--bin", "ratelimit"])?);
        let mut executables = Self::among(&built)?;
        if suites.contains(&UPGRADE) {
            let [same, other] = [earlier::SAME_LAYOUT, earlier::OTHER_LAYOUT].map(earlier::build);
            executables.earlier = Some([same?, other?]);
        }
        Ok(executables)
    }

    /// Finds the program and the daemon in cargo's messages.
    pub(super) fn among(built: &[Value]) -> Result<Self> {
        Ok(Self {
            suites: executable(built, PROGRAM, "test")?,
            daemon: executable(built, "ratelimit", "bin")?,
            earlier: None,
        })
    }

    /// Returns all executables, by their names in a guest.
    fn by_name(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let earlier = EARLIER.into_iter().zip(self.earlier.iter().flatten());
        [(PROGRAM, &self.suites), ("ratelimit", &self.daemon)].into_iter().chain(earlier)
    }
}

fn cargo(args: &[&str]) -> Result<Vec<Value>> {
    let said = tool::output(tool::cargo().args(args).args(["--message-format", "json-render-diagnostics"]))?;
    Ok(said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Finds the executable of a name and kind in cargo's messages (`--message-format json`). A program is also reported as a test of itself.
fn executable(messages: &[Value], name: &str, kind: &str) -> Result<PathBuf> {
    let mut found = messages.iter().filter_map(|message| {
        let target = &message["target"];
        let is_test = message["profile"]["test"] == true;
        let fits = target["name"] == name && target["kind"][0] == kind && is_test == (kind == "test");
        fits.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    });
    found.next_back().with_context(|| format!("cargo did not say where it put the {kind} {name}"))
}

/// Packs the initramfs.
pub(super) fn pack(built: &Executables, suites: &[&str]) -> Result<PathBuf> {
    let root = super::dir().join("root");
    let _nothing_there = fs::remove_dir_all(&root);
    for part in ["bin", "dev", "proc", "sys", "tmp"] {
        let part = root.join(part);
        fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
    }
    for (name, path) in built.by_name() {
        // Symbols are stripped: 30 MB become 4, and the guest unpacks them in memory.
        tool::output(tool::command("strip").arg("-o").arg(root.join("bin").join(name)).arg(path))?;
        for library in libraries(&tool::output(tool::command("ldd").arg(path))?) {
            let place = root.join(library.strip_prefix("/").unwrap_or(&library));
            fs::create_dir_all(place.parent().unwrap_or(&root))?;
            fs::copy(&library, &place).with_context(|| format!("cannot copy {}", library.display()))?;
        }
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
    let manifest_dir = workspace::root().join("tests");
    let guest = console::Guest { program: PROGRAM, suites, earlier: EARLIER, manifest_dir: &manifest_dir };
    fs::write(&init, guest.init_script())?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let image = super::dir().join("initramfs");
    let archive = fs::File::create(&image).with_context(|| format!("cannot write {}", image.display()))?;
    // The image is not compressed, because an emulated guest is slow at unpacking.
    tool::run(
        tool::command("sh")
            .args(["-euc", "find . | cpio --create --format=newc --quiet --owner=0:0"])
            .current_dir(&root)
            .stdout(archive),
    )?;
    Ok(image)
}

/// Reads the files that an executable needs from `ldd`, its loader included: `libm.so.6 => /lib/libm.so.6 (0x7f00)`, `/lib64/ld.so (0x7f01)`.
fn libraries(said: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let (found, _address) = line.trim().rsplit_once(" (")?;
        let path = found.rsplit(" => ").next().unwrap_or(found);
        path.starts_with('/').then(|| path.into())
    };
    said.lines().filter_map(path).collect()
}

/// Whether an executable is static. A dynamically linked one names its loader.
fn is_static(path: &Path) -> Result<bool> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let loader = b"/ld-linux-x86-64.so.2\0";
    Ok(!bytes.windows(loader.len()).any(|window| window == loader))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_executable_is_found_by_name_and_kind_among_cargos_messages() {
        let artifact = |name: &str, kind: &str, is_test: bool, executable: &str| {
            json!({
                "reason": "compiler-artifact", "target": { "kind": [kind], "name": name },
                "profile": { "test": is_test }, "executable": executable,
            })
        };
        let messages = [
            json!({ "reason": "compiler-artifact", "target": { "kind": ["lib"], "name": "packets" }, "executable": null }),
            artifact("packets", "test", true, "/t/deps/packets-1"),
            artifact("ratelimit", "bin", false, "/t/ratelimit"),
            artifact("ratelimit", "bin", true, "/t/deps/ratelimit-2"),
            json!({ "reason": "build-finished", "success": true }),
        ];
        let built = Executables::among(&messages).unwrap();
        assert_eq!((built.suites, built.daemon), ("/t/deps/packets-1".into(), "/t/ratelimit".into()));
        assert!(executable(&messages, "packets", "bin").is_err());
    }

    #[test]
    fn libraries_are_the_files_that_ldd_names_and_not_what_the_kernel_adds() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f00)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n";
        assert_eq!(
            libraries(said),
            [Path::new("/lib/x86_64-linux-gnu/libm.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]
        );
        assert!(libraries("\tstatically linked\n").is_empty());
    }
}
