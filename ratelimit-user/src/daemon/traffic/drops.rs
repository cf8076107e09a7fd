//! Passes drop events from the kernel on to `explain` and the detector of attacks.

use std::{sync::Arc, time::Duration};

use super::trace::Trace;
use crate::{
    clock,
    compile::Places,
    dataplane::{drops::DropRing, probe},
    drops::{Recent, Sighting, Telling},
    policy::Policy,
};

/// How often the kernel's ring buffer is read. It has room for the events that 46 CPUs may report in this time.
pub(in crate::daemon) const READ_EVERY: Duration = Duration::from_millis(100);

/// Drop events: the ring that they come from, and the recent ones.
#[derive(Debug)]
pub(in crate::daemon) struct Drops {
    ring: Option<DropRing>,
    pub(in crate::daemon) recent: Recent,
    /// Verdicts of a traced program.
    trace: Option<Trace>,
}

impl Drops {
    pub(in crate::daemon) fn new(ring: Option<DropRing>, trace: Option<Trace>) -> Self {
        Self { ring, recent: Recent::default(), trace }
    }

    /// Reads the drop events of the kernel program: remembers each one, and calls `tell` with it.
    pub(in crate::daemon) fn take_in(
        &mut self,
        policy: &Policy,
        services: &Places,
        mut tell: impl FnMut(&Arc<Sighting>),
    ) {
        let telling = Telling { policy, services, now_ns: probe::now_ns(), unix_ms: clock::unix_ms() };
        if let Some(trace) = &mut self.trace {
            trace.know(services);
        }
        for event in self.ring.iter_mut().flat_map(DropRing::unread) {
            let sighting = Arc::new(Sighting::of(&event, &telling));
            tell(&sighting);
            self.recent.remember(sighting);
        }
    }
}
