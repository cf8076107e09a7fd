//! `ratelimit completions`: what a shell needs to complete words.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, output::print};
use crate::failure::Failure;

/// Print the script with which a shell completes verbs and options.
///
/// Example: ratelimit completions bash > /etc/bash_completion.d/ratelimit
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// Shell that shall complete
    shell: Shell,
}

impl Completions {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "ratelimit", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}
