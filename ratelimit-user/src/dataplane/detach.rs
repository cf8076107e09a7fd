//! Takes the program off interfaces: a link ends some time after its pin is removed.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{DataplaneError, interface, pin::PinDir, pinned_link};

/// How long a process waits for the kernel to release links while others wait for that process.
pub const RELEASE_DEADLINE: Duration = Duration::from_secs(2);

/// Takes the program off interfaces, and returns when it is off all of them, or after the time `within`. A slow or failing interface holds up no other one.
pub fn detach(pins: &PinDir, names: &[String], within: Duration) -> Unlinked {
    unlink(pins, names).wait(within)
}

/// Begins to take the program off interfaces by removing the pins of their links.
pub fn unlink(pins: &PinDir, names: &[String]) -> Unlinking {
    let mut unlinked = Unlinked::default();
    let mut running = Vec::new();
    for name in names {
        let program = pinned_link::program_id(pins, name);
        // If the pin was removed already, the link is gone, or goes when its last holder closes it.
        if pins.link(name).exists() {
            if let Err(error) = pins.remove_link(name) {
                unlinked.failed.push(error);
                continue;
            }
            running.push((name.clone(), program));
        }
        unlinked.unpinned.push(name.clone());
    }
    Unlinking { unlinked, running }
}

/// Links without pins, which the kernel is about to release.
#[derive(Debug)]
pub struct Unlinking {
    unlinked: Unlinked,
    /// Interfaces that had a pin, and the id of the program that the link ran.
    running: Vec<(String, Option<u32>)>,
}

impl Unlinking {
    /// Returns the interfaces that have no pin now.
    pub fn unpinned(&self) -> &[String] {
        &self.unlinked.unpinned
    }

    /// Waits until the program is off all interfaces, or for the time `within`.
    pub fn wait(self, within: Duration) -> Unlinked {
        let Self { mut unlinked, mut running } = self;
        // The kernel releases an unpinned link in a work queue: moments later, but not at once.
        let deadline = Instant::now() + within;
        loop {
            let all = interface::list().unwrap_or_default();
            running.retain(|(name, program)| {
                let attached = interface::among(&all, name).ok().and_then(|found| found.attached);
                attached.is_some_and(|attached| Some(attached.program_id) == *program)
            });
            if running.is_empty() || Instant::now() >= deadline {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        unlinked.slow = running.into_iter().map(|(name, _)| name).collect();
        unlinked
    }
}

/// The outcome of taking the program off interfaces.
#[derive(Debug, Default)]
pub struct Unlinked {
    /// Interfaces without a pin. Nothing is left to do: where the program still runs, it ends when the kernel or whoever holds the link open releases it.
    pub unpinned: Vec<String>,
    /// Interfaces without a pin whose program still ran when the time was over.
    pub slow: Vec<String>,
    /// Errors about pins that could not be removed; their interfaces stay protected.
    pub failed: Vec<DataplaneError>,
}

impl Unlinked {
    /// Returns the interfaces if the program is off all of them; otherwise an error that names those where it still runs, and why.
    pub fn done(self, within: Duration) -> Result<Vec<String>, DataplaneError> {
        if let Some(error) = self.failed.into_iter().next() {
            return Err(error);
        }
        if self.slow.is_empty() {
            return Ok(self.unpinned);
        }
        Err(DataplaneError::StillRuns { interfaces: self.slow, seconds: within.as_secs() })
    }
}
