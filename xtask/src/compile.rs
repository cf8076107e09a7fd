//! One build of the whole workspace: the binaries, the test programs and the examples.
//!
//! Clippy stands in the place of the compiler while it does so, as `cargo clippy` puts it, but goes on to make code: what is checked is what
//! then runs, and no dependency is compiled once for the linter and once more for the tests. Only members of the workspace are looked at.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::tool;

/// Who compiles the members of the workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compiler {
    Rustc,
    Clippy,
}

/// Cargo with a compiler. What one compiler has made is not used by the other.
pub(crate) fn cargo(compiler: Compiler) -> Command {
    let mut cargo = tool::cargo();
    if compiler == Compiler::Clippy {
        cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    }
    cargo
}

/// Compiles everything, and returns what cargo says it has made; `heard` gets each message when cargo sends it. A warning is shown and is a
/// failure, when clippy compiles.
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

/// What the compiler has to say about the code, as it shows it.
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
