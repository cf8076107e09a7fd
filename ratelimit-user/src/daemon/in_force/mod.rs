//! The policy in force, the version to go back to, and the record that a restart goes on with.

pub(super) mod enforcer;
pub(super) mod translation;
pub(super) mod waiting;

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use self::waiting::ConfirmationWait;
use super::{
    options::Options,
    state::{archive::Archive, record::Record, unsaved, version::PolicyVersion},
};
use crate::{
    config::{self, Reader},
    control::protocol::{Reply, Unconfirmed},
    dataplane::interface,
    failure::Failure,
    log,
    policy::{Policy, changes::changes},
};

/// The versions of the policy, and what is saved of them.
#[derive(Debug)]
pub(super) struct PolicyInForce {
    pub(super) policy_path: PathBuf,
    /// Whether the next start guards the interfaces of the policy, because the command line names none.
    names_interfaces: bool,
    /// The state directory.
    state: PathBuf,
    pub(super) version: PolicyVersion,
    /// The version before the last change.
    pub(super) previous: Option<PolicyVersion>,
    /// The wait for confirmation, with the version that comes back without one.
    pub(super) waiting: Option<ConfirmationWait>,
    /// Why the policy file could not be read the last time, if it could not.
    pub(super) unread: Option<Unread>,
    /// The settings without `--save`, as they were last noted on disk.
    unsaved: Vec<(String, String)>,
    /// The texts that records refer to.
    archive: Archive,
    /// Reads policies; a policy much like the one before is read quickly.
    pub(super) reader: Reader,
}

/// A policy file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    why: String,
    /// Whether a record is kept that a restart goes on with although the file cannot be read.
    is_made_up_for: bool,
}

impl Unread {
    /// Makes the problem from the first line of a failure. `is_made_up_for`: a restart has a record to go on with.
    pub(super) fn new(failure: &Failure, is_made_up_for: bool) -> Self {
        Self { why: failure.message.lines().next().unwrap_or_default().to_owned(), is_made_up_for }
    }

    /// Returns a sentence about the file's problem, and the policy that counts instead.
    pub(super) fn warning(&self) -> String {
        let why = &self.why;
        match self.is_made_up_for {
            false => format!("SIGHUP did not read the policy file, the policy before stays in force: {why}"),
            true => {
                format!("the policy file has a mistake, and what was applied beside it stays in force: {why}")
            }
        }
    }
}

impl PolicyInForce {
    /// Makes the state for a version that has just been put in force.
    pub(super) fn new(options: &Options, version: PolicyVersion, reader: Reader) -> Self {
        Self {
            policy_path: options.policy.clone(),
            names_interfaces: options.interfaces.is_empty(),
            state: options.state.clone(),
            version,
            previous: None,
            waiting: None,
            unread: None,
            unsaved: Vec::new(),
            archive: Archive::new(&options.state),
            reader,
        }
    }

    /// Returns the policy in force.
    pub(super) fn policy(&self) -> &Policy {
        self.version.policy()
    }

    /// Returns the changes that applying a policy would make.
    pub(super) fn diff(&mut self, file: &Path, text: String) -> Result<Reply, Failure> {
        let (next, warnings) = PolicyVersion::parse(&mut self.reader, file, text)?;
        let changes = changes(self.policy(), next.policy());
        Ok(Reply::Changes { changes, warnings: warnings.iter().map(ToString::to_string).collect() })
    }

    /// Refuses a policy that names a new interface which does not exist, because the next start would fail. An interface that is in force
    /// already may be away for now.
    pub(super) fn refuse_absent_interfaces(&self, next: &Policy) -> Result<(), Failure> {
        let known = self.policy().interfaces();
        let mut new = next.interfaces().iter().filter(|name| !known.contains(name)).peekable();
        if !self.names_interfaces || new.peek().is_none() {
            return Ok(());
        }
        let all = interface::list()?;
        new.try_for_each(|name| interface::among(&all, &name.to_string()).map(drop)).map_err(|error| {
            Failure::usage(format!("{error}; nothing was changed, because the next start would fail"))
        })
    }

    /// Takes over the next version, and keeps the present one to go back to.
    pub(super) fn supersede(&mut self, next: PolicyVersion) {
        self.previous = Some(std::mem::replace(&mut self.version, next));
    }

