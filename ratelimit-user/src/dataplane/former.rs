//! Maps left by a daemon of another build, or with a table of sources of another size.
//!
//! From another build, only maps are read whose entries have the shape and meaning of this build: lists, and the counts of
//! windows. If only the size of the table differs, both layouts share every map except those in `OWN`.

use std::{collections::BTreeMap, os::fd::AsFd as _};

use aya::maps::{Array, HashMap, IterableMap as _, LpmTrie, Map, MapData, MapError};
use ratelimit_common::abi::{
    ABI_VERSION, EntryKey, LimitSet, WindowState, names, user::MAX_USERS, window::SET_WINDOWS,
};

use super::{
    DataplaneError, batch,
    kernel::{KernelMaps, read_lists},
    pin::{Layout, PinDir},
};
use crate::compile::{Desired, lists::Lists, window};

/// Maps that belong to one program: those whose size depends on the table of sources, and those for tail calls.
const OWN: [&str; 5] = [names::BUCKETS, names::WINDOWS, names::KEPT_WINDOWS, names::JUMPS, names::JUMPS_IP];

/// The maps left under one layout.
#[derive(Clone, Copy, Debug)]
pub struct Former<'p> {
    pins: &'p PinDir,
    layout: Layout,
}

impl<'p> Former<'p> {
    /// Names the maps of a layout in a pin directory.
    pub fn new(pins: &'p PinDir, layout: Layout) -> Self {
        Self { pins, layout }
    }

    /// Whether the maps are of this build.
    pub fn is_of_this_build(&self) -> bool {
        self.layout.abi == ABI_VERSION
    }

    /// Pins the maps that both programs can share under our layout too, so that both count in them.
    pub fn share(&self, ours: Layout) -> Result<(), DataplaneError> {
        self.pins.create(ours)?;
        let pin = |name: &str, map: MapData| {
            map.pin(self.pins.map(ours, name))
                .map_err(|error| DataplaneError::Load { reason: format!("cannot pin map {name}: {error}") })
        };
        for name in names::MAPS.iter().filter(|name| !OWN.contains(name)) {
            let map = self.open(name);
            pin(name, map.map_err(DataplaneError::map(format!("open map {name} of {}", self.layout)))?)?;
        }
        // An earlier build did not pin its inner maps.
        for name in names::POLICY_PINS.iter().chain(&names::USER_LIMITS_PINS).flatten() {
            if let Ok(map) = self.open(name) {
                pin(name, map)?;
            }
        }
        Ok(())
    }

    /// Reads the lists of the earlier daemon; an error if their entries have another shape.
    pub fn lists(&self) -> Result<Lists, DataplaneError> {
        let failed = || DataplaneError::map(format!("open the lists of {}", self.layout));
        // aya checks the sizes of key and value, so entries of another shape are not misread.
        let v4 = self
            .open(names::LISTS_V4)
            .and_then(|map| LpmTrie::try_from(Map::LpmTrie(map)))
            .map_err(failed())?;
        let v6 = self
            .open(names::LISTS_V6)
            .and_then(|map| LpmTrie::try_from(Map::LpmTrie(map)))
            .map_err(failed())?;
        read_lists(&v4, &v6)
    }

    /// Copies the counts of sources' windows, each to its place under our policy. The key of a window identifies it. Windows of services in `new_services` are left out,
    /// because the key names a service by its index, which another service may have had before.
    pub fn copy_windows(&self, maps: &mut KernelMaps, desired: &Desired) -> Result<(), DataplaneError> {
        let pairs = [(names::WINDOWS, &maps.windows), (names::KEPT_WINDOWS, &maps.kept_windows)];
        for (name, ours) in pairs {
            let Ok(theirs) = self
                .open(name)
                .and_then(|map| HashMap::<_, EntryKey, WindowState>::try_from(Map::LruHashMap(map)))
            else {
                continue;
            };
            let read = |map: &HashMap<MapData, EntryKey, WindowState>| {
                let zero = (EntryKey { hi: 0, lo: 0, group: 0 }, WindowState::FRESH);
                let mut entries = Vec::new();
                batch::for_each_batch(map.map().fd().as_fd(), zero, 0_u32, |keys, values| {
                    entries.extend(keys.iter().copied().zip(values.iter().copied()));
                })
                .map_err(DataplaneError::io("read what sources have used of windows"))?;
                Ok::<_, DataplaneError>(entries)
            };
            let mut theirs = read(&theirs)?;
            theirs.retain(|(key, _)| !window::is_of_service(key.group, &desired.new_services));
            for (key, _) in &mut theirs {
                key.group = window::group_under(&desired.policy, key.group);
            }
            let entries = with_latest(theirs, &read(ours)?);
            batch::update(ours.map().fd().as_fd(), &entries)
                .map_err(DataplaneError::io("carry over what sources have used of windows"))?;
        }
        Ok(())
    }

