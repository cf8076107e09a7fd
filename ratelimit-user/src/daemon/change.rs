//! From one policy to the next and back: apply, confirm, rollback, SIGHUP.
//!
//! What a restart goes on with is written down before the kernel is told, so that a daemon that dies in between comes back
//! with a policy that somebody asked for. While an apply waits, what is written down is the policy before it.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use super::{caller::By, host::Host, log, record::Record, version::Version, waiting::Waiting};
use crate::{
    compile::{self, Before, lists::Outlook},
    config::{self, Problem},
    control::protocol::{Operator, Reply},
    dataplane::{address, probe},
    failure::{ExitCode, Failure},
    lockout::{self, Vital},
    policy::{
        Policy,
        changes::{Change, changes},
    },
};

/// Changes named in the log: thousands of new users are a number.
const LOGGED: usize = 50;

/// A policy to be put in force.
#[derive(Debug)]
pub(super) struct Apply {
    pub(super) file: PathBuf,
    pub(super) text: String,
    pub(super) confirm_ns: Option<u64>,
}

impl Host {
    /// What an apply would change.
    pub(super) fn diff(&mut self, file: &Path, text: String) -> Result<Reply, Failure> {
        let (next, warnings) = Version::parse(&mut self.reader, file, text)?;
        let changes = changes(self.version.policy(), next.policy());
        Ok(Reply::Changes { changes, warnings: in_words(&warnings) })
    }

    /// Puts another policy in force, for good or until nobody confirms it.
    pub(super) fn apply(&mut self, order: Apply, operator: &Operator, by: &By<'_>) -> Result<Reply, Failure> {
        let began = Instant::now();
        self.refuse_while_waiting("apply")?;
        let time = order.confirm_ns.map(Waiting::time).transpose()?;
        let (next, warnings) = Version::parse(&mut self.reader, &order.file, order.text)?;
        self.refuse_starving(next.policy(), operator)?;
        let rows = changes(self.version.policy(), next.policy());
        match time {
            Some(_) => self.keep(self.waiting_record(next.file()))?,
            None => self.keep_version(&next)?,
        }
        let written = match self.enforce(next.policy()) {
            Ok(written) => written,
            Err(failure) => {
                self.keep_in_force()?;
                return Err(failure);
            }
        };
        let file = next.file().display().to_string();
        let took = began.elapsed();
        let ms = took.as_secs_f64() * 1e3;
        let done =
            format!("{}, {written} of {} list entries written, {ms:.1} ms", count(&rows), self.lists.len());
        log::info(format!("{file} applied by {by}: {done}"));
        rows.iter().take(LOGGED).for_each(|row| log::info(format!("  {row}")));
        if rows.len() > LOGGED {
            log::info(format!("  and {} more", rows.len() - LOGGED));
        }
        warnings.iter().for_each(log::warning);
        let mut message = format!("{file} is in force: {done}");
        match time {
            Some(asked) => {
                let before = std::mem::replace(&mut self.version, next);
                let (seconds, back) = (asked.as_secs_f64(), before.describe());
                message += &format!(
                    "; run `ratelimit confirm` within {seconds} s, or {back} comes back; so it does if the daemon restarts"
                );
                log::info(format!("waiting {seconds} s for ratelimit confirm, otherwise back to {back}"));
                self.waiting = Some(Waiting::new(before, asked, Instant::now()));
            }
            None => {
                self.supersede(next);
                message += &format!("; {}", self.after_restart());
            }
        }
        for row in rows.iter().filter(|row| row.needs_restart) {
            message += &format!("\n{row}");
        }
        Ok(Reply::Applied {
            message,
            list_entries_written: written as u64,
            microseconds: took.as_micros() as u64,
            warnings: in_words(&warnings),
        })
    }

    /// Keeps what was applied.
    pub(super) fn confirm(&mut self, by: &By<'_>) -> Result<Reply, Failure> {
        if self.waiting.is_none() {
            return Err(Failure::new(ExitCode::Found, "nothing waits for confirmation; nothing was changed"));
        }
        // Written down first: if that fails, the wait goes on and can be confirmed again.
        self.keep_in_force()?;
        self.previous = self.waiting.take().map(|waiting| waiting.before);
        let file = self.version.file().display().to_string();
        log::info(format!("{file} confirmed by {by}"));
        Ok(Reply::Done(format!("{file} is confirmed; {}", self.after_restart())))
    }

