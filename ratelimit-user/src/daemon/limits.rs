//! The limits of the running policy, one by one.

use ratelimit_common::limit::{rate::Rate, text};

use super::{caller::By, host::Host, log, replacement::Replacement, version::Version};
use crate::{
    config::{self, edit},
    failure::{ExitCode, Failure},
    policy::Policy,
    serve::protocol::{LimitInfo, Operator, Reply},
};

/// Whether a limit is also written into the file that the policy came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Save {
    No,
    Yes,
}

impl Host {
    /// All of them.
    pub(super) fn limits(&self) -> Vec<LimitInfo> {
        let named = self.version.policy().source().limits().iter();
        named
            .map(|named| LimitInfo {
                name: named.name().to_owned(),
                rate: named.rate().to_string(),
                meter: named.rate().meter.name().to_owned(),
                amount: named.rate().amount,
                period: named.rate().period.name().to_owned(),
                burst: named.rate().burst,
            })
            .collect()
    }

    /// One of them.
    pub(super) fn limit(&self, name: &str) -> Result<Reply, Failure> {
        let all = self.limits();
        let known: Vec<_> = all.iter().map(|limit| limit.name.clone()).collect();
        match all.into_iter().find(|limit| limit.name == name) {
            Some(limit) => Ok(Reply::Limits(vec![limit])),
            None => {
                Err(Failure::usage(format!("no limit is called {name:?}; there is {}", known.join(", "))))
            }
        }
    }

    /// Changes one from the next packet on.
    pub(super) fn set_limit(
        &mut self,
        name: &str,
        typed: &str,
        save: Save,
        operator: &Operator,
        by: &By,
    ) -> Result<Reply, Failure> {
        self.refuse_while_waiting("limit set")?;
        let rate =
            text::parse_rate(typed).map_err(|error| Failure::usage(format!("limit {name:?}: {error}")))?;
        let next = self.version.with_limit(name, rate)?;
        self.refuse_starving(next.policy(), operator)?;
        if save == Save::No {
            self.enforce(next.policy())?;
            self.supersede(next);
            log::info(format!("limit {name} set to {rate} by {by}; the policy file is unchanged"));
            return Ok(Reply::Done(format!("{name} is {rate} from now on, until the policy is read again")));
        }
        let file = next.file().to_owned();
        let (saved, replacement) = self.prepare_save(&next, name, rate, typed)?;
        self.enforce(next.policy())?;
        if let Err(error) = replacement.commit() {
            let failure = cannot_write(&next, &error);
            let old = self.version.clone();
            self.enforce(old.policy())?;
            return Err(failure);
        }
        let kept = self.is_kept();
        self.supersede(saved);
        // The record of an applied policy follows; otherwise the file is all there is.
        if kept && let Err(failure) = self.keep_in_force() {
            log::warning(failure);
        }
        let file = file.display();
        log::info(format!("limit {name} set to {rate} by {by}; written into {file}"));
        Ok(Reply::Done(format!("{name} is {rate} from now on; written into {file}")))
    }

    /// The file with the new limit in it, not in place yet, and the version that it makes of `next`.
    fn prepare_save(
        &self,
        next: &Version,
        name: &str,
        rate: Rate,
        typed: &str,
    ) -> Result<(Version, Replacement), Failure> {
        let file = next.file();
        let content = config::read_text(file)?;
        let in_file = config::parse(&content, &file.display().to_string())?.policy;
        let replaced = [self.version.as_read(), self.version.policy()].map(|policy| rate_of(policy, name));
        let found = rate_of(&in_file, name);
        if !replaced.contains(&found) {
            let words =
                |rate: Option<Rate>| rate.map_or("no such limit".to_owned(), |rate| format!("\"{rate}\""));
            return Err(Failure::usage(format!(
                "limit {name}: {} has {}, and what would be replaced is {}; read the file first (SIGHUP), or leave out --save",
                file.display(),
                words(found),
                words(replaced[1])
            )));
        }
        let typed = plain(typed, rate);
        let edited = edited(&content, &in_file, name, rate, &typed, file)?;
        let text = edited_text(next, name, rate, &typed)?;
        let saved = next.with_saved(name, &text)?;
        let replacement =
            Replacement::prepare(file, edited.as_bytes()).map_err(|error| cannot_write(next, &error))?;
        Ok((saved, replacement))
    }
}

/// The text of the version itself with the limit in it: the file may have other changes, which are not in force.
fn edited_text(next: &Version, name: &str, rate: Rate, typed: &str) -> Result<String, Failure> {
    edited(next.text(), next.as_read(), name, rate, typed, next.file())
}

fn edited(
    text: &str,
    policy: &Policy,
    name: &str,
    rate: Rate,
    typed: &str,
    file: &std::path::Path,
) -> Result<String, Failure> {
    let limits = policy.source().limits();
    let index = limits.iter().position(|limit| limit.name() == name).unwrap_or(limits.len());
    let file = file.display().to_string();
    let edited = edit::set_source_limit(text, index, typed)
        .map_err(|error| Failure::usage(format!("cannot change {file}: {error}")))?;
    let after = config::parse(&edited, &file)
        .map_err(|error| Failure::usage(format!("not written, {file} would be wrong then:\n{error}")))?;
    if rate_of(&after.policy, name) != Some(rate) {
        let message =
            format!("not written: {name} in {file} would not become \"{rate}\"; edit the file by hand");
        return Err(Failure::usage(message));
    }
    Ok(edited)
}

fn rate_of(policy: &Policy, name: &str) -> Option<Rate> {
    policy.source().limits().iter().find(|limit| limit.name() == name).map(|limit| *limit.rate())
}

/// As it was typed where that can stand in quotes as it is.
fn plain(typed: &str, rate: Rate) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || " ./_".contains(c);
    let typed = typed.trim();
    if typed.chars().all(harmless) { typed.to_owned() } else { rate.to_string() }
}

fn cannot_write(version: &Version, error: &std::io::Error) -> Failure {
    let code = match error.kind() {
        std::io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
        _ => ExitCode::Usage,
    };
    Failure::new(code, format!("cannot write {}: {error}; nothing was changed", version.file().display()))
}
