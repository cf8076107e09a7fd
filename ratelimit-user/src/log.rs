//! The daemon's log: events of `tracing`, as lines on standard error or as entries of the journal.
//!
//! A plain sentence is logged with [`info`], [`warning`] or [`error`]. An event that scripts look for has fields as well:
//! `tracing::info!(event = "block", %prefix, by = %by, "{prefix} blocked by {by}")`. People read the sentence; JSON and the journal have both.

mod entry;
mod journal;
mod stderr;
mod writer;

use std::{env, fmt, str::FromStr};

use tracing::Level;

use self::writer::LogWriter;
use crate::failure::Failure;

/// The environment variable with the level of the log, unless `--log-level` names one.
const VARIABLE: &str = "RATELIMIT_LOG";

/// Logs something that an operator may want to know.
pub(crate) fn info(message: impl fmt::Display) {
    tracing::info!("{message}");
}

/// Logs something that an operator should look at.
pub(crate) fn warning(message: impl fmt::Display) {
    tracing::warn!("{message}");
}

/// Logs something that failed.
pub(crate) fn error(message: impl fmt::Display) {
    tracing::error!("{message}");
}

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people, and for the journal if it listens.
    #[default]
    Human,
    /// One object a line.
    Json,
}

/// The level of the least important events that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogLevel(pub(crate) Level);

impl LogLevel {
    /// The word for the level.
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            _ => "debug",
        }
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(match text {
            "error" => Level::ERROR,
            "warn" | "warning" => Level::WARN,
            "info" => Level::INFO,
            "debug" => Level::DEBUG,
            _ => return Err("use error, warn, info or debug".to_owned()),
        }))
    }
}

/// Starts the log. Without this call events are discarded: verbs other than `run` and `serve` have no log.
pub(crate) fn start(format: LogFormat, level: Option<LogLevel>) -> Result<(), Failure> {
    let LogLevel(level) = match (level, env::var(VARIABLE)) {
        (Some(level), _) => level,
        (None, Ok(text)) if !text.is_empty() => text
            .parse()
            .map_err(|why| Failure::usage(format!("{VARIABLE} in the environment is {text:?}: {why}")))?,
        (None, _) => LogLevel(Level::INFO),
    };
    // A program that runs the daemon inside it may have set a log of its own.
    let _theirs = tracing::subscriber::set_global_default(LogWriter::new(format, level));
    Ok(())
}
