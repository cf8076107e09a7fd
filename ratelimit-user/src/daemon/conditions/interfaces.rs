//! Keeps the program on interfaces that come, go and change their names.

use std::{
    collections::BTreeSet,
    fs::File,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    control::protocol::{InterfaceStatus, Reply},
    dataplane::{
        DataplaneError,
        attach::{self, Adopted, GenericMode, Guarded, Mute},
        detach::{self, RELEASE_DEADLINE, Unlinking},
        features,
        framing::Framing,
        interface::{self, AttachMode, Interface},
        kernel::Program,
        pin::PinDir,
        presence::Presence,
        probe,
        remount::{self, Found, HeldMaps},
        renamed::{self, Renamed},
    },
    failure::{ExitCode, Failure},
    log,
    policy::{Policy, Service},
};

/// The guarded interfaces, and the program, pins and maps that guard them.
#[derive(Debug)]
pub(in crate::daemon) struct Interfaces {
    pub(in crate::daemon) guarded: Vec<Guarded>,
    /// Names of interfaces to guard as soon as they exist.
    pub(in crate::daemon) names: Vec<String>,
    pub(in crate::daemon) pins: PinDir,
    /// The program, kept to guard an interface that comes back.
    pub(in crate::daemon) program: Program,
    pub(in crate::daemon) generic: GenericMode,
    /// Whether the pins that the next daemon needs were there at the last look.
    pub(in crate::daemon) were_pinned: bool,
    /// The warnings about interfaces without answers that were logged last.
    pub(in crate::daemon) said: Vec<String>,
    /// The lock of the pin directory. When its file system is mounted anew, the old pins are reached through this file.
    pub(in crate::daemon) claim: File,
    /// The maps, held open so that removed pins can be made again.
    pub(in crate::daemon) held: HeldMaps,
}

impl Interfaces {
    /// Checks that our program is on every interface to guard, and attaches it where it is missing. Called whenever an interface has changed,
    /// and once a second.
    pub(in crate::daemon) fn guard(&mut self) {
        self.follow_file_system();
        self.keep_maps_pinned();
        let all = match interface::list() {
            Ok(all) => all,
            Err(error) => return log::warning(format!("interfaces were not checked: {error}")),
        };
        self.follow_names(&all);
        self.expect_newcomers(&all);
        for guarded in &mut self.guarded {
            let before = guarded.index;
            look_after(guarded, &all, &mut self.program, &self.pins, self.generic);
            if guarded.index != before {
                // The entry of the interface that is gone would take up room in the map.
                let _never_said = self.program.set_silent(before, false);
                guarded.mute = None;
            }
        }
        self.keep_silent(&all);
    }

    /// Pins everything again if the BPF file system was mounted anew.
    fn follow_file_system(&mut self) {
        if !remount::is_needed(&self.pins, &self.claim) {
            return;
        }
        match remount::pin_again(&self.pins, &self.claim) {
            Ok((claim, Found::Nothing)) => {
                self.claim = claim;
                log::error(format!(
                    "the pins under {} were removed, and with them the hold of the program on interfaces: it is pinned and attached again, \
                     and packets have passed unlimited since",
                    self.pins.root().display()
                ));
            }
            Ok((claim, Found::Pins)) => {
                self.claim = claim;
                self.were_pinned = true;
                log::warning(format!(
                    "the BPF file system of {} was mounted anew; everything is pinned there again, and was in force all the time",
                    self.pins.root().display()
                ));
            }
            // `unpinned` reports this state as long as it lasts.
            Err(error) if self.were_pinned => log::error(error),
            Err(_said) => {}
        }
    }

    /// Pins maps again whose pins were removed: without pins the next daemon would begin without the counts. After a detach there is nothing to keep.
    fn keep_maps_pinned(&mut self) {
        let (root, is_detached) = (self.pins.root().display(), self.guarded.is_empty());
        if is_detached || probe::require_bpffs(self.pins.root()).is_err() {
            return;
        }
        if remount::is_needed(&self.pins, &self.claim) {
            return;
        }
        match self.held.pin_missing(&self.pins) {
            Ok(0) => {}
            Ok(count) => log::warning(format!(
                "{count} pins of maps under {root} were removed; they are pinned again, and nothing that was counted is lost"
            )),
            Err(error) if self.were_pinned => log::error(error),
            Err(_said) => {}
        }
    }

