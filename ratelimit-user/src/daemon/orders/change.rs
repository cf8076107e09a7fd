//! Changes of the policy and back: apply, confirm, rollback, SIGHUP.
//!
//! The record for a restart is written before the kernel is told, so that a daemon that dies in between comes back with a
//! policy that somebody asked for. While an apply waits for confirmation, the record has the policy before it.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use super::caller::By;
use crate::{
    config,
    control::protocol::{Operator, Reply},
    daemon::{
        in_force::{PolicyInForce, Unread, enforcer::Enforcer, waiting::ConfirmationWait},
        lists::vital::{complain_of_policy, refuse_policy},
        state::version::PolicyVersion,
    },
    failure::{ExitCode, Failure},
    log,
    policy::changes::{PolicyChange, changes},
};

/// The largest number of changes that the log names; more are only counted.
const LOGGED: usize = 50;

/// An order to put a policy in force.
#[derive(Debug)]
pub(in crate::daemon) struct Apply {
    pub(in crate::daemon) file: PathBuf,
    pub(in crate::daemon) text: String,
    pub(in crate::daemon) confirm_ns: Option<u64>,
}

impl PolicyInForce {
    /// Puts another policy in force, for good or until the time to confirm it has passed.
    pub(in crate::daemon) fn apply(
        &mut self,
        order: Apply,
        operator: &Operator,
        by: &By<'_>,
        enforcer: &mut Enforcer<'_>,
    ) -> Result<Reply, Failure> {
        let began = Instant::now();
        self.refuse_while_waiting("apply")?;
        let time = order.confirm_ns.map(ConfirmationWait::time).transpose()?;
        let (next, warnings) = PolicyVersion::parse(&mut self.reader, &order.file, order.text)?;
        self.refuse_absent_interfaces(next.policy())?;
        refuse_policy(next.policy(), self.policy(), enforcer.lists, operator)?;
        let rows = changes(self.policy(), next.policy());
        match time {
            Some(_) => self.keep_while_waiting(next.file())?,
            None => self.keep_version(&next)?,
        }
        let written = match enforcer.enforce(&next) {
            Ok(written) => written,
            Err(failure) => {
                self.keep_in_force()?;
                return Err(failure);
            }
        };
        let took = began.elapsed();
        let done = format!("{}{}, {:.1} ms", count(&rows), rewritten(written), took.as_secs_f64() * 1e3);
        let file = next.file().display().to_string();
        log_applied(&file, by, &rows, &done);
        warnings.iter().for_each(log::warning);
        let mut message = format!("{file} is in force: {done}; {}", self.go_on_with(next, time));
        for row in rows.iter().filter(|row| row.needs_restart) {
            message += &format!("\n{row}");
        }
        Ok(Reply::Applied {
            message,
            list_entries_written: written as u64,
            microseconds: took.as_micros() as u64,
            warnings: warnings.iter().map(ToString::to_string).collect(),
        })
    }

    /// Takes over a policy that the kernel already has, for good or for a time in which it can be confirmed. Returns the sentence for the
    /// operator.
    fn go_on_with(&mut self, next: PolicyVersion, time: Option<Duration>) -> String {
        let Some(time_to_confirm) = time else {
            self.supersede(next);
            return self.after_restart();
        };
        let before = std::mem::replace(&mut self.version, next);
        let (seconds, back) = (time_to_confirm.as_secs_f64(), before.describe());
        log::info(format!("waiting {seconds} s for ratelimit confirm, otherwise back to {back}"));
        self.waiting = Some(ConfirmationWait::new(before, time_to_confirm, Instant::now()));
        format!(
            "run `ratelimit confirm` within {seconds} s, or {back} comes back; so it does if the daemon restarts"
        )
    }

    /// Keeps the policy that waits for confirmation.
    pub(in crate::daemon) fn confirm(&mut self, by: &By<'_>) -> Result<Reply, Failure> {
        if self.waiting.is_none() {
            return Err(Failure::new(ExitCode::Found, "nothing waits for confirmation; nothing was changed"));
        }
        // The record is written first: if that fails, the wait goes on, and the policy can be confirmed again.
        self.keep_in_force()?;
        self.previous = self.waiting.take().map(|waiting| waiting.version_before);
        let file = self.version.file().display().to_string();
        tracing::info!(event = "policy", change = "confirmed", file, %by, "{file} confirmed by {by}");
        Ok(Reply::Done(format!("{file} is confirmed; {}", self.after_restart())))
    }

