//! Reads the state that a daemon which is gone has left in force, from its pins. Nothing is loaded or changed.

use aya::maps::{Array, ArrayOfMaps, LpmTrie, Map, MapData, MapError, PerCpuArray};
use ratelimit_common::abi::{self, ABI_VERSION, Counter, names, service::MAX_SERVICES};

use super::{
    DataplaneError,
    framing::Framing,
    interface, ip_programs,
    kernel::{read_counts, read_known_packets, read_lists},
    pin::{Layout, PinDir},
    presence::Presence,
};
use crate::{
    compile::lists::Lists,
    stats::{Count, known_packets::KnownPackets},
};

/// An interface that has a pinned link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The name of the interface.
    pub name: String,
    /// The program that is on the interface now.
    pub presence: Presence,
    /// The framing that our program reads.
    pub framing: Framing,
}

/// Pinned maps of this build's layout.
#[derive(Clone, Debug)]
pub struct Remains {
    pins: PinDir,
    layout: Layout,
}

/// Returns every interface that has a pinned link, with its present state.
pub fn linked(pins: &PinDir) -> Result<Vec<Linked>, DataplaneError> {
    let all = interface::list()?;
    let linked = |name: String| Linked {
        presence: Presence::among(pins, &all, &name),
        framing: ip_programs::framing(pins, &name),
        name,
    };
    Ok(pins.linked_interfaces()?.into_iter().map(linked).collect())
}

impl Remains {
    /// Finds the pinned maps that this build can read, if there are some.
    pub fn find(pins: &PinDir) -> Result<Option<Self>, DataplaneError> {
        let layout = pins.layouts()?.into_iter().find(|layout| layout.abi == ABI_VERSION);
        Ok(layout.map(|layout| Self { pins: pins.clone(), layout }))
    }

    /// Returns the number of sources that the table has room for.
    pub fn table_capacity(&self) -> u32 {
        self.layout.sources
    }

    /// Reads the policy in force; `None` before the first.
    pub fn policy(&self) -> Result<Option<Box<abi::Policy>>, DataplaneError> {
        let policies: ArrayOfMaps<MapData, Array<MapData, abi::Policy>> =
            self.open(names::POLICY, Map::ArrayOfMaps)?;
        Ok(policies.get(&0, 0).ok().and_then(|policy| policy.get(&0, 0).ok()).map(Box::new))
    }

    /// Reads the block list and the allow list out of the pinned maps.
    pub fn lists(&self) -> Result<Lists, DataplaneError> {
        let v4: LpmTrie<_, _, _> = self.open(names::LISTS_V4, Map::LpmTrie)?;
        let v6: LpmTrie<_, _, _> = self.open(names::LISTS_V6, Map::LpmTrie)?;
        read_lists(&v4, &v6)
    }

    /// Reads the counters of every possible service, because it is not known here which services there are.
    pub fn counts(&self) -> Result<Vec<Count>, DataplaneError> {
        let counters: PerCpuArray<MapData, Counter> = self.open(names::COUNTERS, Map::PerCpuArray)?;
        read_counts(&counters, 0..=MAX_SERVICES as u32)
    }

    /// Reads the packets of known clients that came while a total was spent.
    pub fn known_packets(&self) -> Result<KnownPackets, DataplaneError> {
        let events: PerCpuArray<MapData, u64> = self.open(names::EVENTS, Map::PerCpuArray)?;
        read_known_packets(&events)
    }

    fn open<T>(&self, name: &str, kind: impl FnOnce(MapData) -> Map) -> Result<T, DataplaneError>
    where
        T: TryFrom<Map, Error = MapError>,
    {
        let path = self.pins.map(self.layout, name);
        let opened = MapData::from_pin(&path).and_then(|map| T::try_from(kind(map)));
        opened.map_err(DataplaneError::map(format!("open {}", path.display())))
    }
}