    /// Logs once that protection ends with this daemon, because its pins are gone. Called once a second.
    pub(in crate::daemon) fn look_after_pins(&mut self) {
        let unpinned = self.unpinned();
        if self.were_pinned && !unpinned.is_empty() {
            unpinned.iter().for_each(log::error);
        }
        self.were_pinned = unpinned.is_empty();
    }

    /// Returns sentences about a pin directory in which the next daemon would find nothing.
    pub(in crate::daemon) fn unpinned(&self) -> Vec<String> {
        let wrong = probe::require_bpffs(self.pins.root()).err();
        if wrong.is_none() && remount::is_needed(&self.pins, &self.claim) {
            let root = self.pins.root().display();
            return vec![format!(
                "PROTECTION ENDS WITH THIS DAEMON: nothing of it is pinned under {root} any more"
            )];
        }
        let words = |why: DataplaneError| {
            format!(
                "PROTECTION ENDS WITH THIS DAEMON: {why}; it was there, and has been unmounted; mount it again, and everything is pinned there"
            )
        };
        wrong.map(words).into_iter().collect()
    }

    /// Stops answers on interfaces where an answer would lack the VLAN tag of its packet, or would not arrive. A SYN that is not answered goes to the host, and the
    /// client connects.
    fn keep_silent(&mut self, all: &[Interface]) {
        for guarded in &mut self.guarded {
            let mute = mute(guarded, all);
            if mute == guarded.mute {
                continue;
            }
            if let Err(error) = self.program.set_silent(guarded.index, mute.is_some()) {
                log::error(format!("{}: {error}", guarded.interface));
                continue;
            }
            guarded.mute = mute;
        }
    }

    /// Logs new warnings about interfaces on which packets are not answered although the policy wants answers.
    pub(in crate::daemon) fn say_silence(&mut self, policy: &Policy) {
        let silence = self.silence(policy);
        for warning in silence.iter().filter(|warning| !self.said.contains(warning)) {
            log::warning(warning);
        }
        self.said = silence;
    }

    /// Follows guarded interfaces that were renamed.
    fn follow_names(&mut self, all: &[Interface]) {
        let renamed: Vec<_> = self
            .guarded
            .iter()
            .filter_map(|guarded| Renamed::of(&self.pins, all, &guarded.interface, guarded.index))
            .collect();
        if let Err(error) = renamed::follow(&self.pins, &renamed) {
            return log::error(format!("a renamed interface cannot be followed: {error}"));
        }
        // A guarded interface that had one of the new names before, and was not renamed itself, is gone.
        self.guarded.retain(|guarded| {
            let is_renamed = renamed.iter().any(|new| new.index == guarded.index);
            is_renamed || !renamed.iter().any(|new| new.now == guarded.interface)
        });
        for guarded in &mut self.guarded {
            if let Some(new) = renamed.iter().find(|new| new.index == guarded.index) {
                log::info(format!("{} is called {} now, and stays guarded", new.before, new.now));
                guarded.interface.clone_from(&new.now);
            }
        }
    }

    /// Adds interfaces whose name is to be guarded and that are not guarded yet, even if another interface had the name before.
    fn expect_newcomers(&mut self, all: &[Interface]) {
        for found in all {
            let known = self.guarded.iter().any(|guarded| guarded.interface == found.name);
            if known || !self.names.contains(&found.name) {
                continue;
            }
            self.guarded.push(Guarded {
                interface: found.name.clone(),
                // No interface has index 0: the program is not attached yet.
                index: 0,
                framing: Framing::Ethernet,
                mode: AttachMode::Generic,
                adopted: Adopted::No,
                not_native: None,
                mute: None,
                lost: false,
            });
        }
    }

    /// Begins to take the program off one interface, or off all.
    fn unlink(&mut self, name: Option<&str>) -> Result<Unlinking, Failure> {
        let names: Vec<String> = match name {
            None => self.guarded.iter().map(|guarded| guarded.interface.clone()).collect(),
            Some(name) if self.guarded.iter().any(|guarded| guarded.interface == name) => {
                vec![name.to_owned()]
            }
            Some(name) => {
                return Err(Failure::usage(format!("interface {name:?} is not guarded by this daemon")));
            }
        };
        if names.is_empty() {
            return Err(Failure::new(ExitCode::Found, "no interface is guarded; nothing to detach"));
        }
        let unlinking = detach::unlink(&self.pins, &names);
        for name in unlinking.unpinned() {
            for guarded in self.guarded.iter().filter(|guarded| guarded.interface == *name) {
                let _never_said = self.program.set_silent(guarded.index, false);
            }
            self.guarded.retain(|guarded| guarded.interface != *name);
            self.names.retain(|wanted| wanted != name);
            tracing::warn!(
                event = "detached",
                interface = name.as_str(),
                "detached from {name}: it is not protected any more"
            );
        }
        self.unpin_maps();
        Ok(unlinking)
    }