    /// Returns when the wait for confirmation ends, if there is one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.as_ref().map(ConfirmationWait::deadline)
    }

    /// Returns the wait for confirmation, for `status`.
    pub(super) fn unconfirmed(&self, now: Instant) -> Option<Unconfirmed> {
        let waiting = self.waiting.as_ref()?;
        Some(Unconfirmed {
            seconds_left: waiting.seconds_left(now),
            back_to: waiting.version_before.describe(),
            changes: changes(waiting.version_before.policy(), self.policy()),
        })
    }

    /// Refuses an order while an apply waits for confirmation.
    pub(super) fn refuse_while_waiting(&self, what: &str) -> Result<(), Failure> {
        let Some(waiting) = &self.waiting else { return Ok(()) };
        Err(Failure::usage(format!(
            "{what} refused: {} waits for confirmation for another {} s; run `ratelimit confirm` or `ratelimit rollback` first",
            self.version.file().display(),
            waiting.seconds_left(Instant::now())
        )))
    }

    /// Returns a sentence about the policy that a restart goes on with.
    pub(super) fn after_restart(&self) -> String {
        let file = self.policy_path.display();
        if self.waiting.is_some() {
            return "a restart goes back to the policy before".to_owned();
        }
        if self.unread.as_ref().is_some_and(|unread| !unread.is_made_up_for) {
            return format!("a restart fails until {file} is mended, which the last SIGHUP could not read");
        }
        match (self.is_kept(), self.version.is_changed()) {
            (true, false) => format!("a restart goes on with it as long as {file} stays as it is"),
            (true, true) => format!(
                "a restart goes on with {} as it was applied, without what was set since, as long as {file} stays as it is",
                self.version.file().display()
            ),
            (false, false) => format!("a restart reads {file}"),
            (false, true) => format!("a restart reads {file}, without what was set since"),
        }
    }

    /// Whether a record is kept, so that a restart may go on with another policy than the policy file.
    pub(super) fn is_kept(&self) -> bool {
        Record::path(&self.state).exists()
    }

    /// Whether a restart would go on with the record although the policy file is as it is now.
    pub(super) fn is_kept_beside_file(&self) -> bool {
        let text = config::read_text_again(&self.policy_path).ok();
        let record = Record::read(&self.state).ok().and_then(|(record, _)| record);
        record.is_some_and(|record| record.counts_beside(&self.policy_path, text.as_deref()))
    }

    /// Records the version in force for a restart.
    pub(super) fn keep_in_force(&mut self) -> Result<(), Failure> {
        let record = self.record(&self.version);
        self.keep(record)
    }

    /// Records a version for a restart.
    pub(super) fn keep_version(&mut self, version: &PolicyVersion) -> Result<(), Failure> {
        self.keep(self.record(version))
    }

    /// Records the version in force for a restart, for as long as the policy in `next` waits for confirmation.
    pub(super) fn keep_while_waiting(&mut self, next: &Path) -> Result<(), Failure> {
        self.keep(self.record(&self.version).while_waiting(&self.version, next))
    }

    /// Removes the record, so that a restart reads the policy file.
    pub(super) fn forget(&mut self) -> Result<(), Failure> {
        Record::forget(&mut self.archive, &self.state).map_err(|error| self.cannot_keep(&error))
    }

    /// Notes the settings without `--save` on disk, if they have changed since the last note.
    pub(super) fn note_unsaved(&mut self) {
        let set: Vec<(String, String)> = self.version.set().collect();
        if set == self.unsaved {
            return;
        }
        if let Err(error) = unsaved::note(&self.state, &set) {
            log::warning(format!(
                "cannot write {}: {error}; the next start cannot name what was set and not saved",
                unsaved::path(&self.state).display()
            ));
        }
        self.unsaved = set;
    }

    fn record(&self, version: &PolicyVersion) -> Record {
        Record::new(version, &self.policy_path, config::read_text_again(&self.policy_path).ok())
    }

    fn keep(&mut self, record: Record) -> Result<(), Failure> {
        let is_policy_file = record.is_superfluous();
        record.keep(&mut self.archive, &self.state).map_err(|error| self.cannot_keep(&error))?;
        // The new record holds the text of the policy file as it is now, so the record counts beside this file.
        self.unread = self.unread.take().filter(|_| !is_policy_file);
        if let Some(unread) = &mut self.unread {
            unread.is_made_up_for = true;
        }
        Ok(())
    }

    fn cannot_keep(&self, error: &std::io::Error) -> Failure {
        Failure::cannot_write(&Record::path(&self.state), error)
    }
}