    /// Goes back to the policy before the last change.
    pub(in crate::daemon) fn rollback(
        &mut self,
        operator: &Operator,
        by: &By<'_>,
        enforcer: &mut Enforcer<'_>,
    ) -> Result<Reply, Failure> {
        if let Some(waiting) = &self.waiting {
            refuse_policy(waiting.version_before.policy(), self.policy(), enforcer.lists, operator)?;
            self.end_wait(&format!("asked for by {by}"), enforcer)?;
        } else {
            let Some(previous) = self.previous.clone() else {
                let message =
                    "there is no change to take back, and `rollback` takes back one; nothing was changed";
                return Err(Failure::new(ExitCode::Found, message));
            };
            refuse_policy(previous.policy(), self.policy(), enforcer.lists, operator)?;
            self.keep_version(&previous)?;
            if let Err(failure) = enforcer.enforce(&previous) {
                self.keep_in_force()?;
                return Err(failure);
            }
            tracing::info!(
                event = "policy", change = "rolled_back", %by,
                "rolled back from {} to {}: asked for by {by}",
                self.version.describe(),
                previous.describe()
            );
            self.version = previous;
            // Only one step back is kept: the policy that was rolled back is a file that can be applied again.
            self.previous = None;
        }
        Ok(Reply::Done(format!("{} is in force again; {}", self.version.describe(), self.after_restart())))
    }

    /// Reads the policy file again. A broken file changes nothing.
    pub(in crate::daemon) fn reload(&mut self, enforcer: &mut Enforcer<'_>) -> Result<(), Failure> {
        self.refuse_while_waiting("SIGHUP")?;
        let read = config::read_text_again(&self.policy_path)
            .and_then(|text| PolicyVersion::parse(&mut self.reader, &self.policy_path, text));
        let read = read.map_err(Failure::from).and_then(|read| {
            self.refuse_absent_interfaces(read.0.policy())?;
            Ok(read)
        });
        let (next, warnings) = match read {
            Ok(read) => read,
            Err(failure) => {
                self.unread = Some(Unread::new(&failure, self.is_kept_beside_file()));
                return Err(failure);
            }
        };
        self.unread = None;
        warnings.iter().for_each(log::warning);
        for row in changes(self.policy(), next.policy()).iter().filter(|row| row.needs_restart) {
            log::warning(row);
        }
        // A reload is not refused, because nobody is there to use --force.
        complain_of_policy(next.policy(), self.policy(), enforcer.lists, "the policy file says so");
        enforcer.enforce(&next)?;
        self.supersede(next);
        if let Err(failure) = self.forget() {
            log::warning(failure);
        }
        Ok(())
    }

    /// Rolls back if nobody confirmed in time, and returns whether it did. A failure is tried again.
    pub(in crate::daemon) fn expire(&mut self, now: Instant, enforcer: &mut Enforcer<'_>) -> bool {
        let Some(waiting) = self.waiting.as_ref().filter(|waiting| waiting.is_over(now)) else {
            return false;
        };
        let why = format!("nobody confirmed within {} s", waiting.time_to_confirm.as_secs_f64());
        let before = waiting.version_before.policy();
        complain_of_policy(before, self.policy(), enforcer.lists, "nobody confirmed what is in force");
        let ended = self.end_wait(&why, enforcer);
        if let Err(failure) = &ended {
            log::error(format!("NOT ROLLED BACK, trying again: {failure}"));
            if let Some(waiting) = &mut self.waiting {
                waiting.try_again(now);
            }
        }
        ended.is_ok()
    }

    /// Rolls back at once when the daemon stops, because it could not do so later.
    pub(in crate::daemon) fn stop_waiting(&mut self, enforcer: &mut Enforcer<'_>) {
        if self.waiting.is_none() {
            return;
        }
        if let Err(failure) = self.end_wait("the daemon stops", enforcer) {
            log::error(format!("NOT ROLLED BACK, the next start will do it: {failure}"));
        }
    }

    /// Goes back to the policy before the wait, which the record already has.
    fn end_wait(&mut self, why: &str, enforcer: &mut Enforcer<'_>) -> Result<(), Failure> {
        let Some(waiting) = self.waiting.clone() else { return Ok(()) };
        enforcer.enforce(&waiting.version_before)?;
        self.waiting = None;
        let (from, to) = (self.version.describe(), waiting.version_before.describe());
        tracing::warn!(
            event = "policy",
            change = "rolled_back",
            from,
            to,
            why,
            "rolled back from {from} to {to}: {why}"
        );
        self.version = waiting.version_before;
        // The record has this policy already; it is rewritten only because nothing waits any more.
        if let Err(failure) = self.keep_in_force() {
            log::warning(failure);
        }
        Ok(())
    }
}

/// Logs who has applied a policy, and what that changes.
fn log_applied(file: &str, by: &By<'_>, rows: &[PolicyChange], done: &str) {
    tracing::info!(event = "policy", change = "applied", file, %by, changes = rows.len(), "{file} applied by {by}: {done}");
    rows.iter().take(LOGGED).for_each(|row| log::info(format!("  {row}")));
    if rows.len() > LOGGED {
        log::info(format!("  and {} more", rows.len() - LOGGED));
    }
}

/// Says how many entries of the lists were written; nothing if none was.
fn rewritten(entries: usize) -> String {
    match entries {
        0 => String::new(),
        1 => ", 1 list entry written".to_owned(),
        n => format!(", {n} list entries written"),
    }
}

fn count(rows: &[PolicyChange]) -> String {
    match rows.len() {
        0 => "nothing changed".to_owned(),
        1 => "1 change".to_owned(),
        n => format!("{n} changes"),
    }
}
