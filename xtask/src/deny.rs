//! Runs `cargo deny`, which checks the licences and sources of crates, and whether they have security advisories (`deny.toml`).

use anyhow::{Context, Result, bail};

use crate::setup::Step;
use crate::{tool, workspace};

/// The repository of advisories, named in the message if it cannot be fetched.
const DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// Whether cargo-deny is installed.
pub(crate) fn is_here() -> bool {
    tool::find("cargo-deny").is_some()
}

/// Returns the step that installs cargo-deny. It is built without optimisation, because it runs for seconds.
pub(crate) fn step() -> Step {
    let dir = crate::setup::quoted(&workspace::tools_dir());
    Step {
        does: "building cargo-deny into the target directory (a few minutes)".into(),
        command: format!(
            "nice -n 19 cargo install --locked --quiet --debug cargo-deny --version 0.20.2 --root {dir} --target-dir {dir}/build && \
             ln -sf bin/cargo-deny {dir}/cargo-deny"
        ),
    }
}

/// Checks licences, bans and sources, and advisories if their database can be fetched.
pub(crate) fn check() -> Result<()> {
    eprintln!("deny: licences, bans, sources");
    tool::run(tool::cargo().args(["deny", "--log-level", "error", "check", "licenses", "bans", "sources"]))?;
    eprintln!("deny: advisories");
    if let Err(error) = tool::output(tool::cargo().args(["deny", "--log-level", "error", "fetch", "db"])) {
        eprintln!("deny: NOT CHECKED for advisories: {DATABASE} cannot be fetched ({})", last_line(&error));
        return Ok(());
    }
    tool::run(tool::cargo().args(["deny", "--offline", "--log-level", "error", "check", "advisories"]))
        .context("a crate has an advisory; update it, or say in deny.toml why it does not matter")
}

fn last_line(error: &anyhow::Error) -> String {
    error.to_string().lines().next_back().unwrap_or_default().trim().to_owned()
}

/// Checks the parts that need no network, for `cargo xtask lint`, if cargo-deny is installed.
pub(crate) fn check_if_here() -> Result<()> {
    if !is_here() {
        eprintln!("deny: cargo-deny is not here; `cargo xtask dist` brings it");
        return Ok(());
    }
    let checked = tool::output(tool::cargo().args([
        "deny",
        "--offline",
        "--log-level",
        "error",
        "check",
        "licenses",
        "bans",
        "sources",
    ]));
    if let Err(error) = checked {
        bail!("{error}");
    }
    Ok(())
}
