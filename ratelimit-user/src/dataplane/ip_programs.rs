//! Which programs read frames as IP packets, kept beside the maps.
//!
//! A link says the number of its program, and of an interface in another network namespace nothing can be asked. The name of a program, which tells the same, is
//! shown by its number for CAP_SYS_ADMIN alone, which the daemon does not have. So a daemon that loads the program for IP links writes down its number before any
//! link runs it.

use std::collections::BTreeSet;

use aya::{
    maps::{Array, IterableMap as _, Map, MapData},
    programs::Xdp,
};
use ratelimit_common::abi::names;

use super::{
    DataplaneError,
    framing::Framing,
    inner_maps::PinnedInnerMaps,
    pin::{Layout, PinDir},
    pinned_link,
};

/// What the map is pinned as, beside those of the object: no program has it.
const IP_PROGRAMS: &str = "IP_PROGRAMS";
/// Numbers that are kept. One that no link runs makes room: only as many are needed as links can run programs of different daemons, which is two.
const PLACES: u32 = 8;

/// Where a daemon writes down which of its programs is for IP links.
#[derive(Debug)]
pub(super) struct IpPrograms {
    pins: PinDir,
    layout: Layout,
    /// Pins the map again if somebody removes its pin.
    held: PinnedInnerMaps,
}

impl IpPrograms {
    pub(super) fn new(pins: &PinDir, layout: Layout, held: PinnedInnerMaps) -> Self {
        Self { pins: pins.clone(), layout, held }
    }

    /// Writes down a program that no link runs yet.
    pub(super) fn note(&self, program: &Xdp) -> Result<(), DataplaneError> {
        let failed = || DataplaneError::map("write down the program for IP links");
        let number = program
            .info()
            .map_err(|error| DataplaneError::Load { reason: format!("the program is not told of: {error}") })?
            .id();
        let path = self.pins.map(self.layout, IP_PROGRAMS);
        let mut kept = match open(&self.pins, self.layout) {
            Some(kept) => kept,
            None => {
                let kept: Array<MapData, u32> = Array::create(PLACES, 0).map_err(failed())?;
                kept.map().pin(&path).map_err(|error| DataplaneError::Load {
                    reason: format!("cannot pin {}: {error}", path.display()),
                })?;
                kept
            }
        };
        let running: BTreeSet<u32> = self
            .pins
            .linked_interfaces()?
            .iter()
            .filter_map(|name| pinned_link::program_id(&self.pins, name))
            .collect();
        let is_free = |place: &u32| kept.get(place, 0).is_ok_and(|number| !running.contains(&number));
        let place = (0..PLACES).find(is_free).unwrap_or(0);
        kept.set(place, number, 0).map_err(failed())?;
        self.held.lock().extend(MapData::from_pin(&path).ok().map(|map| (IP_PROGRAMS, map)));
        Ok(())
    }
}

/// What the program on a link reads frames as: the interface cannot be asked where it is. Daemons before November 2026 have not written it down, and their
/// programs are told by their names.
pub(super) fn framing(pins: &PinDir, name: &str) -> Framing {
    let Some(program) = pinned_link::program_id(pins, name) else { return Framing::Ethernet };
    // The kernel keeps fifteen letters of a name.
    let is_named =
        || pinned_link::program_name(program).is_some_and(|name| name.starts_with(names::PROGRAM_IP));
    match is_noted(pins, program) || is_named() {
        true => Framing::Ip,
        false => Framing::Ethernet,
    }
}

/// Whether a daemon has written down that a program reads frames as IP packets.
fn is_noted(pins: &PinDir, program: u32) -> bool {
    let of_layout = |layout: Layout| {
        open(pins, layout).is_some_and(|kept| kept.iter().flatten().any(|number| number == program))
    };
    pins.layouts().unwrap_or_default().into_iter().any(of_layout)
}

fn open(pins: &PinDir, layout: Layout) -> Option<Array<MapData, u32>> {
    let map = MapData::from_pin(pins.map(layout, IP_PROGRAMS)).ok()?;
    Array::try_from(Map::Array(map)).ok()
}
