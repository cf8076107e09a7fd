//! The pin directory, which keeps links and maps alive while no daemon runs.
//!
//! ```text
//! <pin>/links/<interface>                    one link per interface; its program is replaced in place
//! <pin>/abi-<version>-sources-<n>/<MAP>      the maps, under everything that decides whether they can be adopted
//! ```
//!
//! A daemon that finds maps of its own layout adopts them with their contents. Maps of another layout stay in use until
//! the links have been switched to the new program, and are removed then; see `former`.

use std::{
    fmt,
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use ratelimit_common::abi::{ABI_VERSION, names};

use super::DataplaneError;

/// The version and size that decide whether pinned maps can be adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Version of the map types.
    pub abi: u32,
    /// The size of the table of sources.
    pub sources: u32,
}

impl Layout {
    /// Returns the layout of this build with a table of `sources` entries.
    pub fn current(sources: u32) -> Self {
        Self { abi: ABI_VERSION, sources }
    }

    fn dir_name(self) -> String {
        format!("abi-{}-sources-{}", self.abi, self.sources)
    }

    fn parse(dir_name: &str) -> Option<Self> {
        let (abi, sources) = dir_name.strip_prefix("abi-")?.split_once("-sources-")?;
        Some(Self { abi: abi.parse().ok()?, sources: sources.parse().ok()? })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "abi {}, {} sources", self.abi, self.sources)
    }
}

/// The pin directory.
#[derive(Clone, Debug)]
pub struct PinDir {
    root: PathBuf,
}

impl PinDir {
    /// Names a pin directory, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the path of the pin directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory with the maps of a layout.
    pub fn maps(&self, layout: Layout) -> PathBuf {
        self.root.join(layout.dir_name())
    }

    /// Returns the path of a map of a layout.
    pub fn map(&self, layout: Layout, map: &str) -> PathBuf {
        self.maps(layout).join(names::variable(map))
    }

    /// Returns the path of the link of an interface.
    pub fn link(&self, interface: &str) -> PathBuf {
        self.links().join(encode(interface))
    }

    fn links(&self) -> PathBuf {
        self.root.join("links")
    }

    /// Makes the directories for a layout.
    pub fn create(&self, layout: Layout) -> Result<(), DataplaneError> {
        for dir in [self.links(), self.maps(layout)] {
            make(&dir)?;
        }
        Ok(())
    }

    /// Returns the interfaces whose link is pinned.
    pub fn linked_interfaces(&self) -> Result<Vec<String>, DataplaneError> {
        Ok(names_in(&self.links())?.iter().map(|name| decode(name)).collect())
    }

    /// Returns the layouts that have pinned maps.
    pub fn layouts(&self) -> Result<Vec<Layout>, DataplaneError> {
        Ok(names_in(&self.root)?.iter().filter_map(|name| Layout::parse(name)).collect())
    }

    /// Unpins the link of an interface, which detaches the program unless a process holds the link open.
    pub fn remove_link(&self, interface: &str) -> Result<(), DataplaneError> {
        let path = self.link(interface);
        fs::remove_file(&path).map_err(DataplaneError::io(format!("remove {}", path.display())))
    }

    /// Gives the pin of a link another name. A pin that had this name is removed.
    pub fn rename_link(&self, before: &str, now: &str) -> Result<(), DataplaneError> {
        let (before, now) = (self.link(before), self.link(now));
        fs::rename(&before, &now).map_err(DataplaneError::io(format!(
            "rename {} to {}",
            before.display(),
            now.display()
        )))
    }

    /// Unpins the maps of a layout.
    pub fn remove_maps(&self, layout: Layout) -> Result<(), DataplaneError> {
        let dir = self.maps(layout);
        fs::remove_dir_all(&dir).map_err(DataplaneError::io(format!("remove {}", dir.display())))
    }

    /// Unpins the maps of all layouts.
    pub fn unpin_maps(&self) -> Result<(), DataplaneError> {
        self.layouts()?.into_iter().try_for_each(|layout| self.remove_maps(layout))
    }

    /// Unpins all maps, and removes the directories if nothing else is in them.
    pub fn remove_all_maps(&self) -> Result<(), DataplaneError> {
        self.unpin_maps()?;
        // Not recursively, because files that are still in there are not ours.
        let _not_empty = fs::remove_dir(self.links());
        let _not_empty = fs::remove_dir(&self.root);
        Ok(())
    }

    /// Locks the directory for this process, until the returned file is dropped: two daemons on one set of maps would undo
    /// each other's work.
    pub fn claim(&self) -> Result<File, DataplaneError> {
        let failed = || DataplaneError::io(format!("take {}", self.root.display()));
        make(&self.root)?;
        let dir = File::open(&self.root).map_err(failed())?;
        match dir.try_lock() {
            Ok(()) => Ok(dir),
            Err(TryLockError::WouldBlock) => Err(DataplaneError::PinDirTaken { path: self.root.clone() }),
            Err(TryLockError::Error(error)) => Err(failed()(error)),
        }
    }
}

/// Makes a directory and its parents, closed to other users whatever the umask is: whoever may write into one can take the program off an interface.
fn make(dir: &Path) -> Result<(), DataplaneError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(DataplaneError::io(format!("make {}", dir.display())))
}

/// How many levels below a BPF file system are searched for pin directories.
const DEPTH: usize = 4;

/// Returns the directories on BPF file systems, as far as they can be read, that have a pin for the link of an interface.
pub fn with_link(interface: &str) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut found = Vec::new();
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        if let (Some(mount), Some("bpf")) = (words.next(), words.next()) {
            look_below(Path::new(mount), interface, DEPTH, &mut found);
        }
    }
    found.sort();
    found.dedup();
    found
}

fn look_below(dir: &Path, interface: &str, depth: usize, found: &mut Vec<PathBuf>) {
    if PinDir::new(dir).link(interface).exists() {
        found.push(dir.to_owned());
    }
    if depth == 0 {
        return;
    }
    let below = fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        look_below(&entry.path(), interface, depth - 1, found);
    }
}

fn names_in(dir: &Path) -> Result<Vec<String>, DataplaneError> {
    let failed = || DataplaneError::io(format!("read {}", dir.display()));
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed())?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(failed())?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Returns the file name for an interface. The BPF file system reserves dots, and names of VLAN interfaces have them.
fn encode(interface: &str) -> String {
    interface.replace('%', "%25").replace('.', "%2E")
}

fn decode(file_name: &str) -> String {
    file_name.replace("%2E", ".").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn interface_names_survive_the_way_to_a_file_name_and_back() {
        for name in ["eth0", "eth0.100", "a%2Eb", "%", "..x"] {
            assert!(!encode(name).contains('.'), "{name}");
            assert_eq!(decode(&encode(name)), name);
        }
    }

    #[test]
    fn directories_for_pins_are_for_nobody_else() {
        let root = std::env::temp_dir().join(format!("ratelimit-pin-{}", std::process::id()));
        let pins = PinDir::new(root.join("around/pins"));
        let layout = Layout { abi: 7, sources: 16 };
        drop(pins.claim().unwrap());
        pins.create(layout).unwrap();
        for dir in [root.join("around"), pins.root().to_owned(), pins.links(), pins.maps(layout)] {
            let mode = fs::metadata(&dir).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o700, "{}", dir.display());
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_layout_is_read_back_from_its_directory_name() {
        let layout = Layout { abi: 7, sources: 65_536 };
        assert_eq!(Layout::parse(&layout.dir_name()), Some(layout));
        assert_eq!(Layout::parse("links"), None);
        assert_eq!(Layout::parse("abi-x-sources-1"), None);
    }
}
