//! `ratelimit man`: manual pages, from what the command line says of itself.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, Command, CommandFactory as _};

use super::{Cli, output::print};
use crate::{
    build::BUILD,
    failure::{ExitCode, Failure},
};

/// Write the manual pages into a directory, one for each verb.
///
/// The directory is made if it is not there. Packages put the pages where `man` looks for them.
///
/// Example: ratelimit man ~/.local/share/man/man1
#[derive(Debug, Args)]
pub(super) struct Man {
    /// Directory for the pages
    directory: PathBuf,
}

impl Man {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            let code = match error.kind() {
                io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
                // A file in its place, or a path that cannot be one.
                _ => ExitCode::Usage,
            };
            let message = format!(
                "cannot write manual pages into {}: {error}; name a directory",
                self.directory.display()
            );
            Failure::new(code, message)
        };
        fs::create_dir_all(&self.directory).map_err(failed)?;
        let mut command = Cli::command().disable_help_subcommand(true);
        // Gives verbs the names of their pages: `ratelimit-block-add`.
        command.build();
        let pages = write(&command, &self.directory).map_err(failed)?;
        print(&format!("{pages} manual pages are in {}\n", self.directory.display()))
    }
}

/// Writes the page of a command and those of its verbs. How many.
fn write(command: &Command, directory: &Path) -> io::Result<usize> {
    let page = clap_mangen::Man::new(command.clone());
    // The build takes the place of a date: two runs of one build write the same pages.
    page.date(BUILD).source("ratelimit").manual("ratelimit").generate_to(directory)?;
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let mut verbs = verbs.collect::<Vec<_>>().into_iter();
    verbs.try_fold(1, |pages, verb| Ok(pages + write(verb, directory)?))
}
