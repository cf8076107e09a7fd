//! The record of the policy that a restart goes on with, kept in the state directory if it is another one than that of the policy file.
//!
//! While an apply waits for confirmation the record holds the policy *before* it, so a daemon that is killed then comes back
//! with the old policy. Confirming replaces the record at once: at every moment it has one of the two policies.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    archive::{Archive, Stored},
    replacement::{self, Replacement},
    seal::Seal,
    version::PolicyVersion,
};
use crate::{
    build::BUILD,
    config::{self, LoadError, Problem, Reader},
    failure::{ExitCode, Failure},
    log,
};

/// File name in the state directory: the record on one line, its seal on the next.
const FILE: &str = "policy-in-force.json";
/// The file name of the copy of the record, which is used if the record is damaged.
const COPY: &str = "policy-in-force.copy.json";
/// The largest size of a record in bytes: two texts and names. JSON at most doubles a policy; the text of the policy file may be
/// anything, which JSON can make six times as long.
const MAX_RECORD: u64 = 8 * config::MAX_BYTES + (1 << 20);

/// The policy that a restart goes on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::daemon) struct Record<T = Arc<str>> {
    /// The file that the text was read from.
    file: String,
    text: T,
    /// Settings made since, kept only while an apply waits: otherwise `limit set` and `user set` end with the daemon.
    set: Vec<(String, String)>,
    /// The daemon's policy file; `policy_text` is its text when the record was written, `None` if it could not be read.
    policy_file: String,
    policy_text: Option<T>,
    /// The file of the policy that was waiting for confirmation.
    unconfirmed: Option<String>,
}

/// Why a daemon starts with a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum ChangeOrigin {
    /// The policy is that of the policy file.
    PolicyFile,
    /// The policy is that of the policy file, which has changed since another one was applied.
    PolicyFileChanged,
    /// The policy was applied, and the policy file has not changed since.
    Applied,
    /// The policy was in force before the policy in this file was applied, which nobody confirmed.
    NotConfirmed(String),
}

impl Record {
    /// Makes a record of `version` beside a policy file with the text `policy_text`.
    pub(in crate::daemon) fn new(
        version: &PolicyVersion,
        policy_file: &Path,
        policy_text: Option<String>,
    ) -> Self {
        Self {
            file: version.file().display().to_string(),
            text: version.shared_text(),
            set: Vec::new(),
            policy_file: policy_file.display().to_string(),
            policy_text: policy_text.map(Into::into),
            unconfirmed: None,
        }
    }

    /// Returns the record for as long as the policy in `file` waits for confirmation.
    pub(in crate::daemon) fn while_waiting(self, version: &PolicyVersion, file: &Path) -> Self {
        Self { set: version.set().collect(), unconfirmed: Some(file.display().to_string()), ..self }
    }

    /// Whether the policy file has the policy of the record, so that no record is needed.
    pub(in crate::daemon) fn is_superfluous(&self) -> bool {
        self.unconfirmed.is_none() && self.policy_text.as_ref() == Some(&self.text)
    }

    /// Whether the record counts beside a policy file with this text, or `None` if the file cannot be read: it must be as it was when the record was written.
    pub(in crate::daemon) fn counts_beside(&self, policy_file: &Path, policy_text: Option<&str>) -> bool {
        self.policy_file == policy_file.display().to_string() && self.policy_text.as_deref() == policy_text
    }

    /// Returns the path of the record in a state directory.
    pub(in crate::daemon) fn path(state: &Path) -> PathBuf {
        state.join(FILE)
    }

