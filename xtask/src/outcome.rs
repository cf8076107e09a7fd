//! The endings of a command that fails: the exit codes of the project, and the one place that prints errors.

use std::fmt;
use std::process::ExitCode;

/// Endings that have an exit code of their own; every other error is 1.
#[derive(Debug)]
pub(crate) enum Ending {
    /// `--no-install` found something missing and has printed the commands.
    SomethingMissing,
    /// The command needs root.
    NotPermitted { command: &'static str },
    /// The command has printed its failure itself, and only the exit code is left.
    Told,
    /// Ctrl-C, SIGTERM or SIGHUP; by now everything is cleaned up.
    Interrupted,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SomethingMissing => write!(f, "the commands above install what is missing"),
            Self::NotPermitted { command } => {
                write!(
                    f,
                    "`cargo xtask {command}` loads BPF programs and makes network namespaces, which takes root; run it in a root shell"
                )
            }
            Self::Told => write!(f, "failed"),
            Self::Interrupted => write!(f, "interrupted; everything this run made is removed"),
        }
    }
}

impl std::error::Error for Ending {}

pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let ending = error.downcast_ref::<Ending>();
    if !matches!(ending, Some(Ending::Told)) {
        eprintln!("xtask: {error:#}");
    }
    match ending {
        Some(Ending::NotPermitted { .. }) => ExitCode::from(4),
        // A shell reports 128 + SIGINT for a command that Ctrl-C ended.
        Some(Ending::Interrupted) => ExitCode::from(130),
        Some(Ending::SomethingMissing | Ending::Told) | None => ExitCode::FAILURE,
    }
}
