//! Other people's programs, with their complaint in the error.

use std::{ffi::OsStr, process::Command};

use anyhow::{Context, Result, bail};

/// Runs a program to its end and returns what it printed.
pub(crate) fn run<I: IntoIterator<Item: AsRef<OsStr>>>(program: &str, words: I) -> Result<String> {
    let mut command = Command::new(program);
    output(command.args(words))
}

/// Runs a command to its end and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    let shown = words.join(" ");
    let done = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    if !done.status.success() {
        bail!("`{shown}` ended with {}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_named_with_its_complaint() {
        let error = run("sh", ["-c", "echo no such wire >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.starts_with("`sh -c ") && error.ends_with("exit status: 3: no such wire"), "{error}");
    }
}
