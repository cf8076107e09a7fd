//! Keeping the program on interfaces that come, go and change their names.

use super::{host::Host, log};
use crate::dataplane::{
    DataplaneError,
    attach::{self, Adopted, GenericMode, Guarded, Presence},
    features,
    framing::Framing,
    interface::{self, Interface, Mode},
    kernel::Program,
    pin::PinDir,
    probe,
};

impl Host {
    /// Looks whether our program is on every interface that it should be on, and puts it there where it can. Called whenever an interface
    /// has changed, and once a second.
    pub(super) fn guard(&mut self) {
        let all = match interface::list() {
            Ok(all) => all,
            Err(error) => return log::warning(format!("nobody looked after the interfaces: {error}")),
        };
        self.follow_names(&all);
        self.expect_newcomers(&all);
        for one in &mut self.guarded {
            let before = one.index;
            look_after(one, &all, &mut self.program, &self.pins, self.generic);
            if one.index != before {
                // What was said of the one that is gone takes up room.
                let _never_said = self.maps.set_silent(before, false);
                one.tags_lost = false;
            }
        }
        self.keep_silent(&all);
    }

    /// Says once that protection has come to depend on this daemon. Called once a second.
    pub(super) fn look_after_pins(&mut self) {
        let unpinned = self.unpinned();
        if self.were_pinned && !unpinned.is_empty() {
            unpinned.iter().for_each(log::error);
        }
        self.were_pinned = unpinned.is_empty();
    }

    /// What is wrong with the place that the next daemon would find everything in.
    pub(super) fn unpinned(&self) -> Vec<String> {
        let wrong = probe::require_bpffs(self.pins.root()).err();
        let words = |why: DataplaneError| {
            format!(
                "PROTECTION ENDS WITH THIS DAEMON: {why}; it was there, and has been unmounted; mount it and start the daemon again"
            )
        };
        wrong.map(words).into_iter().collect()
    }

    /// Has the program answer nobody where the answer would lack the tag that the packet had. Says so when that begins.
    fn keep_silent(&mut self, all: &[Interface]) {
        for one in &mut self.guarded {
            let lost = one.framing == Framing::Ethernet
                && interface::has_vlans(all, one.index)
                && features::keeps_tags_apart(one.index);
            if lost == one.tags_lost {
                continue;
            }
            if let Err(error) = self.maps.set_silent(one.index, lost) {
                log::error(format!("{}: {error}", one.interface));
                continue;
            }
            one.tags_lost = lost;
        }
        let silence = self.silence();
        for warning in silence.iter().filter(|warning| !self.said.contains(warning)) {
            log::warning(warning);
        }
        self.said = silence;
    }

    /// An interface with another name is the same interface.
    fn follow_names(&mut self, all: &[Interface]) {
        let renamed: Vec<_> = self
            .guarded
            .iter()
            .filter_map(|one| attach::renamed_to(&self.pins, all, &one.interface, one.index))
            .collect();
        if let Err(error) = attach::follow(&self.pins, &renamed) {
            return log::error(format!("a renamed interface cannot be followed: {error}"));
        }
        // What had one of these names before, and was not renamed itself, is gone.
        self.guarded.retain(|one| {
            let is_renamed = renamed.iter().any(|new| new.index == one.index);
            is_renamed || !renamed.iter().any(|new| new.now == one.interface)
        });
        for one in &mut self.guarded {
            if let Some(new) = renamed.iter().find(|new| new.index == one.index) {
                log::info(format!("{} is called {} now, and stays guarded", new.before, new.now));
                one.interface.clone_from(&new.now);
            }
        }
    }

    /// One that has a name which is to be guarded is guarded, also if another had that name before.
    fn expect_newcomers(&mut self, all: &[Interface]) {
        for found in all {
            let known = self.guarded.iter().any(|one| one.interface == found.name);
            if known || !self.names.contains(&found.name) {
                continue;
            }
            self.guarded.push(Guarded {
                interface: found.name.clone(),
                // None has this one: it has not been attached to yet.
                index: 0,
                framing: Framing::Ethernet,
                mode: Mode::Generic,
                adopted: Adopted::No,
                not_native: None,
                tags_lost: false,
                lost: false,
            });
        }
    }
}

/// Puts the program back on an interface if it is not there. Says once that it cannot.
fn look_after(
    one: &mut Guarded,
    all: &[Interface],
    program: &mut Program,
    pins: &PinDir,
    generic: GenericMode,
) {
    let name = one.interface.clone();
    let Ok(found) = interface::among(all, &name) else {
        if !one.lost {
            log::error(format!("{name} is gone; it will be guarded again when it comes back"));
        }
        one.lost = true;
        return;
    };
    let done = match attach::presence_among(pins, all, &name) {
        Presence::Ours(_) if found.framing.as_ref() == Ok(&one.framing) => {
            one.index = found.index;
            Ok(())
        }
        Presence::Ours(_) => {
            let switched = found.require_framing().and_then(|framing| {
                attach::replace(program, pins, &name, framing)?;
                log::warning(format!("{name}: another kind of link now{}", framing.words()));
                (one.framing, one.index) = (framing, found.index);
                Ok(())
            });
            switched.map_err(|error| error.to_string())
        }
        Presence::Free => {
            let again = attach::attach(program, pins, found, generic);
            let attached = again.map(|again| {
                let why = if one.index == found.index { "our program is gone" } else { "it is there again" };
                let (mode, framing) = (again.mode.name(), again.framing.words());
                log::warning(format!("{name}: {why}; attaching it again: {mode} mode{framing}"));
                *one = again;
            });
            attached.map_err(|error| error.to_string())
        }
        Presence::Foreign(_) => Err("another program has taken the place of ours".to_owned()),
        // Not among the interfaces, which was asked above.
        Presence::Missing => Ok(()),
    };
    match done {
        Ok(()) => one.lost = false,
        Err(_) if one.lost => {}
        Err(reason) => {
            log::error(format!("{name} is NOT PROTECTED: {reason}"));
            one.lost = true;
        }
    }
}
