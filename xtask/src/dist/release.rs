//! The version and time of a build, taken from the commit, so that two builds of one commit are alike.

use anyhow::{Context, Result};

use crate::tool;

/// The version and time of a build.
#[derive(Clone)]
pub(super) struct Release {
    /// The version of the workspace: `0.1.0`.
    pub(super) version: String,
    /// The revision, which grows from commit to commit: `20261116171500.f6541a9`.
    pub(super) revision: String,
    /// The time of the commit in seconds since 1970.
    pub(super) epoch: String,
    /// The time of the commit in ISO 8601.
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

    /// Returns the version in the form that dpkg compares.
    pub(super) fn debian(&self) -> String {
        format!("{}+{}", self.version, self.revision)
    }
}