    /// Back to the policy before the last change.
    pub(super) fn rollback(&mut self, by: &By<'_>) -> Result<Reply, Failure> {
        if self.waiting.is_some() {
            self.end_wait(&format!("asked for by {by}"))?;
        } else {
            let Some(previous) = self.previous.clone() else {
                let message = "no policy was in force before this one; nothing was changed";
                return Err(Failure::new(ExitCode::Found, message));
            };
            self.keep_version(&previous)?;
            if let Err(failure) = self.enforce(previous.policy()) {
                self.keep_in_force()?;
                return Err(failure);
            }
            log::info(format!(
                "rolled back from {} to {}: asked for by {by}",
                self.version.describe(),
                previous.describe()
            ));
            self.version = previous;
            // One step: what was rolled back is a file that can be applied again.
            self.previous = None;
        }
        Ok(Reply::Done(format!("{} is in force again; {}", self.version.describe(), self.after_restart())))
    }

    /// Reads the policy file again. A broken file changes nothing.
    pub(super) fn reload(&mut self) -> Result<(), Failure> {
        self.refuse_while_waiting("SIGHUP")?;
        let read = config::read_text_again(&self.policy_path)
            .and_then(|text| Version::parse(&mut self.reader, &self.policy_path, text));
        let (next, warnings) = match read {
            Ok(read) => read,
            Err(error) => {
                let failure = Failure::from(error);
                self.unread = Some(failure.message.lines().next().unwrap_or_default().to_owned());
                return Err(failure);
            }
        };
        self.unread = None;
        warnings.iter().for_each(log::warning);
        for row in changes(self.version.policy(), next.policy()).iter().filter(|row| row.needs_restart) {
            log::warning(row);
        }
        // Nobody is there to say --force.
        if let Err(failure) = self.refuse_starving(next.policy(), &Operator::default()) {
            log::warning(format!("not refused, because the policy file says so: {failure}"));
        }
        self.enforce(next.policy())?;
        self.supersede(next);
        if let Err(failure) = self.forget() {
            log::warning(failure);
        }
        Ok(())
    }