    /// Removes the pins of maps when no interface is guarded any more. This happens at once: a daemon that is killed removes nothing, and the next one would adopt
    /// blocks and counts that the operator has ended. The daemon has the maps open. The pin directory stays, because the daemon has locked it.
    fn unpin_maps(&self) {
        let is_left = |error: &DataplaneError| log::error(format!("{error}: it is left for the next daemon"));
        let links = match self.pins.linked_interfaces() {
            Ok(links) => links,
            Err(error) => return is_left(&error),
        };
        // A link on an interface that is not visible here still uses these maps.
        if self.are_all_detached() && links.is_empty() {
            let _said = self.pins.unpin_maps().inspect_err(is_left);
        }
    }

    /// Logs which interfaces stay protected when this daemon has ended, and how to remove the protection. Removes the maps if none does.
    pub(in crate::daemon) fn say_what_stays(&self, state: &Path) -> Result<(), Failure> {
        if self.are_all_detached() {
            return Ok(self.pins.remove_all_maps()?);
        }
        let unpinned = self.unpinned();
        unpinned.iter().for_each(log::warning);
        for interface in self.statuses() {
            match interface.mode.as_str() {
                _ if !unpinned.is_empty() => {
                    log::warning(format!("stopping; {} is NOT PROTECTED from now on", interface.name));
                }
                "native" | "generic" => {
                    log::info(format!("stopping; {} stays protected by the limits in force", interface.name));
                }
                mode => log::warning(format!("stopping; {} is NOT PROTECTED ({mode})", interface.name)),
            }
        }
        log::info(format!(
            "to remove the protection: ratelimit detach --state {} --pin {}",
            state.display(),
            self.pins.root().display()
        ));
        Ok(())
    }

    /// Whether an operator has detached the program from every interface to guard.
    pub(super) fn are_all_detached(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the status of each guarded interface, as the kernel has it now.
    pub(in crate::daemon) fn statuses(&self) -> Vec<InterfaceStatus> {
        self.guarded.iter().map(|guarded| interface_status(&self.pins, guarded)).collect()
    }

    /// Returns sentences about interfaces on which packets are not answered although the policy wants answers.
    pub(in crate::daemon) fn silence(&self, policy: &Policy) -> Vec<String> {
        let answers: BTreeSet<_> = policy.services().iter().flat_map(Service::answers).collect();
        if answers.is_empty() {
            return Vec::new();
        }
        let answers = Vec::from_iter(answers).join(" and ");
        let silent = |guarded: &Guarded| {
            let name = &guarded.interface;
            let why = match guarded.framing {
                Framing::Ip => "its frames are IP packets".to_owned(),
                Framing::Ethernet => match guarded.mute? {
                    Mute::TagsLost => format!(
                        "its driver keeps VLAN tags apart from packets, and answers would go out without; ethtool -K {name} \
                         rxvlan off cures that"
                    ),
                    Mute::FarEnd => "it is a veth, and the kernel hands answers on only to an other end that runs an XDP program in native mode; \
                                     any program there that passes packets cures that"
                        .to_owned(),
                },
            };
            Some(format!(
                "{name}: no packet is answered here ({answers}), because {why}; limits hold, refused packets are dropped"
            ))
        };
        self.guarded.iter().filter_map(silent).collect()
    }
}

/// Returns why packets of an interface must not be answered, if they must not.
fn mute(guarded: &Guarded, all: &[Interface]) -> Option<Mute> {
    if guarded.framing != Framing::Ethernet {
        return None;
    }
    if interface::has_vlans(all, guarded.index) && features::keeps_tags_apart(guarded.index) {
        return Some(Mute::TagsLost);
    }
    let found = all.iter().find(|one| one.index == guarded.index)?;
    // In generic mode the network stack sends the answers, and every other end takes these.
    let far_end = found
        .far_end
        .filter(|_| found.attached.is_some_and(|attached| attached.mode == AttachMode::Native))?;
    // If the kernel does not tell, answers are assumed to arrive.
    (!far_end.takes_answers().unwrap_or(true)).then_some(Mute::FarEnd)
}

/// The interfaces behind a lock of their own, apart from the rest of the host: the thread that hears of an interface that comes back
/// attaches the program, whatever the daemon is doing meanwhile.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct InterfaceCell(Arc<Mutex<Interfaces>>);

impl InterfaceCell {
    /// Makes a cell that several threads can share.
    pub(in crate::daemon) fn new(interfaces: Interfaces) -> Self {
        Self(Arc::new(Mutex::new(interfaces)))
    }

