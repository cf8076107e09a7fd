//! What the express lane goes by, across loads of the program.
//!
//! Switches and the lane's copy of the policy are variables of the program, and whoever loads a program writes its variables. A program that is loaded
//! beside one that is at work shares them with it, so it is told to write what is there. Only a daemon changes either, and it does not
//! while it loads.

use aya::{
    EbpfLoader,
    maps::{Array, Map, MapData},
};
use ratelimit_common::abi::{Policy, Switches, names};

use super::{
    DataplaneError,
    pin::{Layout, PinDir},
};

/// The variables as a program before has them.
pub(super) struct KeptVariables {
    switches: Switches,
    copy: Box<Policy>,
}

impl KeptVariables {
    /// What is pinned; `None` if nothing is yet.
    pub(super) fn read(pins: &PinDir, layout: Layout) -> Result<Option<Self>, DataplaneError> {
        let paths = [names::SWITCHES, names::EXPRESS].map(|map| pins.map(layout, map));
        if paths.iter().any(|path| !path.exists()) {
            return Ok(None);
        }
        let failed = || DataplaneError::map(format!("read what the express lane of {layout} goes by"));
        let [switches, copy] = paths.map(|path| MapData::from_pin(path).map(Map::Array));
        let switches: Array<_, Switches> = switches.and_then(Array::try_from).map_err(failed())?;
        let copy: Array<_, Policy> = copy.and_then(Array::try_from).map_err(failed())?;
        Ok(Some(Self {
            switches: switches.get(&0, 0).map_err(failed())?,
            copy: Box::new(copy.get(&0, 0).map_err(failed())?),
        }))
    }

    /// Has a program begin with them.
    pub(super) fn hand_to<'k>(&'k self, loader: &mut EbpfLoader<'k>) {
        loader.override_global(names::variable(names::SWITCHES), &self.switches, true);
        loader.override_global(names::variable(names::EXPRESS), &*self.copy, true);
    }
}
