//! Finds programs of others, starts them with our PATH, and reports which one failed.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Directories that are added to PATH: a root shell from plain `su` often has no sbin in PATH, and `ip` is there.
const SYSTEM_DIRS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Returns the PATH of every child: our own tools first, then cargo's, so that an older bpf-linker elsewhere is not used.
pub(crate) fn search_path() -> OsString {
    let inherited = env::var_os("PATH").unwrap_or_default();
    let mut dirs = vec![workspace::tools_dir()];
    dirs.extend(workspace::cargo_bin_dir());
    dirs.extend(env::split_paths(&inherited));
    dirs.extend(SYSTEM_DIRS.iter().map(PathBuf::from));
    let mut seen: Vec<PathBuf> = Vec::new();
    for dir in dirs {
        // join_paths refuses a directory with a colon, which could not be in PATH anyway.
        if !dir.as_os_str().is_empty() && !dir.to_string_lossy().contains(':') && !seen.contains(&dir) {
            seen.push(dir);
        }
    }
    env::join_paths(seen).unwrap_or(inherited)
}

pub(crate) fn find(executable: &str) -> Option<PathBuf> {
    env::split_paths(&search_path()).map(|dir| dir.join(executable)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Returns a command that runs in the repository with our PATH.
///
/// Variables that cargo sets for the package `xtask` are removed: build scripts of other crates read them, and would run again, with all that depends
/// on them, whenever cargo is started by us and not by hand.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path()).current_dir(workspace::root());
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_this_package(name)) {
        command.env_remove(name);
    }
    command
}

fn is_of_this_package(variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

pub(crate) fn cargo() -> Command {
    command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command to its end with our own standard streams.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs a command to its end and returns its output; on failure the error has its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let done =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", shown(command)))?;
    if !done.status.success() {
        let complaint = String::from_utf8_lossy(&done.stderr);
        bail!("{} ended with {}: {}", shown(command), done.status, complaint.trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Returns a command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    format!("`{}`", words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" "))
}

/// Whether our effective user is root. /proc/self belongs to the effective user, so no libc call is needed.
pub(crate) fn is_root() -> bool {
    Path::new("/proc/self").metadata().is_ok_and(|own| own.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_named_with_its_status_and_its_complaint() {
        let error = output(command("sh").args(["-c", "echo no such bucket >&2; exit 3"])).unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("`sh -c "), "{said}");
        assert!(said.contains("exit status: 3: no such bucket"), "{said}");
    }

    #[test]
    fn the_tools_of_this_checkout_come_first_in_the_path() {
        assert_eq!(env::split_paths(&search_path()).next(), Some(workspace::tools_dir()));
    }

    #[test]
    fn commands_are_told_nothing_of_the_package_that_starts_them() {
        let names =
            [("CARGO_PKG_NAME", true), ("CARGO_MANIFEST_DIR", true), ("CARGO", false), ("PATH", false)];
        for (name, of_package) in names {
            assert_eq!(is_of_this_package(OsStr::new(name)), of_package, "{name}");
        }
        // Cargo sets these for tests that it starts itself.
        let told = output(&mut command("env")).unwrap();
        assert!(!told.contains("CARGO_PKG_") && !told.contains("CARGO_MANIFEST_"), "{told}");
    }

    #[test]
    fn an_executable_that_does_not_exist_is_not_found() {
        assert_eq!(find("surely-nobody-has-this-one"), None);
        assert!(find("sh").is_some());
    }
}
