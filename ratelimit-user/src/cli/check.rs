//! `ratelimit check`: a policy file, offline.

use std::path::PathBuf;

use clap::Args;

use super::output::{complain, print};
use crate::{config, failure::Failure};

/// Check a policy file; needs no root and no daemon.
///
/// All problems are reported at once, each with line and column.
///
/// Example: ratelimit check /etc/ratelimit.toml
#[derive(Debug, Args)]
pub(super) struct Check {
    /// Policy file
    file: PathBuf,
}

impl Check {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let loaded = config::load(&self.file)?;
        for warning in &loaded.warnings {
            complain(&format!("warning: {warning}"));
        }
        let mut text = format!("{}: ok\n", self.file.display());
        for limit in loaded.policy.source().limits() {
            text.push_str(&format!("  {}: {}\n", limit.name(), limit.rate()));
        }
        print(&text)
    }
}
