//! Builds the whole workspace once: the binaries, the test programs and the examples.
//!
//! Clippy takes the place of the compiler, as in `cargo clippy`, but goes on to make code: the code that is checked is the code that runs, and
//! no dependency is compiled once for the linter and once more for the tests. Clippy checks only members of the workspace.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::tool;

/// The compiler for the members of the workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compiler {
    Rustc,
    Clippy,
}

/// Returns a cargo command with a compiler. One compiler does not use what the other has built.
pub(crate) fn cargo(compiler: Compiler) -> Command {
    let mut cargo = tool::cargo();
    if compiler == Compiler::Clippy {
        cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    }
    cargo
}

/// Compiles everything, and returns cargo's messages about what it has built; `heard` gets each message when cargo sends it. If clippy compiles,
/// warnings are shown and are failures.
pub(crate) fn everything(compiler: Compiler, mut heard: impl FnMut(&Value)) -> Result<Vec<Value>> {
    let mut cargo = cargo(compiler);
    cargo.args(["build", "--workspace", "--bins", "--tests", "--examples"]);
    cargo.args(["--message-format", "json-diagnostic-rendered-ansi"]);
    let mut child =
        cargo.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no standard output")?;
    let mut said = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line.context("cannot read what cargo says")?;
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(diagnostic) = diagnostic(&message) {
            eprint!("{diagnostic}");
        }
        heard(&message);
        said.push(message);
    }
    let status = child.wait().context("cannot wait for cargo")?;
    if !status.success() {
        bail!("the workspace does not build: {status}");
    }
    if compiler == Compiler::Clippy && said.iter().any(|message| diagnostic(message).is_some()) {
        bail!("the build has the warnings above; none may be left");
    }
    Ok(said)
}

/// Returns a diagnostic of the compiler as the text that it would show.
fn diagnostic(message: &Value) -> Option<&str> {
    let about = &message["message"];
    let counts =
        message["reason"] == "compiler-message" && (about["level"] == "warning" || about["level"] == "error");
    about["rendered"].as_str().filter(|_| counts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn warnings_and_errors_are_told_and_notes_and_artifacts_are_not() {
        let message = |level: &str| json!({ "reason": "compiler-message", "message": { "level": level, "rendered": "unused x" } });
        assert_eq!(diagnostic(&message("warning")), Some("unused x"));
        assert_eq!(diagnostic(&message("error")), Some("unused x"));
        assert_eq!(diagnostic(&message("note")), None);
        assert_eq!(
            diagnostic(&json!({ "reason": "compiler-artifact", "message": { "level": "warning" } })),
            None
        );
    }
}
