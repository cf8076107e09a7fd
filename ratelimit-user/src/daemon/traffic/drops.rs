//! Refused packets on their way from the kernel to whoever wants to know.

use std::{sync::Arc, time::Duration};

use tokio::sync::broadcast;

use super::trace::Trace;
use crate::{
    clock,
    compile::Places,
    dataplane::{drops::DropRing, probe},
    drops::{Recent, Sighting, Telling},
    policy::Policy,
};

/// How often the kernel's ring buffer is read. It has room for what 46 CPUs may tell in this time.
pub(in crate::daemon) const READ_EVERY: Duration = Duration::from_millis(100);
/// How far a watcher may be behind, in packets.
const BACKLOG: usize = 4096;

/// What is known of single refused packets.
#[derive(Debug)]
pub(in crate::daemon) struct Drops {
    ring: Option<DropRing>,
    pub(in crate::daemon) recent: Recent,
    watchers: broadcast::Sender<Arc<Sighting>>,
    /// Verdicts of a traced program.
    trace: Option<Trace>,
}

impl Drops {
    pub(in crate::daemon) fn new(ring: Option<DropRing>, trace: Option<Trace>) -> Self {
        Self { ring, recent: Recent::default(), watchers: broadcast::Sender::new(BACKLOG), trace }
    }

    /// Drop events from now on.
    pub(in crate::daemon) fn watch(&self) -> broadcast::Receiver<Arc<Sighting>> {
        self.watchers.subscribe()
    }

    /// Takes in what the kernel program has told: remembers it, and tells those who watch and whoever else wants to know.
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
            self.recent.remember(Arc::clone(&sighting));
            tell(&sighting);
            let _nobody_watches = self.watchers.send(sighting);
        }
    }
}
