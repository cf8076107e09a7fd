//! Whether a file is another one than it was, told without reading it.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use serde::{Deserialize, Serialize};

/// What changes whenever a file is written, replaced or removed. A link counts as what it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp(Option<(i64, i64, u64, u64)>);

impl Stamp {
    /// The stamp of a file that is not there.
    pub(crate) const NONE: Self = Self(None);

    /// The stamp of a file, whether it is there or not.
    pub(crate) fn of(path: &Path) -> Self {
        let stamp = |meta: fs::Metadata| (meta.ctime(), meta.ctime_nsec(), meta.ino(), meta.size());
        Self(fs::metadata(path).ok().map(stamp))
    }
}
