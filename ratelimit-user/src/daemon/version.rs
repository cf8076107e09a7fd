//! One policy that was or is in force: its text, the file it came from, and what `limit set` made of it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ratelimit_common::limit::{rate::Rate, text::parse_rate};

use crate::{
    config::{LoadError, Problem, Reader},
    failure::Failure,
    policy::Policy,
};

/// A policy with its history. Cheap to keep: the text and what is long in a policy are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    file: PathBuf,
    text: Arc<str>,
    as_read: Policy,
    policy: Policy,
    /// Limits set since, by name, each once.
    set: Vec<(String, Rate)>,
}

impl Version {
    /// The policy of a text, and what the operator should know about it.
    pub(super) fn parse(
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

    /// The file that the text was read from.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The text, as it was read.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The same, without a copy.
    pub(super) fn shared_text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// What it means, limits set since included.
    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What the text alone means.
    pub(super) fn as_read(&self) -> &Policy {
        &self.as_read
    }

    /// Limits set since it was read, as they can be typed.
    pub(super) fn set(&self) -> impl Iterator<Item = (String, String)> {
        self.set.iter().map(|(name, rate)| (name.clone(), rate.to_string()))
    }

    /// Whether a limit was set since it was read.
    pub(super) fn is_changed(&self) -> bool {
        !self.set.is_empty()
    }

    /// The same with one limit set.
    pub(super) fn with_limit(&self, name: &str, rate: Rate) -> Result<Self, Failure> {
        let mut next = self.clone();
        next.policy = self.policy.with_limit(name, rate).map_err(Failure::usage)?;
        match next.set.iter_mut().find(|(other, _)| other == name) {
            Some((_, before)) => *before = rate,
            None => next.set.push((name.to_owned(), rate)),
        }
        Ok(next)
    }

    /// The same with limits set that were written down.
    pub(super) fn with_limits(self, set: &[(String, String)]) -> Result<Self, Failure> {
        set.iter().try_fold(self, |version, (name, rate)| {
            let rate =
                parse_rate(rate).map_err(|error| Failure::usage(format!("limit {name:?}: {error}")))?;
            version.with_limit(name, rate)
        })
    }

    /// The same with a text that says what one of the set limits says: that one is not a change any more.
    pub(super) fn with_saved(&self, name: &str, text: &str) -> Result<Self, LoadError> {
        let (mut saved, _) = Self::parse(&mut Reader::default(), &self.file, text)?;
        saved.policy = self.policy.clone();
        saved.set = self.set.iter().filter(|(other, _)| other != name).cloned().collect();
        Ok(saved)
    }

    /// A few words for messages.
    pub(super) fn describe(&self) -> String {
        let mut words = self.file.display().to_string();
        for (name, rate) in &self.set {
            words.push_str(&format!(", with {name} set to {rate}"));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_were_set_are_remembered_once_each_and_can_be_written_down() {
        let text = "[source]\nlimits = [\"10 packets/s\", \"5 syns/s\"]\n";
        let (read, _) = Version::parse(&mut Reader::default(), Path::new("p.toml"), text).unwrap();
        let rate = |text| parse_rate(text).unwrap();
        let twice = read.with_limit("source.packets", rate("20 packets/s")).unwrap();
        let twice = twice.with_limit("source.syns", rate("1 syns/s")).unwrap();
        let twice = twice.with_limit("source.packets", rate("30 packets/s")).unwrap();
        assert_eq!(twice.set().count(), 2);
        assert_eq!(twice.as_read(), read.policy(), "what was read stays what it was");
        let written: Vec<_> = twice.set().collect();
        assert_eq!(read.clone().with_limits(&written).unwrap(), twice);
        assert_eq!(
            twice.describe(),
            "p.toml, with source.packets set to 30 packets/s burst 30, with source.syns set to 1 syns/s burst 1"
        );
        let saved = twice.with_saved("source.packets", &text.replace("10 packets", "30 packets")).unwrap();
        assert_eq!(saved.set().map(|(name, _)| name).collect::<Vec<_>>(), ["source.syns"]);
        assert_eq!(saved.policy(), twice.policy());
    }
}
