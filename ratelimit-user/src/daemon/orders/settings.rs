//! Changes single settings of the running policy, and of the file that it came from if the operator asks for it.

use std::path::Path;

use ratelimit_common::limit::text::parse_rate;

use super::caller::By;
use crate::{
    config::{self, edit},
    control::protocol::Operator,
    daemon::{
        in_force::{PolicyInForce, enforcer::Enforcer},
        lists::vital::refuse_policy,
        state::{replacement::Replacement, version::PolicyVersion},
    },
    failure::Failure,
    log,
    policy::{OF_PLAN, Policy, Setting, pieces},
};

/// The end of the message about a file that cannot be written.
const UNCHANGED: &str = "nothing was changed";

/// Whether a setting is also written into the file that the policy came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Save {
    No,
    Yes,
}

/// Settings to change together, each with its value as it was typed.
#[derive(Debug)]
pub(in crate::daemon) struct Assignments<'a> {
    /// The verb, for messages.
    pub(super) verb: &'static str,
    pub(in crate::daemon) settings: Vec<(Setting, String)>,
    pub(in crate::daemon) save: Save,
    pub(in crate::daemon) operator: &'a Operator,
}

impl PolicyInForce {
    /// Makes all changes from the next packet on, or none. Returns the end of a sentence, about the file.
    pub(in crate::daemon) fn set(
        &mut self,
        order: &Assignments<'_>,
        by: &By<'_>,
        enforcer: &mut Enforcer<'_>,
    ) -> Result<String, Failure> {
        self.refuse_while_waiting(order.verb)?;
        let set = |version: PolicyVersion, (setting, typed): &(Setting, String)| version.with(setting, typed);
        let next = order.settings.iter().try_fold(self.version.clone(), set)?;
        refuse_policy(next.policy(), self.policy(), enforcer.lists, order.operator)?;
        if order.save == Save::No {
            enforcer.enforce(&next)?;
            self.supersede(next);
            self.log(order, by, "the policy file is unchanged");
            return Ok(", until the policy is read again".to_owned());
        }
        let (saved, replacement) = self.prepare_save(&next, &order.settings)?;
        enforcer.enforce(&next)?;
        if let Err(error) = replacement.commit() {
            let failure = Failure::cannot_write(next.file(), &error).and(UNCHANGED);
            enforcer.enforce(&self.version)?;
            return Err(failure);
        }
        let kept = self.is_kept();
        self.supersede(saved);
        // If a record of an applied policy is kept, it follows the change; otherwise a restart reads the file.
        if kept && let Err(failure) = self.keep_in_force() {
            log::warning(failure);
        }
        let written = format!("written into {}", next.file().display());
        self.log(order, by, &written);
        Ok(format!("; {written}"))
    }

    fn log(&self, order: &Assignments<'_>, by: &By<'_>, file: &str) {
        for (setting, _) in &order.settings {
            let value = self.policy().value(setting).unwrap_or_default();
            tracing::info!(event = "policy", change = "set", %setting, %value, %by, "{setting} set to {value} by {by}; {file}");
        }
    }

    /// Prepares the file with all settings in it, not in place yet, and the version that has the new text.
    fn prepare_save(
        &self,
        next: &PolicyVersion,
        settings: &[(Setting, String)],
    ) -> Result<(PolicyVersion, Replacement), Failure> {
        let file = next.file();
        let mut content = config::read_text(file)?;
        let mut saved = next.clone();
        for (setting, typed) in settings {
            self.refuse_to_overwrite(&content, setting, file)?;
            content = edited(&content, setting, typed, file)?;
            // The version keeps its own text with these settings: the file may have other changes, which are not in force.
            let text = edited(saved.text(), setting, typed, file)?;
            saved = saved.with_text(&text)?;
        }
        let cannot = |error| Failure::cannot_write(file, &error).and(UNCHANGED);
        let replacement = Replacement::prepare(file, content.as_bytes()).map_err(cannot)?;
        Ok((saved, replacement))
    }

    /// Refuses to overwrite a setting that somebody has changed in the file since it was read.
    fn refuse_to_overwrite(&self, content: &str, setting: &Setting, file: &Path) -> Result<(), Failure> {
        let name = file.display().to_string();
        let found = config::parse(content, &name)?.policy.value(setting);
        let replaced = [self.version.as_read(), self.policy()].map(|policy| policy.value(setting));
        if replaced.contains(&found) {
            return Ok(());
        }
        let words = |value: &Option<String>| {
            value.as_ref().map_or("no such limit".to_owned(), |value| format!("\"{value}\""))
        };
        Err(Failure::usage(format!(
            "{setting}: {name} has {}, and what would be replaced is {}; read the file first (SIGHUP), or leave out --save",
            words(&found),
            words(&replaced[1])
        )))
    }
}

/// Returns the text of a policy with one setting changed, checked like any policy.
fn edited(text: &str, setting: &Setting, typed: &str, file: &Path) -> Result<String, Failure> {
    let file = file.display().to_string();
    let wanted =
        config::parse(text, &file)?.policy.with(setting, typed).map_err(Failure::usage)?.value(setting);
    let edited = splice(text, setting, typed, &file)?;
    let after = config::parse(&edited, &file).map_err(|error| {
        Failure::usage(format!("not written: {file} would not be a valid policy:\n{error}"))
    })?;
    if after.policy.value(setting) != wanted {
        let value = wanted.unwrap_or_default();
        let message =
            format!("not written: {setting} in {file} would not become \"{value}\"; edit the file by hand");
        return Err(Failure::usage(message));
    }
    Ok(edited)
}

fn splice(text: &str, setting: &Setting, typed: &str, file: &str) -> Result<String, Failure> {
    let policy = config::parse(text, file)?.policy;
    let edited = match setting {
        Setting::Plan { user } => edit::set_plan(text, user, typed),
        Setting::List(list) if typed.trim() == OF_PLAN => edit::remove_list(text, list),
        Setting::List(list) | Setting::Limit { list, .. } => {
            let after = policy.with(setting, typed).map_err(Failure::usage)?;
            edit::set_list(text, list, &as_typed(&after, setting, typed))
        }
    };
    edited.map_err(|error| Failure::usage(format!("cannot change {file}: {error}")))
}

/// Returns the limits of a setting's list as texts: as they were typed if that can stand between quotes, otherwise as they are usually written.
fn as_typed(after: &Policy, setting: &Setting, typed: &str) -> Vec<String> {
    let harmless = |piece: &&str| piece.chars().all(|c| c.is_ascii_alphanumeric() || " ./_".contains(c));
    let pieces: Vec<&str> = pieces(typed).into_iter().filter(harmless).collect();
    let rates = setting.list().map_or_else(Vec::new, |list| after.rates(list));
    let words = |rate: &_| {
        let same = |piece: &&&str| parse_rate(piece).is_ok_and(|parsed| parsed == *rate);
        pieces.iter().find(same).map_or_else(|| rate.to_string(), |piece| (*piece).to_owned())
    };
    rates.iter().map(words).collect()
}
