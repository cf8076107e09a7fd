//! Taking the program off interfaces: a link ends some time after its pin is removed.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{DataplaneError, interface, pin::PinDir, pinned_link};

/// How long a process that others wait for waits itself until the kernel lets go of links.
pub const RELEASE_DEADLINE: Duration = Duration::from_secs(2);

/// Takes the program off interfaces, and returns when it is off, or after so much time. An interface that is slow or that fails holds no other one up.
pub fn detach(pins: &PinDir, names: &[String], within: Duration) -> Unlinked {
    unlink(pins, names).wait(within)
}

/// Begins to take the program off interfaces: removes the pins that keep it there.
pub fn unlink(pins: &PinDir, names: &[String]) -> Unlinking {
    let mut unlinked = Unlinked::default();
    let mut running = Vec::new();
    for name in names {
        let program = pinned_link::program_id(pins, name);
        // Somebody may have removed the pin: the kernel has let go of the link, or its holder will.
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

/// Links without a pin, which the kernel lets go of.
#[derive(Debug)]
pub struct Unlinking {
    unlinked: Unlinked,
    /// Interfaces that had a pin, and the program that the link ran.
    running: Vec<(String, Option<u32>)>,
}

impl Unlinking {
    /// Interfaces without a pin now.
    pub fn unpinned(&self) -> &[String] {
        &self.unlinked.unpinned
    }

    /// Returns when the program is off, or after so much time.
    pub fn wait(self, within: Duration) -> Unlinked {
        let Self { mut unlinked, mut running } = self;
        // The kernel lets go of an unpinned link in a work queue: moments later, but not at once.
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

/// What became of links that were to go.
#[derive(Debug, Default)]
pub struct Unlinked {
    /// Interfaces without a pin. Nothing is left to be done about them: where the program still runs, the kernel or whoever holds the link open ends it.
    pub unpinned: Vec<String>,
    /// Those of them whose program still ran when the time was over.
    pub slow: Vec<String>,
    /// Pins that could not be removed; protection goes on there.
    pub failed: Vec<DataplaneError>,
}

impl Unlinked {
    /// The interfaces, if the program is off all of them; otherwise an error that says which it is not off, and why.
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
