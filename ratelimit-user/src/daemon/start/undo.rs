//! Takes back what a start that fails has made.

use std::{collections::BTreeSet, fs::File};

use crate::{
    dataplane::{
        attach,
        pin::{Layout, PinDir},
    },
    failure::Failure,
    log,
};

/// What was pinned before a start, so that a failure can remove the rest.
#[derive(Debug)]
pub(super) struct Undo {
    pins: PinDir,
    layout: Layout,
    /// Names of the interfaces that had a program of ours.
    guarded: BTreeSet<String>,
    /// Whether the maps of our layout stay: they were there before, or a link that was there before uses them now.
    keeps_maps: bool,
    /// The claim on the directory of pins. No other daemon may use what is being removed.
    _claim: File,
}

impl Undo {
    /// Looks at what is pinned. The caller has the claim: what another daemon makes meanwhile must not be removed.
    pub(super) fn note(pins: &PinDir, layout: Layout, claim: &File) -> Result<Self, Failure> {
        let shared = claim.try_clone().map_err(|error| {
            Failure::usage(format!("cannot keep {} to this start: {error}", pins.root().display()))
        })?;
        Ok(Self {
            pins: pins.clone(),
            layout,
            guarded: attach::guarded_already(pins)?,
            keeps_maps: pins.layouts()?.contains(&layout),
            _claim: shared,
        })
    }

    /// Notes that links of before are given our program now. Their earlier one cannot be had back, so our maps must stay where the next start finds them.
    pub(super) fn links_are_switched(&mut self) {
        self.keeps_maps |= !self.guarded.is_empty();
    }

    /// Takes the program off interfaces that had none, and removes the maps that nothing uses then.
    pub(super) fn carry_out(self) {
        let Self { pins, layout, guarded, keeps_maps, _claim } = self;
        let linked = pins.linked_interfaces().unwrap_or_default();
        for name in linked.iter().filter(|name| !guarded.contains(*name)) {
            if let Err(error) = pins.remove_link(name) {
                log::warning(format!("{error}: the program of a start that failed stays on {name}"));
            }
        }
        if !keeps_maps && pins.maps(layout).exists() {
            if let Err(error) = pins.remove_maps(layout) {
                log::warning(error);
            }
            // The pin directory is removed only if it is empty.
            if pins.layouts().is_ok_and(|layouts| layouts.is_empty()) {
                let _others_there = pins.remove_all_maps();
            }
        }
    }
}
