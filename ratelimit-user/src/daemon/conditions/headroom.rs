//! The host's headroom as `run` and `serve` follow it: a look a second, a line in the log per change.

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

/// What is known of the headroom.
#[derive(Debug)]
pub(crate) struct HeadroomWatch {
    proc: PathBuf,
    headroom: Headroom,
    since: Instant,
    sample: Option<Sample>,
    reading: HeadroomReading,
}

/// Refuses a place that is none: a host that is measured nowhere would never have headroom.
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
    /// A watch before its first look.
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

    /// Headroom as `status` shows it.
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