    /// Works with the interfaces under the lock. `work` must not wait for the rest of the host.
    pub(in crate::daemon) fn with<R>(&self, work: impl FnOnce(&mut Interfaces) -> R) -> R {
        // Every look begins with the state of the kernel, so the interfaces stay usable after a panic in an earlier one.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the program off one interface, or off all. The lock is free while this waits for the kernel.
    pub(in crate::daemon) fn detach(&self, name: Option<&str>) -> Result<Reply, Failure> {
        let unlinking = self.with(|interfaces| interfaces.unlink(name))?;
        let names = unlinking.wait(RELEASE_DEADLINE).done(RELEASE_DEADLINE)?;
        Ok(Reply::Done(format!("detached from {}; the daemon still runs", names.join(", "))))
    }
}

/// Attaches the program to a guarded interface again if it is missing. Logs once if that fails.
fn look_after(
    guarded: &mut Guarded,
    all: &[Interface],
    program: &mut Program,
    pins: &PinDir,
    generic: GenericMode,
) {
    let name = guarded.interface.clone();
    let Ok(found) = interface::among(all, &name) else {
        if !guarded.lost {
            tracing::error!(
                event = "interface_gone",
                interface = name.as_str(),
                "{name} is gone; it will be guarded again when it comes back"
            );
        }
        guarded.lost = true;
        return;
    };
    let done = match Presence::among(pins, all, &name) {
        Presence::Ours(_) if found.framing.as_ref() == Ok(&guarded.framing) => {
            guarded.index = found.index;
            Ok(())
        }
        Presence::Ours(_) => {
            let switched = found.require_framing().and_then(|framing| {
                attach::replace(program, pins, &name, framing)?;
                log::warning(format!("{name}: another kind of link now{}", framing.words()));
                (guarded.framing, guarded.index) = (framing, found.index);
                Ok(())
            });
            switched.map_err(|error| error.to_string())
        }
        Presence::Free => {
            let again = attach::attach(program, pins, found, generic);
            let attached = again.map(|again| {
                let why =
                    if guarded.index == found.index { "our program is gone" } else { "it is there again" };
                let (mode, framing) = (again.mode.name(), again.framing.words());
                tracing::warn!(
                    event = "attached",
                    interface = name.as_str(),
                    mode,
                    "{name}: {why}; attaching it again: {mode} mode{framing}"
                );
                *guarded = again;
            });
            attached.map_err(|error| error.to_string())
        }
        Presence::Foreign(_) => Err("another program has taken the place of ours".to_owned()),
        // This cannot be: the interface was found above.
        Presence::Missing => Ok(()),
    };
    match done {
        Ok(()) => guarded.lost = false,
        Err(_) if guarded.lost => {}
        Err(reason) => {
            tracing::error!(
                event = "not_protected",
                interface = name.as_str(),
                reason,
                "{name} is NOT PROTECTED: {reason}"
            );
            guarded.lost = true;
        }
    }
}

fn interface_status(pins: &PinDir, guarded: &Guarded) -> InterfaceStatus {
    let (mode, note) = match Presence::of(pins, &guarded.interface) {
        Ok(presence @ Presence::Ours(_)) => {
            let reason = guarded.not_native.as_ref();
            (presence.words().0, reason.map(|reason| format!("native mode is not possible: {reason}")))
        }
        Ok(presence) => (presence.words().0, presence.words().1.map(ToOwned::to_owned)),
        Err(error) => ("detached", Some(error.to_string())),
    };
    let link = guarded.framing.name().to_owned();
    InterfaceStatus { name: guarded.interface.clone(), mode: mode.to_owned(), link, note }
}
