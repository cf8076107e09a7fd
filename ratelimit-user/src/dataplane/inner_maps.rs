//! Maps within an array of maps. Whoever reads the array gets the numbers of the inner maps, but the kernel opens a map by its number only for CAP_SYS_ADMIN, which
//! the packaged daemon does not have. So each inner map is pinned beside the array before the array refers to it, under one of two names in turn, and found again
//! by its number: a daemon that is killed in between leaves the pin of the map in force where it is. Earlier builds did not pin inner maps; their maps are pinned
//! at the start, while the daemon still has CAP_SYS_ADMIN, if it was started with it.

use std::{
    collections::BTreeMap,
    fs, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aya::{
    Pod,
    maps::{Array, ArrayOfMaps, IterableMap as _, Map, MapData},
};

use ratelimit_common::abi::{ABI_VERSION, names};

use super::{
    DataplaneError,
    pin::{Layout, PinDir},
};

/// An array of maps with values of type `V`. This process has the inner maps open.
pub(super) struct InnerMaps<V: Pod> {
    array: ArrayOfMaps<MapData, Array<MapData, V>>,
    /// The inner maps, by their index in the array.
    open: Vec<Option<Array<MapData, V>>>,
    pins: Option<InnerPins>,
}

/// The inner maps that the daemon has pinned, held open under the names of their pins, so that removed pins can be made again. Clones share one collection.
#[derive(Clone, Debug, Default)]
pub struct PinnedInnerMaps(Arc<Mutex<BTreeMap<&'static str, MapData>>>);

impl PinnedInnerMaps {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, MapData>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pins of the inner maps of an array.
struct InnerPins {
    /// The pinned maps, held open so that a removed pin can be made again.
    held: PinnedInnerMaps,
    pins: PinDir,
    layout: Layout,
    /// The name of the array.
    name: &'static str,
    /// Two names for each inner map.
    places: &'static [[&'static str; 2]],
}

impl<V: Pod> InnerMaps<V> {
    /// Opens the inner maps of an array. Maps without a pin are opened by their number, if this process may.
    pub(super) fn open(
        array: ArrayOfMaps<MapData, Array<MapData, V>>,
        (name, places): (&'static str, &'static [[&'static str; 2]]),
        pins: Option<(&PinDir, Layout)>,
        held: &PinnedInnerMaps,
    ) -> Result<Self, DataplaneError> {
        let pins = pins.map(|(pins, layout)| InnerPins {
            held: held.clone(),
            pins: pins.clone(),
            layout,
            name,
            places,
        });
        let numbers = match &pins {
            Some(pins) => pins.numbers()?,
            None => vec![None; places.len()],
        };
        let by_pin = |index: usize, number: Option<u32>| pins.as_ref()?.find(index, number?);
        let open = numbers
            .into_iter()
            .enumerate()
            .map(|(index, number)| by_pin(index, number).or_else(|| array.get(&(index as u32), 0).ok()))
            .collect();
        Ok(Self { array, open, pins })
    }

    /// Returns the inner map at an index of the array; `None` if the array has none there.
    pub(super) fn get(&self, index: u32) -> Option<&Array<MapData, V>> {
        self.open.get(index as usize)?.as_ref()
    }

    /// Puts another inner map into the array. The next packet sees it.
    pub(super) fn set(&mut self, index: u32, inner: Array<MapData, V>) -> Result<(), DataplaneError> {
        // A policy that cannot be pinned still comes into force. A warning about an unmounted file system is given elsewhere.
        let pin_beside = |pins: &InnerPins| {
            pins.pin_beside(index as usize, self.open[index as usize].as_ref(), &inner).ok()
        };
        let pinned = self.pins.as_ref().and_then(pin_beside);
        self.array.set(index, &inner, 0).map_err(DataplaneError::map("put a map in place"))?;
        // The new map is held only now: if `set` had failed, the array would still have the old one.
        if let (Some(pins), Some(name)) = (&self.pins, pinned) {
            pins.hold(index as usize, name);
        }
        self.open[index as usize] = Some(inner);
        Ok(())
    }
}

/// Pins inner maps of this build's layout that an earlier build left without pins, as far as this process may open them. Called before CAP_SYS_ADMIN is given up:
/// afterwards they could not be read, and the counts of users and sources would be lost. Does nothing while another daemon has the directory: this start will be
/// refused, and a start that is refused changes nothing.
pub fn pin_those_of_earlier_builds(pins: &PinDir) {
    if !pins.root().exists() {
        return;
    }
    let Ok(_claim) = pins.claim() else { return };
    let layouts = pins.layouts().unwrap_or_default();
    for layout in layouts.into_iter().filter(|layout| layout.abi == ABI_VERSION) {
        let arrays: [(_, &'static [_]); 2] =
            [(names::POLICY, &names::POLICY_PINS), (names::USER_LIMITS, &names::USER_LIMITS_PINS)];
        for (name, places) in arrays {
            let pins =
                InnerPins { held: PinnedInnerMaps::default(), pins: pins.clone(), layout, name, places };
            // Without these maps the daemon still starts, and reports what it does not know.
            let _as_far_as_possible = pins.pin_the_unpinned();
        }
    }
}

impl InnerPins {
    /// Returns the numbers of the inner maps. The array is read as an array of numbers, because aya would open each map.
    fn numbers(&self) -> Result<Vec<Option<u32>>, DataplaneError> {
        let failed = || DataplaneError::map(format!("read which maps {} refers to", self.name));
        let array = MapData::from_pin(self.pins.map(self.layout, self.name)).map_err(failed())?;
        let numbers: Array<MapData, u32> = Array::try_from(Map::Array(array)).map_err(failed())?;
        Ok((0..self.places.len()).map(|index| numbers.get(&(index as u32), 0).ok()).collect())
    }

    /// Opens the pinned inner map with a number, and holds it.
    fn find<V: Pod>(&self, index: usize, number: u32) -> Option<Array<MapData, V>> {
        let (name, map) = self.pinned(index, number)?;
        self.hold(index, name);
        Array::try_from(Map::Array(map)).ok()
    }

    /// Opens the pinned inner map with a number, and returns it with the name of its pin.
    fn pinned(&self, index: usize, number: u32) -> Option<(&'static str, MapData)> {
        let mut maps = self.places[index].iter().filter_map(|name| Some((*name, self.open(name)?)));
        maps.find(|(_, map)| map.info().is_ok_and(|info| info.id() == number))
    }

    /// Pins each inner map in force that has no pin. A map that is pinned under its name is not in force, so it is replaced.
    fn pin_the_unpinned(&self) -> Result<(), DataplaneError> {
        for (index, number) in self.numbers()?.into_iter().enumerate() {
            let Some(number) = number.filter(|number| self.pinned(index, *number).is_none()) else {
                continue;
            };
            let Ok(in_force) = MapData::from_id(number) else { continue };
            self.pin_as(self.places[index][0], &in_force)?;
        }
        Ok(())
    }

    fn open(&self, name: &str) -> Option<MapData> {
        MapData::from_pin(self.pins.map(self.layout, name)).ok()
    }

    /// Holds the map that is pinned under one of the two names of an inner map, and releases the one under the other name.
    fn hold(&self, index: usize, name: &'static str) {
        let mut held = self.held.lock();
        held.retain(|other, _| !self.places[index].contains(other));
        held.extend(self.open(name).map(|map| (name, map)));
    }

    /// Pins a map under the name that the map in force does not have, and returns this name.
    fn pin_beside<V: Pod>(
        &self,
        index: usize,
        in_force: Option<&Array<MapData, V>>,
        next: &Array<MapData, V>,
    ) -> Result<&'static str, DataplaneError> {
        let in_force = in_force.and_then(|map| Some(map.map().info().ok()?.id()));
        let is_taken = |name: &str| {
            let pinned = self.open(name).and_then(|map| Some(map.info().ok()?.id()));
            pinned.is_some() && pinned == in_force
        };
        let [first, second] = self.places[index];
        let name = if is_taken(first) { second } else { first };
        self.pin_as(name, next.map())?;
        Ok(name)
    }

    /// Pins a map under a name, and replaces a pin with this name.
    fn pin_as(&self, name: &str, map: &MapData) -> Result<(), DataplaneError> {
        let path = self.pins.map(self.layout, name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DataplaneError::io(format!("remove {}", path.display()))(error));
            }
            _ => {}
        }
        map.pin(&path).map_err(|error| DataplaneError::Load {
            reason: format!("cannot pin {}: {error}", path.display()),
        })
    }
}
