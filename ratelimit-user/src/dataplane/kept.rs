//! The variables of the express lane, kept across loads of the program.
//!
//! The switches and the lane's copy of the policy are variables of the program, and loading a program writes its variables. A program that is loaded
//! beside a running one shares its variables, so the load has to write the values that are there. Only a daemon changes them, and not while
//! it loads.

use aya::{
    EbpfLoader,
    maps::{Array, Map, MapData},
};
use ratelimit_common::abi::{Policy, Switches, names};

use super::{
    DataplaneError,
    pin::{Layout, PinDir},
};

/// The values that the variables of the earlier program have.
pub(super) struct KeptVariables {
    switches: Switches,
    copy: Box<Policy>,
}

impl KeptVariables {
    /// Reads the pinned variables; `None` if there are none yet.
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

    /// Makes a program begin with these values.
    pub(super) fn hand_to<'k>(&'k self, loader: &mut EbpfLoader<'k>) {
        loader.override_global(names::variable(names::SWITCHES), &self.switches, true);
        loader.override_global(names::variable(names::EXPRESS), &*self.copy, true);
    }
}
