//! Follows the host's headroom for `run` and `serve`: one look a second, and a line in the log for each change.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{
    control::protocol::HeadroomStatus,
    failure::Failure,
    headroom::{CALM_READINGS, Headroom, HeadroomReading, Sample},
    log,
};

/// The host's headroom, and the last sample and reading.
#[derive(Debug)]
pub(crate) struct HeadroomWatch {
    proc: PathBuf,
    headroom: Headroom,
    since: Instant,
    sample: Option<Sample>,
    reading: HeadroomReading,
}

/// Refuses a path that is no directory: a host whose load cannot be read would never have headroom.
pub(crate) fn require(proc: &Path) -> Result<(), Failure> {
    if proc.is_dir() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--proc {} is not a directory; the kernel's files are usually in /proc",
        proc.display()
    )))
}

impl HeadroomWatch {
    /// Makes a watch before its first look.
    pub(crate) fn new(proc: &Path, now: Instant) -> Self {
        Self {
            proc: proc.to_owned(),
            headroom: Headroom::default(),
            since: now,
            sample: None,
            reading: HeadroomReading::default(),
        }
    }

    /// Whether the host has headroom.
    pub(crate) fn is_there(&self) -> bool {
        self.headroom.is_there()
    }

    /// Looks at the host. Called once a second.
    pub(crate) fn look(&mut self, now: Instant) {
        let sample = Sample::read(&self.proc);
        sample.new_notes(self.sample.as_ref()).iter().for_each(log::info);
        self.reading = sample.since(self.sample.as_ref());
        self.sample = Some(sample);
        let next = self.headroom.clone().after(&self.reading);
        if next.is_there() != self.is_there() {
            self.since = now;
            match next.reason() {
                Some(reason) => {
                    tracing::warn!(event = "headroom", has = false, reason = %reason, "headroom lost: {reason}");
                }
                None => {
                    tracing::info!(
                        event = "headroom",
                        has = true,
                        "headroom is back: {CALM_READINGS} calm readings; {}",
                        self.reading
                    );
                }
            }
        }
        self.headroom = next;
    }

    /// Returns the headroom for `status`.
    pub(in crate::daemon) fn status(&self, now: Instant) -> HeadroomStatus {
        let word = if self.is_there() { HeadroomStatus::YES } else { HeadroomStatus::NO };
        HeadroomStatus {
            headroom: word.to_owned(),
            headroom_seconds: now.duration_since(self.since).as_secs(),
            headroom_reason: self.headroom.reason().map(str::to_owned),
            headroom_changes: self.headroom.changes(),
            headroom_readings: self.reading,
            headroom_notes: self.sample.as_ref().map(Sample::notes).unwrap_or_default(),
        }
    }
}
