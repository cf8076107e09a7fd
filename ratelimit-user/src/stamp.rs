//! Detects that a file has changed, without reading it.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use serde::{Deserialize, Serialize};

/// A value that changes whenever a file is written, replaced or removed. A symbolic link counts as the file it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp(Option<(i64, i64, u64, u64)>);

impl Stamp {
    /// The stamp of a file that does not exist.
    pub(crate) const NONE: Self = Self(None);

    /// The stamp of a file, whether it exists or not.
    pub(crate) fn of(path: &Path) -> Self {
        let stamp = |meta: fs::Metadata| (meta.ctime(), meta.ctime_nsec(), meta.ino(), meta.size());
        Self(fs::metadata(path).ok().map(stamp))
    }
}
