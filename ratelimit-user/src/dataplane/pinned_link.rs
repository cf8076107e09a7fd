//! Reads the pinned link of an interface: which program it runs, and where its interface is. Nothing here changes a link.

use std::{collections::BTreeMap, fs, sync::OnceLock};

use aya::programs::{
    links::{FdLink, PinnedLink},
    loaded_programs,
};

use super::{DataplaneError, interface::Attached, pin::PinDir};

/// Opens the pinned link of an interface. The pin stays.
pub(super) fn open(pins: &PinDir, name: &str) -> Option<FdLink> {
    let path = pins.link(name);
    fs::metadata(&path).ok()?;
    Some(PinnedLink::from_pin(path).ok()?.into())
}

/// Returns the id of the program that the pinned link of an interface runs.
pub(super) fn program_id(pins: &PinDir, name: &str) -> Option<u32> {
    Some(open(pins, name)?.info().ok()?.program_id())
}

/// Whether a program is ours: the pinned link of its interface runs it.
pub(super) fn is_ours(pins: &PinDir, name: &str, attached: Attached) -> bool {
    program_id(pins, name) == Some(attached.program_id)
}

/// Names of loaded programs by their ids, noted while this process could still ask for them.
static NAMES: OnceLock<BTreeMap<u32, String>> = OnceLock::new();

/// Notes the names of all loaded programs, before CAP_SYS_ADMIN is given up.
pub fn remember_names() {
    let names = loaded_programs().flatten();
    let _once = NAMES
        .set(names.filter_map(|program| Some((program.id(), program.name_as_str()?.to_owned()))).collect());
}

/// Returns the name of a loaded program, if this process may ask for it or has noted it.
pub fn program_name(id: u32) -> Option<String> {
    match loaded_programs().flatten().find(|program| program.id() == id) {
        Some(program) => program.name_as_str().map(str::to_owned),
        None => NAMES.get()?.get(&id).cloned(),
    }
}

/// Whether the interface of a pinned link still exists, in whichever network namespace. A link that cannot be read is an error, not a missing
/// interface: otherwise a process without free descriptors would take the program off an interface that is there.
pub(super) fn is_alive(pins: &PinDir, name: &str) -> Result<bool, DataplaneError> {
    let failed = |reason: String| DataplaneError::Attach { interface: name.to_owned(), reason };
    let link = PinnedLink::from_pin(pins.link(name))
        .map_err(|error| failed(format!("its pinned link cannot be opened: {error}")))?;
    let link = FdLink::from(link);
    let id = link.info().map_err(|error| failed(format!("its pinned link cannot be asked: {error}")))?.id();
    let index =
        link_interface(id).ok_or_else(|| failed("the kernel does not say where its link is".into()))?;
    Ok(index != 0)
}

/// Whether a name has a pinned link whose interface still exists, or whose interface cannot be asked for. The caller knows that no interface of this name runs it.
pub(super) fn is_elsewhere(pins: &PinDir, name: &str) -> bool {
    pins.link(name).exists() && is_alive(pins, name).unwrap_or(true)
}

/// Returns the index of the interface of a pinned link, in whichever network namespace it is; `None` once the interface is gone.
pub(super) fn interface_index(pins: &PinDir, name: &str) -> Option<u32> {
    let link = open(pins, name)?;
    link_interface(link.info().ok()?.id()).filter(|index| *index != 0)
}

/// Returns the interface index of a link that this process has open; 0 once the interface is gone.
///
/// The kernel tells the index in the fdinfo of the link. aya gives neither the index nor the number of the descriptor.
fn link_interface(link_id: u32) -> Option<u32> {
    let wanted = format!("link_id:\t{link_id}");
    for entry in fs::read_dir("/proc/self/fdinfo").ok()?.flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        if text.lines().any(|line| line == wanted) {
            return text.lines().find_map(|line| line.strip_prefix("ifindex:\t")?.parse().ok());
        }
    }
    None
}