    /// Reads the record of a state directory, if there is one, with sentences about damage that copies could repair.
    pub(in crate::daemon) fn read(state: &Path) -> Result<(Option<Self>, Vec<String>), Failure> {
        let path = Self::path(state);
        let mut damage = Vec::new();
        let bytes = match bytes_of(&path) {
            Ok(bytes) => bytes,
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
                return Ok((None, damage));
            }
            Err(error) => {
                let is_forbidden = error.kind() == io::ErrorKind::PermissionDenied;
                let code = if is_forbidden { ExitCode::NotPermitted } else { ExitCode::Usage };
                return Err(Failure::new(code, unreadable(&path, &error.to_string())));
            }
        };
        let failed = |reason: String| Failure::usage(unreadable(&path, &reason));
        let stored = match opened(&bytes) {
            Ok(stored) => stored,
            Err(wrong) => {
                let copy = state.join(COPY);
                let stored = bytes_of(&copy).ok().and_then(|bytes| opened(&bytes).ok());
                damage.push(format!(
                    "{} is damaged: {wrong}; its copy {} is whole and is used",
                    path.display(),
                    copy.display()
                ));
                stored.ok_or_else(|| failed(wrong))?
            }
        };
        let whole = stored.with_texts(|text| {
            let (text, wrong) = text.read(state).map_err(&failed)?;
            damage.extend(wrong);
            Ok::<_, Failure>(text.into())
        });
        Ok((Some(whole?), damage))
    }

    /// Writes the record, or removes it if the policy file has its policy.
    pub(in crate::daemon) fn keep(self, archive: &mut Archive, state: &Path) -> io::Result<()> {
        if self.is_superfluous() {
            return Self::forget(archive, state);
        }
        let stored = self.with_texts(|text| archive.store(&text))?;
        let content = closed(&stored)?;
        Replacement::prepare(&Self::path(state), &content)?.commit()?;
        let copy = state.join(COPY);
        if let Err(error) = Replacement::prepare(&copy, &content).and_then(Replacement::commit) {
            log::warning(format!("cannot write {}, the copy of {FILE}: {error}", copy.display()));
        }
        let used: Vec<&Stored> = [&stored.text].into_iter().chain(&stored.policy_text).collect();
        archive.tidy(&used);
        Ok(())
    }

    /// Removes the record.
    pub(in crate::daemon) fn forget(archive: &mut Archive, state: &Path) -> io::Result<()> {
        replacement::remove(&Self::path(state))?;
        // The copy alone does not count, so a failure is ignored.
        let _stays = replacement::remove(&state.join(COPY));
        archive.tidy(&[]);
        Ok(())
    }
}

impl<T> Record<T> {
    /// Returns the record with its texts in another form.
    fn with_texts<U, E>(self, mut form: impl FnMut(T) -> Result<U, E>) -> Result<Record<U>, E> {
        Ok(Record {
            text: form(self.text)?,
            policy_text: self.policy_text.map(form).transpose()?,
            file: self.file,
            set: self.set,
            policy_file: self.policy_file,
            unconfirmed: self.unconfirmed,
        })
    }
}

fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_RECORD).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(path: &Path, reason: &str) -> String {
    let path = path.display();
    format!("cannot read {path}: {reason}; without that file the policy file counts alone")
}

/// Returns the bytes of a record with its seal.
fn closed(record: &Record<Stored>) -> serde_json::Result<Vec<u8>> {
    let mut content = serde_json::to_vec(record)?;
    let seal = serde_json::to_vec(&Seal::of(&content))?;
    content.push(b'\n');
    content.extend(seal);
    content.push(b'\n');
    Ok(content)
}

/// Reads a record, and checks that it is what was written. A record without a seal is of an older build, and is not checked.
pub(in crate::daemon) fn opened(bytes: &[u8]) -> Result<Record<Stored>, String> {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let (record, seal) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    if !seal.is_empty() {
        let seal: Seal = serde_json::from_slice(seal).map_err(|error| format!("its checksum: {error}"))?;
        seal.check(record)?;
    }
    serde_json::from_slice(record).map_err(|error| error.to_string())
}

