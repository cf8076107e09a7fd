//! A pinned map with the ids of the programs that read frames as IP packets.
//!
//! A link tells the id of its program, but the framing of an interface in another network namespace cannot be asked. The name of a program tells its framing too,
//! but the kernel shows it only to CAP_SYS_ADMIN, which the daemon does not have. So a daemon that loads the program for IP links writes its id into this map
//! before any link runs it.

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

/// The name of the map's pin, beside the maps of the object. No program uses the map.
const IP_PROGRAMS: &str = "IP_PROGRAMS";
/// The number of ids that are kept. An id that no link runs makes room. Two would be enough, because links run programs of at most two daemons.
const PLACES: u32 = 8;

/// The map into which a daemon writes the id of its program for IP links.
#[derive(Debug)]
pub(super) struct IpPrograms {
    pins: PinDir,
    layout: Layout,
    /// Holds the map, so that a removed pin can be made again.
    held: PinnedInnerMaps,
}

impl IpPrograms {
    pub(super) fn new(pins: &PinDir, layout: Layout, held: PinnedInnerMaps) -> Self {
        Self { pins: pins.clone(), layout, held }
    }

    /// Writes the id of a program into the map, before any link runs it.
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

/// Returns the framing that the program on a link reads, for an interface that cannot be asked. Daemons before November 2026 did not write ids down; their
/// programs are recognised by their names.
pub(super) fn framing(pins: &PinDir, name: &str) -> Framing {
    let Some(program) = pinned_link::program_id(pins, name) else { return Framing::Ethernet };
    // The kernel keeps fifteen letters of a name, so the beginning is compared.
    let is_named =
        || pinned_link::program_name(program).is_some_and(|name| name.starts_with(names::PROGRAM_IP));
    match is_noted(pins, program) || is_named() {
        true => Framing::Ip,
        false => Framing::Ethernet,
    }
}

/// Whether a daemon has written the id of this program into the map of any layout.
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
