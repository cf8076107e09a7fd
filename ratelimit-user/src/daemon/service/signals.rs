//! The loop of the daemon between its start and its end: it follows signals, the clock and the interfaces.

use std::{
    io::{self, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
    time::MissedTickBehavior,
};

use super::{Daemon, supervisor::Supervisor};
use crate::{
    daemon::{
        conditions::interfaces::{InterfaceCell, Interfaces},
        state::state_dir::StateDir,
        traffic::drops::READ_EVERY,
    },
    dataplane::{netlink, probe},
    failure::{ExitCode, Failure},
    log,
};

/// How often blocks that have run out are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// The signals that the daemon takes.
#[derive(Debug)]
pub(in crate::daemon) struct Signals {
    hangup: Signal,
    /// Signals without a meaning here, taken so that they do not end the daemon.
    others: [Signal; 2],
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes every signal that would end the daemon otherwise.
    pub(in crate::daemon) fn take() -> Result<Self, Failure> {
        let one = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(ExitCode::Unsupported, format!("cannot take signals: {error}")))
        };
        Ok(Self {
            hangup: one(SignalKind::hangup())?,
            others: [one(SignalKind::user_defined1())?, one(SignalKind::user_defined2())?],
            terminate: one(SignalKind::terminate())?,
            interrupt: one(SignalKind::interrupt())?,
        })
    }
}

impl Daemon {
    /// Prints "ready", then follows signals and the clock until a signal ends the daemon.
    pub(in crate::daemon) async fn until_stopped(
        &self,
        signals: &mut Signals,
        state: &StateDir,
    ) -> Result<(), Failure> {
        let links = guard_on_change(self.host().interfaces.clone());
        // Interfaces may have changed before the thread listened.
        self.guard();
        let mut sweep = tokio::time::interval(SWEEP_EVERY);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut drops = tokio::time::interval(READ_EVERY);
        drops.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut supervisor = Supervisor::of_environment();
        supervisor.ready(&self.host());
        say_ready();
        let [user1, user2] = &mut signals.others;
        loop {
            let deadline = self.host().in_force.deadline();
            tokio::select! {
                _ = signals.hangup.recv() => {
                    supervisor.reloading();
                    self.reload();
                    supervisor.ready(&self.host());
                }
                _ = user1.recv() => log::info("SIGUSR1 means nothing here; SIGHUP reads the policy again"),
                _ = user2.recv() => log::info("SIGUSR2 means nothing here; SIGHUP reads the policy again"),
                () = self.asked.notified() => {}
                () = reached(deadline) => self.expire(),
                _ = sweep.tick() => self.sweep(),
                () = links.notified() => self.host().say_silence(),
                _ = second.tick() => self.observe(),
                _ = drops.tick() => self.host().take_in_drops(),
                () = supervisor.due() => supervisor.alive(&self.host()),
                _ = signals.terminate.recv() => break,
                _ = signals.interrupt.recv() => break,
            }
        }
        supervisor.stopping();
        let mut host = self.host();
        let (in_force, mut enforcer) = host.change();
        in_force.stop_waiting(&mut enforcer);
        host.attacks.stop();
        host.interfaces.with(|interfaces| interfaces.say_what_stays(state.path()))
    }

    /// Checks that our program is on every interface to guard. This happens without the lock of the host: the kernel may delay a look at interfaces for
    /// as long as another process changes some, and leases must be renewed meanwhile.
    fn guard(&self) {
        let interfaces = self.host().interfaces.clone();
        interfaces.with(Interfaces::guard);
        self.host().say_silence();
    }

    fn expire(&self) {
        let mut host = self.host();
        let (in_force, mut enforcer) = host.change();
        if in_force.expire(Instant::now(), &mut enforcer) {
            host.attacks.note("nobody confirmed, the policy before is in force again");
        }
    }

    fn reload(&self) {
        let mut host = self.host();
        let (in_force, mut enforcer) = host.change();
        match in_force.reload(&mut enforcer) {
            Ok(()) => {
                let limits = host.policy().source().limits().len();
                log::info(format!("policy read again: {limits} limits in force"));
                host.attacks.note("SIGHUP: policy read again");
                host.warnings().iter().for_each(log::warning);
            }
            Err(failure) => log::error(format!("policy not reloaded, the old one stays in force: {failure}")),
        }
        host.in_force.note_unsaved();
    }

    fn observe(&self) {
        self.look_away();
        self.guard();
        let mut host = self.host();
        host.interfaces.with(Interfaces::look_after_pins);
        if let Err(failure) = host.observe() {
            log::warning(format!("the counters were not read: {failure}"));
        }
        host.follow_facts(Instant::now());
        host.list_editor().look_after_blocks(probe::now_ns());
    }

    fn sweep(&self) {
        if let Err(failure) = self.host().list_editor().sweep(probe::now_ns()) {
            log::warning(format!("blocks that ran out were not removed: {failure}"));
        }
    }
}

/// Starts a thread that looks after the interfaces whenever one has changed, and notifies after each look. Nothing that the daemon does holds it
/// up, because an interface that comes back in a flood is unprotected until the program is on it.
fn guard_on_change(interfaces: InterfaceCell) -> Arc<Notify> {
    let changed = Arc::new(Notify::new());
    let notify = Arc::clone(&changed);
    let unheard = |error| {
        log::warning(format!("interfaces that come back are guarded within a second, not at once: {error}"));
    };
    let tell = move |heard: io::Result<()>| match heard {
        Ok(()) => {
            interfaces.with(Interfaces::guard);
            notify.notify_one();
        }
        Err(error) => unheard(error),
    };
    if let Err(error) = netlink::follow_links(tell) {
        unheard(error);
    }
    changed
}

/// Waits until the deadline; for ever if there is none.
async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// Prints "ready". A failure is ignored: whoever started the daemon may have gone already, and protection does not depend on them.
fn say_ready() {
    let mut out = io::stdout().lock();
    let _unread = writeln!(out, "ready").and_then(|()| out.flush());
}
