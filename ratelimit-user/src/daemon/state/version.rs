//! A version of the policy: its text, the file it came from, and the settings made since.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    config::{LoadError, Problem, Reader},
    failure::Failure,
    policy::{Policy, Setting},
};

/// A policy with its text and settings. Copies are cheap, because the text and the long parts of a policy are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct PolicyVersion {
    file: PathBuf,
    text: Arc<str>,
    as_read: Policy,
    policy: Policy,
    /// Settings made since, each once, in an order in which they can be made again: a list before the limits in it.
    set: Vec<(Setting, String)>,
}

impl PolicyVersion {
    /// Reads the policy of a text, with warnings for the operator.
    pub(in crate::daemon) fn parse(
        reader: &mut Reader,
        file: &Path,
        text: impl Into<Arc<str>>,
    ) -> Result<(Self, Vec<Problem>), LoadError> {
        let text = text.into();
        let loaded = reader.parse(&text, &file.display().to_string())?;
        let version = Self {
            file: file.to_owned(),
            text,
            as_read: loaded.policy.clone(),
            policy: loaded.policy,
            set: Vec::new(),
        };
        Ok((version, loaded.warnings))
    }

    /// Returns the file that the text was read from.
    pub(in crate::daemon) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the text, as it was read.
    pub(in crate::daemon) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text, shared instead of copied.
    pub(super) fn shared_text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// Returns the policy, with the settings made since.
    pub(in crate::daemon) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the policy of the text alone.
    pub(in crate::daemon) fn as_read(&self) -> &Policy {
        &self.as_read
    }

    /// Returns the settings made since the text was read, as they can be typed.
    pub(in crate::daemon) fn set(&self) -> impl Iterator<Item = (String, String)> {
        self.set.iter().map(|(setting, value)| (setting.to_string(), value.clone()))
    }

    /// Whether settings were made since the text was read.
    pub(in crate::daemon) fn is_changed(&self) -> bool {
        !self.set.is_empty()
    }

    /// Returns the version with one setting changed.
    pub(in crate::daemon) fn with(&self, setting: &Setting, value: &str) -> Result<Self, Failure> {
        let policy = self.policy.with(setting, value).map_err(Failure::usage)?;
        // A user whose limit differs from its plan gets a whole list of its own.
        let setting = match setting.list() {
            Some(list) if self.policy.inherited(list).is_some() => Setting::List(list.clone()),
            _ => setting.clone(),
        };
        let value = policy.value(&setting).unwrap_or_default();
        let mut next = Self { policy, ..self.clone() };
        if let Setting::List(list) = &setting {
            next.set.retain(|(other, _)| other.list() != Some(list));
        }
        match next.set.iter_mut().find(|(other, _)| *other == setting) {
            Some((_, before)) => *before = value,
            None => next.set.push((setting, value)),
        }
        Ok(next)
    }

    /// Returns the version with all given settings changed.
    pub(in crate::daemon) fn with_all(self, set: &[(String, String)]) -> Result<Self, Failure> {
        set.iter().try_fold(self, |version, (name, value)| {
            let setting = version.policy.setting(name).map_err(Failure::usage)?;
            version.with(&setting, value)
        })
    }

    /// Returns the version with a new text. Settings that the text has now are no longer kept.
    pub(in crate::daemon) fn with_text(&self, text: &str) -> Result<Self, LoadError> {
        let (read, _) = Self::parse(&mut Reader::default(), &self.file, text)?;
        let mut next = Self { policy: self.policy.clone(), set: self.set.clone(), ..read };
        next.set.retain(|(setting, _)| next.as_read.value(setting) != next.policy.value(setting));
        // A list that was set before one of its limits must include the later value of that limit.
        for (setting, value) in &mut next.set {
            *value = next.policy.value(setting).unwrap_or_default();
        }
        Ok(next)
    }

    /// Describes the version in a few words for messages.
    pub(in crate::daemon) fn describe(&self) -> String {
        let mut words = self.file.display().to_string();
        for (setting, value) in &self.set {
            words.push_str(&format!(", with {setting} set to {value}"));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[source]\nlimits = [\"10 packets/s\", \"5 syns/s\"]\n[plan.gold]\nnetwork = [\"7/s\", \"1 MB/s\"]\n\
                        [[user]]\nname = \"acme\"\nplan = \"gold\"\n";

    fn read() -> PolicyVersion {
        PolicyVersion::parse(&mut Reader::default(), Path::new("p.toml"), TEXT).unwrap().0
    }

    fn with(version: &PolicyVersion, name: &str, value: &str) -> PolicyVersion {
        version.with(&version.policy().setting(name).unwrap(), value).unwrap()
    }

    fn names(version: &PolicyVersion) -> Vec<String> {
        version.set().map(|(name, _)| name).collect()
    }

    #[test]
    fn what_was_set_is_remembered_once_each_and_can_be_written_down() {
        let read = read();
        let twice = with(&read, "source.packets", "20 packets/s");
        let twice = with(&twice, "source.syns", "1 syns/s");
        let twice = with(&twice, "source.packets", "30 packets/s");
        assert_eq!(twice.set().count(), 2);
        assert_eq!(twice.as_read(), read.policy(), "what was read stays what it was");
        let written: Vec<_> = twice.set().collect();
        assert_eq!(read.clone().with_all(&written).unwrap(), twice);
        assert_eq!(
            twice.describe(),
            "p.toml, with source.packets set to 30 packets/s burst 30, with source.syns set to 1 syns/s burst 1"
        );
        let saved = twice.with_text(&TEXT.replace("10 packets", "30 packets")).unwrap();
        assert_eq!(names(&saved), ["source.syns"]);
        assert_eq!(saved.policy(), twice.policy());
    }

    #[test]
    fn a_list_that_is_set_takes_the_place_of_its_limits_and_comes_before_them() {
        let version = with(&read(), "source.syns", "1 syns/s");
        let version = with(&version, "source", "20/s, 2 syns/s");
        assert_eq!(names(&version), ["source"]);
        let version = with(&version, "source.syns", "3 syns/s");
        assert_eq!(names(&version), ["source", "source.syns"]);
        assert_eq!(read().with_all(&version.set().collect::<Vec<_>>()).unwrap(), version);
        let saved = version.with_text(&TEXT.replace("5 syns", "3 syns")).unwrap();
        assert_eq!(names(&saved), ["source"], "which says the limit too");
        let again =
            PolicyVersion::parse(&mut Reader::default(), Path::new("p.toml"), saved.text()).unwrap().0;
        assert_eq!(again.with_all(&saved.set().collect::<Vec<_>>()).unwrap().policy(), version.policy());
    }

    #[test]
    fn one_limit_of_a_user_that_had_its_plans_is_remembered_as_a_list_of_its_own() {
        let version = with(&read(), "user.acme.network.packets", "3/s");
        let set: Vec<_> = version.set().collect();
        let own = "3 packets/s burst 3, 1 MB/s burst 1 MB";
        assert_eq!(set, [("user.acme.network".to_owned(), own.to_owned())]);
        let text = TEXT.replace("plan = \"gold\"", "network = [\"3/s\", \"1 MB/s\"]\nplan = \"gold\"");
        assert!(!version.with_text(&text).unwrap().is_changed(), "once the file says so");
        let back = with(&version, "user.acme.network", "plan");
        assert_eq!(back.policy(), read().policy());
    }
}