    /// When the wait ends, if there is one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.as_ref().map(Waiting::deadline)
    }

    /// Rolls back if nobody confirmed in time. What fails is tried again.
    pub(super) fn expire(&mut self, now: Instant) {
        let Some(waiting) = self.waiting.as_ref().filter(|waiting| waiting.is_over(now)) else { return };
        let why = format!("nobody confirmed within {} s", waiting.asked.as_secs_f64());
        if let Err(failure) = self.end_wait(&why) {
            log::error(format!("NOT ROLLED BACK, trying again: {failure}"));
            if let Some(waiting) = &mut self.waiting {
                waiting.try_again(now);
            }
        }
    }

    /// A daemon that stops cannot roll back any more, so it does it now.
    pub(super) fn stop_waiting(&mut self) {
        if self.waiting.is_none() {
            return;
        }
        if let Err(failure) = self.end_wait("the daemon stops") {
            log::error(format!("NOT ROLLED BACK, the next start will do it: {failure}"));
        }
    }

    /// Back to the policy before the wait, which is also what is written down already.
    fn end_wait(&mut self, why: &str) -> Result<(), Failure> {
        let Some(waiting) = self.waiting.clone() else { return Ok(()) };
        self.enforce(waiting.before.policy())?;
        self.waiting = None;
        let (from, to) = (self.version.describe(), waiting.before.describe());
        log::warning(format!("rolled back from {from} to {to}: {why}"));
        self.version = waiting.before;
        // As it is, the record says the same; only that nothing waits any more.
        if let Err(failure) = self.keep_in_force() {
            log::warning(failure);
        }
        Ok(())
    }

    /// Tells the kernel. Says how many entries of the lists were written.
    pub(super) fn enforce(&mut self, policy: &Policy) -> Result<usize, Failure> {
        let facts = self.facts_for(policy);
        let generation = self.desired.policy.generation + 1;
        let in_force = self.maps.policy();
        let before =
            in_force.as_deref().map(|policy| Before::known(policy, &self.desired, probe::switch_q8()));
        let desired = compile::desired(policy, &facts, generation, before);
        let written = self.maps.enforce(&mut self.lists, Some(&self.desired), &desired)?;
        self.desired = desired;
        self.facts = facts;
        self.decisions.follow(policy, self.redis.as_ref());
        Ok(written)
    }

    /// The next version, with the present one to go back to.
    pub(super) fn supersede(&mut self, next: Version) {
        self.previous = Some(std::mem::replace(&mut self.version, next));
    }

    /// What a restart does, as a sentence.
    pub(super) fn after_restart(&self) -> String {
        let file = self.policy_path.display();
        if self.waiting.is_some() {
            return "a restart goes back to the policy before".to_owned();
        }
        if self.unread.is_some() {
            return format!("a restart fails until {file} is mended, which the last SIGHUP could not read");
        }
        if self.is_kept() {
            return format!("a restart goes on with it as long as {file} stays as it is");
        }
        format!("a restart reads {file}")
    }

    /// Whether a restart goes on with something else than the policy file.
    pub(super) fn is_kept(&self) -> bool {
        Record::path(&self.state).exists()
    }

    /// Writes down that a restart goes on with what is in force.
    pub(super) fn keep_in_force(&mut self) -> Result<(), Failure> {
        let version = self.version.clone();
        self.keep_version(&version)
    }

    /// Which policy is in force, in a few words.
    pub(super) fn policy_in_words(&self) -> String {
        self.version.describe()
    }

    /// Writes down what a restart goes on with.
    pub(super) fn keep_version(&mut self, version: &Version) -> Result<(), Failure> {
        self.keep(self.record(version))
    }

    fn record(&self, version: &Version) -> Record {
        Record::new(version, &self.policy_path, config::read_text_again(&self.policy_path).ok())
    }

    fn waiting_record(&self, next: &Path) -> Record {
        self.record(&self.version).while_waiting(&self.version, next)
    }

    fn keep(&mut self, record: Record) -> Result<(), Failure> {
        record.keep(&mut self.archive, &self.state).map_err(|error| self.cannot_keep(&error))
    }

    /// From now on a restart reads the policy file.
    pub(super) fn forget(&mut self) -> Result<(), Failure> {
        Record::forget(&mut self.archive, &self.state).map_err(|error| self.cannot_keep(&error))
    }

    fn cannot_keep(&self, error: &std::io::Error) -> Failure {
        let path = Record::path(&self.state);
        Failure::new(ExitCode::Unsupported, format!("cannot write {}: {error}", path.display()))
    }

    pub(super) fn refuse_while_waiting(&self, what: &str) -> Result<(), Failure> {
        let Some(waiting) = &self.waiting else { return Ok(()) };
        Err(Failure::usage(format!(
            "{what} refused: {} waits for confirmation for another {} s; run `ratelimit confirm` or `ratelimit rollback` first",
            self.version.file().display(),
            waiting.seconds_left(Instant::now())
        )))
    }

    /// Refuses a policy that leaves too little for somebody's session.
    pub(super) fn refuse_starving(&self, next: &Policy, operator: &Operator) -> Result<(), Failure> {
        if operator.force || !lockout::could_starve(next) {
            return Ok(());
        }
        let reasons = lockout::starved(
            next,
            self.version.policy(),
            &Outlook::new(&self.lists, &[]),
            &self.vital(operator)?,
        );
        if reasons.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "refused, somebody would be cut off: {}; put their address on the allow list first, or use --force",
            reasons.join("; ")
        )))
    }

    /// Everybody who must not be cut off, as of now.
    pub(super) fn vital(&self, operator: &Operator) -> Result<Vec<Vital>, Failure> {
        let unknown = |reason: String| {
            let message =
                format!("cannot tell who would be cut off: {reason}; --force goes ahead without looking");
            Failure::new(ExitCode::Unsupported, message)
        };
        let own = address::list().map_err(|error| unknown(error.to_string()))?;
        lockout::discover(Path::new("/proc"), own, operator.origin)
            .map_err(|error| unknown(format!("/proc/net: {error}")))
    }
}

fn in_words(warnings: &[Problem]) -> Vec<String> {
    warnings.iter().map(ToString::to_string).collect()
}

fn count(rows: &[Change]) -> String {
    match rows.len() {
        0 => "nothing changed".to_owned(),
        1 => "1 change".to_owned(),
        n => format!("{n} changes"),
    }
}
