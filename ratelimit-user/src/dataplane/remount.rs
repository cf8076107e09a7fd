//! A BPF file system that is unmounted and mounted again is another one, and empty. Whoever has the pin directory open still reaches
//! what was pinned: the kernel keeps a file system that somebody uses. So everything can be pinned once more, and nothing was loose meanwhile.
//!
//! Another mount namespace (a container, a service with mounts of its own) can keep the file system that was unmounted here for as long as it
//! lives. A pin that stayed there would hold its link: `detach` would not take the program off, and an interface that is deleted would leave its
//! program in the kernel. So nothing is left behind in a file system that nobody here can reach any more.
//!
//! Pins that somebody removes are another thing. A link without a pin is gone, and its program off the interface; maps live on, because the daemon
//! has them open.

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

/// Whether the pin directory is another one than that which was claimed, on a BPF file system.
pub fn is_needed(pins: &PinDir, claim: &File) -> bool {
    let claimed = claim.metadata().map(|found| (found.dev(), found.ino()));
    let present = fs::metadata(pins.root()).map(|found| (found.dev(), found.ino()));
    let same = matches!((claimed, present), (Ok(claimed), Ok(present)) if claimed == present);
    !same && probe::require_bpffs(pins.root()).is_ok()
}

/// What was still in the directory that was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// What had been pinned.
    Pins,
    /// Nothing: somebody has removed the pins, and with them links and their hold on interfaces.
    Nothing,
}

/// The maps of this daemon, held open, under the names of their pins.
#[derive(Debug)]
pub struct HeldMaps {
    layout: Layout,
    maps: Vec<(&'static str, MapData)>,
    inner: PinnedInnerMaps,
}

impl HeldMaps {
    /// Opens what is pinned of a layout. `inner` are the maps within others, which change with the policy.
    pub fn open(pins: &PinDir, layout: Layout, inner: PinnedInnerMaps) -> Result<Self, DataplaneError> {
        let open = |name: &'static str| {
            let map = MapData::from_pin(pins.map(layout, name));
            Ok((name, map.map_err(DataplaneError::map(format!("open map {name}")))?))
        };
        Ok(Self { layout, maps: names::MAPS.iter().map(|name| open(name)).collect::<Result<_, _>>()?, inner })
    }

    /// Pins maps again whose pins are gone, with the directories that pins need. How many they were.
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

/// Pins everything that the claimed directory has once more, and claims the directory where it is now. All of it, or nothing.
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

/// Maps first: a link that is found without maps would be taken for that of another build.
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

/// Whether the file system of the claimed directory is mounted nowhere in this mount namespace. One that is hidden below another mount comes back
/// when that goes, with all that is pinned there. Where the kernel does not say, the file system is taken to be mounted.
fn is_unmounted(claim: &File) -> bool {
    let (Ok(found), Ok(mounts)) = (claim.metadata(), fs::read_to_string("/proc/self/mountinfo")) else {
        return false;
    };
    let device = format!("{}:{}", rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    !mounts.lines().any(|mount| mount.split(' ').nth(2) == Some(device.as_str()))
}

/// Removes what has been pinned elsewhere by now. What cannot be removed stays for as long as somebody else has the file system mounted.
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
