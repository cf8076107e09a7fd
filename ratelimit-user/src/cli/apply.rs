//! `ratelimit apply`: another policy, from one packet to the next.

use std::path::PathBuf;

use clap::Args;
use ratelimit_common::limit::lifetime::{LifetimeFault, parse_lifetime};

use super::{
    DaemonArgs, Format,
    diff::{ask_about, read},
    operator::Force,
    output::{Output, complain, print, print_json},
};
use crate::{
    control::{
        client::unexpected,
        protocol::{Order, Reply},
    },
    failure::Failure,
};

/// Put a policy in force; with --confirm, only if somebody confirms it.
///
/// The file is checked first; one with a mistake changes nothing. With --confirm the policy before comes back unless `ratelimit
/// confirm` follows in time: also if your connection is lost, or the daemon is killed and started again.
///
/// After a restart the daemon goes on with the applied policy, unless the file of `run --policy` has changed since.
///
/// Example: ratelimit apply new.toml --confirm 30s
///
/// Then, from a new connection: ratelimit confirm. Not with && in one line: the host would confirm to itself.
#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// Policy file
    file: PathBuf,
    /// Roll back unless `ratelimit confirm` follows within this time, such as 30s or 5m
    #[arg(long, value_name = "TIME")]
    confirm: Option<String>,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    format: Format,
}

impl ApplyArgs {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let confirm_ns = match self.confirm.as_deref().map(parse_lifetime).transpose() {
            Ok(confirm_ns) => confirm_ns,
            // The words for a lifetime that is too long are about blocks.
            Err(error) if error.fault() == LifetimeFault::TooLong => {
                return Err(Failure::usage(format!(
                    "--confirm: {:?} is out of range; use 1s to 24h",
                    error.piece()
                )));
            }
            Err(error) => return Err(Failure::usage(format!("--confirm: {error}"))),
        };
        let (file, text) = read(&self.file)?;
        let operator = self.force.operator();
        let request = Order::Apply { file, text, text_follows: None, confirm_ns, operator };
        match ask_about(&self.daemon.state, &self.file, request)? {
            Reply::Applied { message, list_entries_written, microseconds, warnings } => {
                warnings.iter().for_each(|warning| complain(&format!("warning: {warning}")));
                match self.format.output {
                    Output::Text => print(&format!("{message}\n")),
                    Output::Json => print_json(&serde_json::json!({
                        "done": message,
                        "list_entries_written": list_entries_written,
                        "microseconds": microseconds,
                        "warnings": warnings,
                    })),
                }
            }
            other => Err(unexpected(&other)),
        }
    }
}
