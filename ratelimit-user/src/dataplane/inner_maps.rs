//! Maps within an array of maps. The kernel tells the number of an inner map to whoever reads the array, and opens a map by its number for CAP_SYS_ADMIN alone, which
//! the packaged daemon does not have. So each inner map is pinned beside the array before the array refers to it, in one of two places that take turns, and found
//! again by its number: a daemon that is killed in between leaves the one that is in force where it is. What a build from before these pins has left is pinned
//! while the daemon still has CAP_SYS_ADMIN, if it is started with it.

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

/// An array of maps that have values of a kind, each of which this process has open.
pub(super) struct InnerMaps<V: Pod> {
    array: ArrayOfMaps<MapData, Array<MapData, V>>,
    /// By their place in the array.
    open: Vec<Option<Array<MapData, V>>>,
    pins: Option<InnerPins>,
}

/// The inner maps that the daemon has pinned, held open under the names of their pins, for whoever pins again what somebody has removed. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub struct PinnedInnerMaps(Arc<Mutex<BTreeMap<&'static str, MapData>>>);

impl PinnedInnerMaps {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, MapData>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the inner maps of an array are pinned.
struct InnerPins {
    /// What is pinned there, and has to be if somebody removes it.
    held: PinnedInnerMaps,
    pins: PinDir,
    layout: Layout,
    /// The name of the array.
    name: &'static str,
    /// Two names for each inner map.
    places: &'static [[&'static str; 2]],
}

impl<V: Pod> InnerMaps<V> {
    /// Opens what an array refers to. Without pins maps are opened by their number, if this process may.
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

    /// The inner map at a place of the array; `None` where the array refers to none.
    pub(super) fn get(&self, index: u32) -> Option<&Array<MapData, V>> {
        self.open.get(index as usize)?.as_ref()
    }

    /// Has the array refer to another map, from one packet to the next.
    pub(super) fn set(&mut self, index: u32, inner: Array<MapData, V>) -> Result<(), DataplaneError> {
        // A policy that cannot be pinned is in force all the same: whoever has unmounted the file system is told of that elsewhere.
        let pin_beside = |pins: &InnerPins| {
            pins.pin_beside(index as usize, self.open[index as usize].as_ref(), &inner).ok()
        };
        let pinned = self.pins.as_ref().and_then(pin_beside);
        self.array.set(index, &inner, 0).map_err(DataplaneError::map("put a map in place"))?;
        // Not before: where the array keeps the map that it has, that one is held.
        if let (Some(pins), Some(name)) = (&self.pins, pinned) {
            pins.hold(index as usize, name);
        }
        self.open[index as usize] = Some(inner);
        Ok(())
    }
}

/// Pins the inner maps in force of this build's layout that a build from before these pins has left, as far as this process may open them. Called before CAP_SYS_ADMIN is
/// given up: afterwards nobody could say what users and sources have spent.
pub fn pin_those_of_earlier_builds(pins: &PinDir) {
    let layouts = pins.layouts().unwrap_or_default();
    for layout in layouts.into_iter().filter(|layout| layout.abi == ABI_VERSION) {
        let arrays: [(_, &'static [_]); 2] =
            [(names::POLICY, &names::POLICY_PINS), (names::USER_LIMITS, &names::USER_LIMITS_PINS)];
        for (name, places) in arrays {
            let pins =
                InnerPins { held: PinnedInnerMaps::default(), pins: pins.clone(), layout, name, places };
            // Without them the daemon starts all the same, and says what it does not know.
            let _as_far_as_possible = pins.pin_the_unpinned();
        }
    }
}

impl InnerPins {
    /// The numbers of the maps that the array refers to. The array is read as one of numbers: aya opens what they stand for.
    fn numbers(&self) -> Result<Vec<Option<u32>>, DataplaneError> {
        let failed = || DataplaneError::map(format!("read which maps {} refers to", self.name));
        let array = MapData::from_pin(self.pins.map(self.layout, self.name)).map_err(failed())?;
        let numbers: Array<MapData, u32> = Array::try_from(Map::Array(array)).map_err(failed())?;
        Ok((0..self.places.len()).map(|index| numbers.get(&(index as u32), 0).ok()).collect())
    }

    /// The pinned map of this number.
    fn find<V: Pod>(&self, index: usize, number: u32) -> Option<Array<MapData, V>> {
        let (name, map) = self.pinned(index, number)?;
        self.hold(index, name);
        Array::try_from(Map::Array(map)).ok()
    }

    /// The pinned map of this number, with the name of its pin.
    fn pinned(&self, index: usize, number: u32) -> Option<(&'static str, MapData)> {
        let mut maps = self.places[index].iter().filter_map(|name| Some((*name, self.open(name)?)));
        maps.find(|(_, map)| map.info().is_ok_and(|info| info.id() == number))
    }

    /// Pins each map that the array refers to and that is pinned nowhere. What is pinned in its place is not in force.
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

    /// Holds what is pinned under one of the two names of an inner map, and lets go of what was held under the other.
    fn hold(&self, index: usize, name: &'static str) {
        let mut held = self.held.lock();
        held.retain(|other, _| !self.places[index].contains(other));
        held.extend(self.open(name).map(|map| (name, map)));
    }

    /// Pins a map in the place that the one in force is not in, which is returned.
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

    /// Pins a map under a name, instead of what is pinned there.
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