    /// Copies the counts of users' windows from the place that each user had to the place that it has now, and to the window that the words belong to.
    pub fn copy_user_windows(
        &self,
        maps: &mut KernelMaps,
        moves: &[(u32, u32)],
        desired: &Desired,
        now_ns: u64,
    ) -> Result<(), DataplaneError> {
        let theirs = self
            .open(names::USER_WINDOWS)
            .and_then(|map| Array::<_, WindowState>::try_from(Map::Array(map)))
            .ok()
            .filter(|map| map.len() as usize == MAX_USERS * SET_WINDOWS);
        let Some(theirs) = theirs else { return Ok(()) };
        let unread = || DataplaneError::map("read what a user has used of windows");
        for (had, has) in moves {
            let all = (0..SET_WINDOWS as u32).map(|place| theirs.get(&(had * SET_WINDOWS as u32 + place), 0));
            let all = all.collect::<Result<Vec<WindowState>, _>>().map_err(unread())?;
            let set = desired.user_set(*has).copied().unwrap_or(LimitSet::NONE);
            for (place, limit) in window::of_set(&desired.policy, &set) {
                let Some(state) = window::words_of(&limit, place, &all, now_ns) else { continue };
                let at = has * SET_WINDOWS as u32 + place as u32;
                let ours = maps.user_windows.get(&at, 0).map_err(unread())?;
                maps.user_windows
                    .set(at, latest(&state, &ours), 0)
                    .map_err(DataplaneError::map("carry over what a user has used of windows"))?;
            }
        }
        Ok(())
    }

    fn open(&self, name: &str) -> Result<MapData, MapError> {
        MapData::from_pin(self.pins.map(self.layout, name))
    }
}

/// Merges their entries with ours. Our map has entries already if an earlier start of this build was killed halfway: its program may have run since, so
/// its counts are not lowered.
fn with_latest(
    theirs: Vec<(EntryKey, WindowState)>,
    ours: &[(EntryKey, WindowState)],
) -> Vec<(EntryKey, WindowState)> {
    let name = |key: &EntryKey| (key.hi, key.lo, key.group);
    let ours: BTreeMap<_, _> = ours.iter().map(|(key, state)| (name(key), state)).collect();
    let merged = |(key, state): (EntryKey, WindowState)| {
        let state = ours.get(&name(&key)).map_or(state, |ours| latest(&state, ours));
        (key, state)
    };
    theirs.into_iter().map(merged).collect()
}

/// Returns the later state of one window, word by word: the upper bits of a word number the window, the lower bits are its count.
fn latest(one: &WindowState, other: &WindowState) -> WindowState {
    let mut words = one.words;
    for (word, other) in words.iter_mut().zip(other.words) {
        *word = (*word).max(other);
    }
    WindowState { words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_in_our_windows_is_not_taken_back_by_what_is_left_in_theirs() {
        let key = |lo| EntryKey { hi: 0, lo, group: 0 };
        let state = |first, second| {
            let mut words = WindowState::FRESH.words;
            [words[0], words[1]] = [first, second];
            WindowState { words }
        };
        let theirs = vec![(key(1), state(7 << 32 | 40, 6 << 32 | 3)), (key(2), state(9, 0))];
        let ours = [(key(1), state(8 << 32 | 2, 6 << 32 | 1)), (key(3), state(5, 0))];
        let merged = with_latest(theirs, &ours);
        assert_eq!(merged, [(key(1), state(8 << 32 | 2, 6 << 32 | 3)), (key(2), state(9, 0))]);
    }
}
