//! How a verb that stays writes its log.

use clap::{Args, ValueEnum};

use crate::{
    failure::Failure,
    log::{self, LogLevel},
};

/// The log on standard error.
#[derive(Clone, Debug, Args)]
pub(super) struct LogOptions {
    /// How the log is written: for people, or one JSON object a line
    #[arg(long, value_enum, default_value_t = LogForm::Human)]
    log_format: LogForm,
    /// What is logged: error, warn, info or debug; without it, what RATELIMIT_LOG in the environment says, or info
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LogLevel>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogForm {
    /// For people; under systemd the journal gets level and fields
    Human,
    /// For programs
    Json,
}

impl LogOptions {
    /// These options as words of a command line.
    pub(super) fn words(&self) -> Vec<String> {
        let form = match self.log_format {
            LogForm::Human => "human",
            LogForm::Json => "json",
        };
        let level = self.log_level.map(|level| format!("--log-level={}", level.name()));
        [format!("--log-format={form}")].into_iter().chain(level).collect()
    }

    /// Begins to write the log.
    pub(super) fn start(&self) -> Result<(), Failure> {
        let format = match self.log_format {
            LogForm::Human => log::LogFormat::Human,
            LogForm::Json => log::LogFormat::Json,
        };
        log::start(format, self.log_level)
    }
}