/// Chooses the policy to start with. `policy_text` is the text of the policy file now.
pub(in crate::daemon) fn choose(
    reader: &mut Reader,
    record: Option<Record>,
    state: &Path,
    policy_file: &Path,
    policy_text: Result<String, LoadError>,
) -> Result<(PolicyVersion, Vec<Problem>, ChangeOrigin), Failure> {
    let mut of_file =
        |text: Result<String, LoadError>| Ok::<_, Failure>(PolicyVersion::parse(reader, policy_file, text?)?);
    let Some(record) = record else {
        let (version, warnings) = of_file(policy_text)?;
        return Ok((version, warnings, ChangeOrigin::PolicyFile));
    };
    let counts = record.counts_beside(policy_file, policy_text.as_deref().ok());
    if record.unconfirmed.is_none() && !counts {
        let (version, warnings) = of_file(policy_text)?;
        return Ok((version, warnings, ChangeOrigin::PolicyFileChanged));
    }
    // Another build may have applied the policy of the record, and its file may have changed since.
    let unreadable = |why: Failure| {
        let (kept, policy_file) = (Record::path(state), policy_file.display());
        Failure::new(
            why.code,
            format!(
                "{} holds a policy that this build ({BUILD}) cannot read: {why}; without that file {policy_file} counts",
                kept.display()
            ),
        )
    };
    let parsed = PolicyVersion::parse(reader, Path::new(&record.file), record.text).map_err(Failure::from);
    let (version, warnings) = parsed.map_err(unreadable)?;
    let version = version.with_all(&record.set).map_err(unreadable)?;
    Ok((version, warnings, record.unconfirmed.map_or(ChangeOrigin::Applied, ChangeOrigin::NotConfirmed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &str = "[source]\nlimits = [\"1000/s\"]\n";
    const OTHER: &str = "[source]\nlimits = [\"2000/s\"]\n";

    fn version(file: &str, text: &str) -> PolicyVersion {
        PolicyVersion::parse(&mut Reader::default(), Path::new(file), text).unwrap().0
    }

    fn chosen(record: Option<Record>, policy_text: &str) -> (PolicyVersion, ChangeOrigin) {
        let (version, _, origin) = choose(
            &mut Reader::default(),
            record,
            Path::new("state"),
            Path::new("main.toml"),
            Ok(policy_text.to_owned()),
        )
        .unwrap();
        (version, origin)
    }

    fn record(applied: &PolicyVersion) -> Record {
        Record::new(applied, Path::new("main.toml"), Some(MAIN.to_owned()))
    }

    #[test]
    fn without_a_record_the_policy_file_counts() {
        assert_eq!(chosen(None, MAIN), (version("main.toml", MAIN), ChangeOrigin::PolicyFile));
    }

    #[test]
    fn an_applied_policy_counts_until_the_policy_file_changes() {
        let applied = version("other.toml", OTHER);
        assert_eq!(chosen(Some(record(&applied)), MAIN), (applied.clone(), ChangeOrigin::Applied));
        let edited = "[source]\nlimits = [\"3000/s\"]\n";
        assert_eq!(
            chosen(Some(record(&applied)), edited),
            (version("main.toml", edited), ChangeOrigin::PolicyFileChanged)
        );
        let elsewhere = Record { policy_file: "elsewhere.toml".to_owned(), ..record(&applied) };
        assert_eq!(
            chosen(Some(elsewhere), MAIN).1,
            ChangeOrigin::PolicyFileChanged,
            "another file was named"
        );
    }

    #[test]
    fn a_policy_that_nobody_confirmed_never_counts_whatever_the_policy_file_says() {
        let read = version("main.toml", MAIN);
        let old = read.with(&read.policy().setting("source.packets").unwrap(), "7/s").unwrap();
        let waiting = record(&old).while_waiting(&old, Path::new("main.toml"));
        for text_now in [MAIN, OTHER, "broken"] {
            let expected = (old.clone(), ChangeOrigin::NotConfirmed("main.toml".to_owned()));
            assert_eq!(chosen(Some(waiting.clone()), text_now), expected, "limits that were set included");
        }
    }

    #[test]
    fn a_broken_policy_file_is_an_error_also_beside_a_record() {
        let applied = version("other.toml", OTHER);
        let reader = &mut Reader::default();
        let result = choose(
            reader,
            Some(record(&applied)),
            Path::new("state"),
            Path::new("main.toml"),
            Ok("broken".to_owned()),
        );
        assert!(result.unwrap_err().message.contains("main.toml:1:"));
    }

    #[test]
    fn a_record_with_any_byte_changed_or_cut_off_is_refused_and_an_older_one_is_taken() {
        let applied = version("other.toml", OTHER);
        let stored = record(&applied).with_texts(|text| Ok::<_, ()>(Stored::Here(text.to_string()))).unwrap();
        let content = closed(&stored).unwrap();
        assert_eq!(opened(&content).as_ref(), Ok(&stored));
        let line = content.iter().position(|byte| *byte == b'\n').unwrap();
        assert_eq!(opened(&content[..line]), Ok(stored), "without a seal, as older builds wrote it");
        for at in 0..content.len() - 1 {
            let mut flipped = content.clone();
            flipped[at] ^= 1;
            assert!(opened(&flipped).is_err(), "byte {at}");
        }
        for end in (0..line).chain(line + 2..content.len() - 1) {
            assert!(opened(&content[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_record_of_what_the_policy_file_says_is_not_kept_unless_it_waits() {
        let same = version("main.toml", MAIN);
        assert!(record(&same).is_superfluous());
        assert!(!record(&same).while_waiting(&same, Path::new("new.toml")).is_superfluous());
        assert!(!record(&version("other.toml", OTHER)).is_superfluous());
    }

    #[test]
    fn a_kept_policy_of_another_build_is_named_by_the_file_that_it_is_kept_in() {
        let applied = version("other.toml", OTHER);
        let newer = Record { text: "[from_the_future]\n".into(), ..record(&applied) };
        let reader = &mut Reader::default();
        let failure =
            choose(reader, Some(newer), Path::new("state"), Path::new("main.toml"), Ok(MAIN.to_owned()));
        let message = failure.unwrap_err().message;
        assert!(
            message.starts_with("state/policy-in-force.json holds a policy that this build ("),
            "{message}"
        );
        assert!(message.ends_with("; without that file main.toml counts"), "{message}");
    }
}
