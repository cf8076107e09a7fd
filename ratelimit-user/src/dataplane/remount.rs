//! Pins everything again when the BPF file system was unmounted and mounted anew. The new file system is empty. A process that has the old
//! pin directory open still reaches its pins, because the kernel keeps a file system in use. So links and maps stay alive meanwhile.
//!
//! Another mount namespace (a container, a service with mounts of its own) can keep the unmounted file system for as long as it lives. A pin
//! left there would hold its link: `detach` would not take the program off, and a deleted interface would leave its program in the kernel.
//! So no pins are left in a file system that cannot be reached here any more.
//!
//! Pins that were removed are a different case: a link without a pin is gone, and its program off the interface; maps live on, because the
//! daemon has them open.

use std::{
    fs::{self, DirBuilder, File},
    os::{
        fd::AsRawFd as _,
        unix::fs::{DirBuilderExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use aya::{
    maps::MapData,
    programs::links::{FdLink, PinnedLink},
};

use ratelimit_common::abi::names;

use super::{
    DataplaneError,
    inner_maps::PinnedInnerMaps,
    pin::{Layout, PinDir},
    probe,
};

/// Whether the pin directory is not the directory that was claimed, and is on a BPF file system.
pub fn is_needed(pins: &PinDir, claim: &File) -> bool {
    let claimed = claim.metadata().map(|found| (found.dev(), found.ino()));
    let present = fs::metadata(pins.root()).map(|found| (found.dev(), found.ino()));
    let same = matches!((claimed, present), (Ok(claimed), Ok(present)) if claimed == present);
    !same && probe::require_bpffs(pins.root()).is_ok()
}

/// What `pin_again` found in the directory that was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The pins were still there.
    Pins,
    /// The directory was empty: the pins were removed, and the links with them.
    Nothing,
}

/// The maps of this daemon, held open under the names of their pins.
#[derive(Debug)]
pub struct HeldMaps {
    layout: Layout,
    maps: Vec<(&'static str, MapData)>,
    inner: PinnedInnerMaps,
}

impl HeldMaps {
    /// Opens the pinned maps of a layout. `inner` are the inner maps, which change with the policy.
    pub fn open(pins: &PinDir, layout: Layout, inner: PinnedInnerMaps) -> Result<Self, DataplaneError> {
        let open = |name: &'static str| {
            let map = MapData::from_pin(pins.map(layout, name));
            Ok((name, map.map_err(DataplaneError::map(format!("open map {name}")))?))
        };
        Ok(Self { layout, maps: names::MAPS.iter().map(|name| open(name)).collect::<Result<_, _>>()?, inner })
    }

    /// Pins maps again whose pins are gone, makes missing directories, and returns the number of new pins.
    pub fn pin_missing(&self, pins: &PinDir) -> Result<usize, DataplaneError> {
        pins.create(self.layout)?;
        let mut missing = 0;
        let inner = self.inner.lock();
        let maps = self.maps.iter().map(|(name, map)| (name, map));
        for (name, map) in maps.chain(inner.iter()) {
            let path = pins.map(self.layout, name);
            if fs::symlink_metadata(&path).is_ok() {
                continue;
            }
            map.pin(&path).map_err(|error| DataplaneError::Load {
                reason: format!("cannot pin {} again: {error}", path.display()),
            })?;
            missing += 1;
        }
        Ok(missing)
    }
}

/// Pins everything in the claimed directory again under the present directory, and claims that one. If a pin fails, the new pins are removed.
pub fn pin_again(pins: &PinDir, claim: &File) -> Result<(File, Found), DataplaneError> {
    let present = pins.claim()?;
    if !(pins.layouts()?.is_empty() && pins.linked_interfaces()?.is_empty()) {
        return Err(DataplaneError::PinDirTaken { path: pins.root().to_owned() });
    }
    let former = PathBuf::from(format!("/proc/self/fd/{}", claim.as_raw_fd()));
    let left = is_unmounted(claim);
    let mut made = Vec::new();
    let pinned = pin_all(&former, pins.root(), &mut made);
    if let Err(error) = pinned {
        for path in made.iter().rev() {
            let _gone = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        }
        return Err(error);
    }
    if left {
        remove_pins(&former);
    }
    Ok((present, if made.is_empty() { Found::Nothing } else { Found::Pins }))
}

/// Pins all files of `former` under `present`, and adds the new paths to `made`. Maps come first, because a link without maps would be taken for one of another build.
fn pin_all(former: &Path, present: &Path, made: &mut Vec<PathBuf>) -> Result<(), DataplaneError> {
    let mut dirs = entries(former)?;
    dirs.sort_by_key(|name| name == "links");
    for dir in dirs {
        let (from, to) = (former.join(&dir), present.join(&dir));
        let done = DirBuilder::new().mode(0o700).create(&to);
        done.map_err(DataplaneError::io(format!("make {}", to.display())))?;
        made.push(to.clone());
        for name in entries(&from)? {
            let (from, to) = (from.join(&name), to.join(&name));
            let failed = |reason: String| DataplaneError::Load {
                reason: format!("cannot pin {} again: {reason}", to.display()),
            };
            if dir == "links" {
                let link = PinnedLink::from_pin(&from).map_err(|error| failed(error.to_string()))?;
                FdLink::from(link).pin(&to).map_err(|error| failed(error.to_string()))?;
            } else {
                let map = MapData::from_pin(&from).map_err(|error| failed(error.to_string()))?;
                map.pin(&to).map_err(|error| failed(error.to_string()))?;
            }
            made.push(to);
        }
    }
    Ok(())
}

/// Whether the file system of the claimed directory is mounted nowhere in this mount namespace. A file system hidden below another mount still
/// counts as mounted, because it reappears with its pins when that mount goes. If the kernel does not tell, it counts as mounted too.
fn is_unmounted(claim: &File) -> bool {
    let (Ok(found), Ok(mounts)) = (claim.metadata(), fs::read_to_string("/proc/self/mountinfo")) else {
        return false;
    };
    let device = format!("{}:{}", rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    !mounts.lines().any(|mount| mount.split(' ').nth(2) == Some(device.as_str()))
}

/// Removes the old pins. Pins that cannot be removed stay for as long as another mount namespace has the file system mounted.
fn remove_pins(former: &Path) {
    for dir in entries(former).unwrap_or_default() {
        let dir = former.join(dir);
        for name in entries(&dir).unwrap_or_default() {
            let _stays = fs::remove_file(dir.join(name));
        }
        let _stays = fs::remove_dir(dir);
    }
}

fn entries(dir: &Path) -> Result<Vec<String>, DataplaneError> {
    let failed = || DataplaneError::io(format!("read {}", dir.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed())? {
        names.extend(entry.map_err(failed())?.file_name().into_string());
    }
    Ok(names)
}
