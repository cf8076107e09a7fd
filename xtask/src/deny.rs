//! Runs `cargo deny`, which checks the licences and sources of crates, and whether they have security advisories (`deny.toml`).

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};

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

/// Checks licences, bans and sources, and advisories: those of a local clone of their database if there is one, or else if they can be fetched.
pub(crate) fn check(clone: Option<&Path>) -> Result<()> {
    eprintln!("deny: licences, bans, sources");
    tool::run(tool::cargo().args(["deny", "--log-level", "error", "check", "licenses", "bans", "sources"]))?;
    eprintln!("deny: advisories");
    if let Some(clone) = clone {
        return check_advisories_of(clone, &workspace::target_dir().join("advisories"));
    }
    if let Err(error) = tool::output(tool::cargo().args(["deny", "--log-level", "error", "fetch", "db"])) {
        eprintln!(
            "deny: NOT CHECKED for advisories: {DATABASE} cannot be fetched ({}); --advisories takes a local clone of it",
            last_line(&error)
        );
        return Ok(());
    }
    tool::run(tool::cargo().args(["deny", "--offline", "--log-level", "error", "check", "advisories"]))
        .context(FOUND)
}

/// Checks the advisories of a local clone of their database, and prints how old it is.
///
/// `work` is a directory for a copy of the clone: cargo-deny takes its database from the branch `main` of a repository alone, which a bare or detached
/// clone may not have.
fn check_advisories_of(clone: &Path, work: &Path) -> Result<()> {
    let clone = clone.canonicalize().with_context(|| format!("cannot read {}", clone.display()))?;
    if work.exists() {
        fs::remove_dir_all(work).with_context(|| format!("cannot empty {}", work.display()))?;
    }
    fs::create_dir_all(work).with_context(|| format!("cannot make {}", work.display()))?;
    let copy = work.join("copy");
    tool::output(tool::command("git").args(["clone", "--quiet"]).arg(&clone).arg(&copy))
        .with_context(|| format!("{} is no clone of {DATABASE}", clone.display()))?;
    let git = |words: &[&str]| tool::output(tool::command("git").arg("-C").arg(&copy).args(words));
    git(&["checkout", "--quiet", "-B", "main"])?;
    ensure!(
        copy.join("crates").is_dir(),
        "{} has no directory \"crates\", so it is no clone of {DATABASE}",
        clone.display()
    );
    let (commit, seconds) =
        (git(&["log", "-1", "--format=%h of %cs"])?, git(&["log", "-1", "--format=%ct"])?);
    let made = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.trim().parse()?);
    eprintln!("deny: advisories of {}: {}, {}", clone.display(), commit.trim(), age(made, SystemTime::now()));
    let config = work.join("deny.toml");
    fs::write(&config, with_place(&fs::read_to_string(workspace::root().join("deny.toml"))?, work)?)?;
    // cargo-deny takes no address without a host, and fetches with git, which is told of another place for this one.
    let mut deny = tool::cargo();
    deny.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_VALUE_0", DATABASE);
    deny.env("GIT_CONFIG_KEY_0", format!("url.file://{}.insteadOf", copy.display()));
    deny.args(["deny", "--log-level", "error", "--config"]).arg(&config).args(["check", "advisories"]);
    tool::run(&mut deny).context(FOUND)
}

const FOUND: &str = "a crate has an advisory; update it, or say in deny.toml why it does not matter";

/// Returns the configuration with another place for databases, so that what was fetched for others stays as it is.
fn with_place(config: &str, place: &Path) -> Result<String> {
    let table = "[advisories]\n";
    ensure!(config.contains(table), "deny.toml has no table [advisories]");
    Ok(config.replacen(table, &format!("{table}db-path = {place:?}\n"), 1))
}

/// Returns the age of the newest advisory in words. A clone that is older than a month lacks what has been found since.
fn age(made: SystemTime, now: SystemTime) -> String {
    let days = now.duration_since(made).unwrap_or_default().as_secs() / 86_400;
    let warning = if days > 30 { ": OLD, what has been found since is NOT CHECKED" } else { "" };
    format!("{days} days old{warning}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory that goes with the value.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("xtask-deny-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A database with an advisory about every version of a crate, committed at the beginning of 2026 on a branch of another name.
    fn database(dir: &Path, about: &str) {
        let folder = dir.join("crates").join(about);
        fs::create_dir_all(&folder).unwrap();
        let advisory = format!(
            "```toml\n[advisory]\nid = \"RUSTSEC-2026-0001\"\npackage = \"{about}\"\ndate = \"2026-01-01\"\n\n\
             [versions]\npatched = []\n```\n\n# It does not hold\n\nNothing does.\n"
        );
        fs::write(folder.join("RUSTSEC-2026-0001.md"), advisory).unwrap();
        commit(dir);
    }

    fn commit(dir: &Path) {
        for words in [
            &["init", "--quiet", "--initial-branch", "other"][..],
            &["add", "."],
            &[
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@b.example",
                "commit",
                "--quiet",
                "--allow-empty",
                "-m",
                "one",
            ],
        ] {
            let mut git = tool::command("git");
            git.arg("-C").arg(dir).args(words).env("GIT_COMMITTER_DATE", "2026-01-01T00:00:00Z");
            tool::output(&mut git).unwrap();
        }
    }

    #[test]
    fn what_is_no_clone_of_the_database_is_refused_with_its_path() {
        let scratch = Scratch::new("refused");
        let dir = scratch.0.join("db");
        let refused =
            |dir: &Path| format!("{:#}", check_advisories_of(dir, &scratch.0.join("work")).unwrap_err());
        assert!(refused(&dir).contains("cannot read") && refused(&dir).contains("db"), "{}", refused(&dir));
        fs::create_dir(&dir).unwrap();
        assert!(refused(&dir).contains("db is no clone of https://github.com/RustSec/advisory-db"));
        commit(&dir);
        assert!(refused(&dir).contains("has no directory \"crates\""), "{}", refused(&dir));
    }

    #[test]
    fn the_age_of_a_clone_is_told_and_after_a_month_what_that_means() {
        let days = |days: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400);
        assert_eq!(age(days(100), days(130)), "30 days old");
        assert_eq!(age(days(100), days(131)), "31 days old: OLD, what has been found since is NOT CHECKED");
        assert_eq!(age(days(101), days(100)), "0 days old", "a clock that is behind");
    }

    #[test]
    fn the_database_of_a_clone_has_a_place_of_its_own() {
        let config = fs::read_to_string(workspace::root().join("deny.toml")).unwrap();
        let other = with_place(&config, Path::new("/a")).unwrap();
        assert!(other.contains("[advisories]\ndb-path = \"/a\"\nversion = 2\n"), "{other}");
        assert!(with_place("[bans]\n", Path::new("/a")).is_err());
    }

    #[test]
    fn an_advisory_about_a_crate_of_ours_fails_and_one_about_another_does_not() {
        if !is_here() {
            // It takes minutes to build, and only `cargo xtask dist` needs it.
            eprintln!("NOT TESTED: cargo-deny is not here; `cargo xtask dist` brings it");
            return;
        }
        for (about, is_fine) in [("anyhow", false), ("a-crate-of-nobody", true)] {
            let scratch = Scratch::new(about);
            let clone = scratch.0.join("db");
            database(&clone, about);
            let checked = check_advisories_of(&clone, &scratch.0.join("work"));
            assert_eq!(checked.is_ok(), is_fine, "{about}: {checked:?}");
            if let Err(error) = checked {
                assert_eq!(error.to_string(), FOUND);
            }
        }
    }
}
