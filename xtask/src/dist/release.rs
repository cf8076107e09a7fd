//! What this build is called, and when it was made: from the commit, so that two builds of one commit are alike.

use anyhow::{Context, Result};

use crate::tool;

/// Name and moment of a build.
#[derive(Clone)]
pub(super) struct Release {
    /// Of the workspace: `0.1.0`.
    pub(super) version: String,
    /// Grows from commit to commit: `20261116171500.f6541a9`.
    pub(super) revision: String,
    /// Seconds since 1970, of the commit.
    pub(super) epoch: String,
    /// The time of the commit as people write it.
    pub(super) moment: String,
}

impl Release {
    pub(super) fn of_checkout() -> Result<Self> {
        let commit = |format: &str| {
            let mut git = tool::command("git");
            git.args(["log", "-1", "--date=format-local:%Y%m%d%H%M%S", &format!("--format={format}")]);
            let said = tool::output(git.env("TZ", "UTC")).context("packages are named after the commit")?;
            Ok::<String, anyhow::Error>(said.trim().to_owned())
        };
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: format!("{}.{}", commit("%cd")?, commit("%h")?),
            epoch: commit("%ct")?,
            moment: commit("%cI")?,
        })
    }

    /// As dpkg compares it.
    pub(super) fn debian(&self) -> String {
        format!("{}+{}", self.version, self.revision)
    }
}
