//! `ratelimit diff`: what apply would change.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::{
    DaemonArgs, Format,
    output::{Output, complain, print, print_json},
};
use crate::{
    config,
    control::{
        client::{ask, unexpected},
        protocol::{Order, Reply},
    },
    failure::{ExitCode, Failure},
    policy::changes::PolicyChange,
};

/// Show what `apply` would change.
///
/// Compares a policy file with the policy in force, whatever order either is written in. Exits with 0 if nothing would
/// change, with 1 if something would.
///
/// Example: ratelimit diff /etc/ratelimit.toml
#[derive(Debug, Args)]
pub(super) struct Diff {
    /// Policy file
    file: PathBuf,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    format: Format,
}

/// The JSON form of one change. Scripts read it: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct DiffRow<'a> {
    #[serde(flatten)]
    change: &'a PolicyChange,
    sentence: String,
}

impl Diff {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let (file, text) = read(&self.file)?;
        let (changes, warnings) = match ask_about(
            &self.daemon.state,
            &self.file,
            Order::Diff { file, text, text_follows: None },
        )? {
            Reply::Changes { changes, warnings } => {
                warnings.iter().for_each(|warning| complain(&format!("warning: {warning}")));
                (changes, warnings)
            }
            other => return Err(unexpected(&other)),
        };
        match self.format.output {
            Output::Json => {
                let row = |change| DiffRow { change, sentence: change.to_string() };
                let rows: Vec<_> = changes.iter().map(row).collect();
                print_json(&serde_json::json!({ "changes": rows, "warnings": warnings }))?;
            }
            Output::Text if changes.is_empty() => print("nothing would change\n")?,
            Output::Text => print(&changes.iter().map(|change| format!("{change}\n")).collect::<String>())?,
        }
        if changes.is_empty() { Ok(()) } else { Err(Failure::new(ExitCode::Found, "")) }
    }
}

/// The text of a policy file, and its full name: the daemon may be somewhere else.
pub(super) fn read(path: &Path) -> Result<(PathBuf, String), Failure> {
    let text = config::read_text(path)?;
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // JSON has no bytes: a name that is no text is sent as near as can be.
    Ok((full.to_string_lossy().into_owned().into(), text))
}

/// Asks about a policy file. The daemon checks it; if there is none, the file is checked here, because what is wrong with it comes first.
pub(super) fn ask_about(state: &Path, file: &Path, request: Order) -> Result<Reply, Failure> {
    ask(state, request).or_else(|failure| match failure.code {
        ExitCode::NoDaemon => config::load(file).map_err(Failure::from).and(Err(failure)),
        _ => Err(failure),
    })
}
