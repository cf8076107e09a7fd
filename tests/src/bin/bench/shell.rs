//! Other people's programs, with their complaint in the error.

use std::{
    ffi::OsStr,
    io::Write as _,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, ensure};

/// Runs a program to its end and returns what it printed.
pub(crate) fn run<I: IntoIterator<Item: AsRef<OsStr>>>(program: &str, words: I) -> Result<String> {
    let mut command = Command::new(program);
    output(command.args(words))
}

/// Runs a command to its end with a text as its input.
pub(crate) fn fed(command: &mut Command, input: &str) -> Result<()> {
    let shown = shown(command);
    let mut child = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let done = child.wait_with_output().with_context(|| format!("cannot wait for `{shown}`"))?;
    // The complaint of a program says more than a pipe that broke.
    succeeded(&shown, &done)?;
    written.transpose().with_context(|| format!("`{shown}` did not read its input"))?;
    Ok(())
}

/// Runs a command to its end and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let done = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    succeeded(&shown, &done)?;
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

fn succeeded(shown: &str, done: &Output) -> Result<()> {
    let complaint = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "`{shown}` ended with {}: {}", done.status, complaint.trim());
    Ok(())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
