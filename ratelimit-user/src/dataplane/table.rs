//! Reads the table of sources and the prefilter in front of it.

use std::{fmt, os::fd::AsFd as _};

use aya::{
    Pod,
    maps::{Array, HashMap, IterableMap as _, MapData, MapError},
};
use ratelimit_common::{
    abi::{Bucket, Cell, EntryKey, cell::NEGATIVE_ENTRIES},
    limit::{gcra, prefilter},
};

use super::{DataplaneError, batch};
use crate::compile::window;

/// The table of sources. It can be shared between threads, because reading a large table takes a while and must not hold up other work.
pub struct SourceTable {
    buckets: HashMap<MapData, EntryKey, Bucket>,
    cells: Array<MapData, Cell>,
    negative: MapData,
    marks: Array<MapData, u32>,
}

/// How full the table of sources is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableUse {
    /// The number of entries in the table.
    pub entries: u64,
    /// The number of entries that the table has room for.
    pub capacity: u64,
    /// The number of prefilter cells that have a tracked source.
    pub tracked_cells: u64,
}

impl SourceTable {
    pub(super) fn new(
        buckets: HashMap<MapData, EntryKey, Bucket>,
        cells: Array<MapData, Cell>,
        negative: MapData,
        marks: Array<MapData, u32>,
    ) -> Self {
        Self { buckets, cells, negative, marks }
    }

    /// Counts the entries of the table, and the prefilter cells that have a tracked source.
    pub fn usage(&self, now_ns: u64) -> Result<TableUse, DataplaneError> {
        let mut entries = 0;
        self.for_each(|keys, _| entries += keys.len() as u64)?;
        let tracked_cells = self.tracked_cells(gcra::time_q8(now_ns))?;
        let info = self.buckets.map().info().map_err(DataplaneError::map("ask for the size of the table"))?;
        Ok(TableUse { entries, capacity: u64::from(info.max_entries()), tracked_cells })
    }

    /// Calls `each` with the sources and their buckets, some at a time.
    pub fn for_each(&self, each: impl FnMut(&[EntryKey], &[Bucket])) -> Result<(), DataplaneError> {
        let zero = (EntryKey { hi: 0, lo: 0, group: 0 }, Bucket::FULL);
        batch::for_each_batch(self.buckets.map().fd().as_fd(), zero, 0_u32, each)
            .map_err(DataplaneError::io("read the table of sources"))
    }

    /// Reads the buckets of one source. The kernel does not count this as a use of the entry.
    pub fn entry(&self, key: &EntryKey) -> Result<Option<Bucket>, DataplaneError> {
        found(self.buckets.get(key, 0)).map_err(DataplaneError::map("read the table of sources"))
    }

    /// Removes the entries that sources have under services, which are given by index.
    pub(super) fn forget_services(&self, services: &[u32]) -> Result<(), DataplaneError> {
        forget(&self.buckets, Bucket::FULL, services)
            .map_err(DataplaneError::io("forget what sources have spent of a service"))
    }

    /// Reads one cell of the prefilter.
    pub fn cell(&self, index: u32) -> Result<Cell, DataplaneError> {
        self.cells.get(&index, 0).map_err(DataplaneError::map("read the prefilter"))
    }

    /// Reads the negative entries of one cell of the prefilter.
    pub fn negative_entries(&self, cell: u32) -> Result<[u64; NEGATIVE_ENTRIES], DataplaneError> {
        let all = batch::only_value(&self.negative).map_err(DataplaneError::io("read the negative cache"))?;
        let of_cell = all.chunks_exact(NEGATIVE_ENTRIES).nth(cell as usize);
        Ok(of_cell.and_then(|entries| entries.try_into().ok()).unwrap_or_default())
    }

    /// Reads until when a cell of the prefilter is tracked, as a time word.
    pub fn tracked_until_q8(&self, cell: u32) -> Result<u64, DataplaneError> {
        let mark = self.marks.get(&cell, 0).map_err(DataplaneError::map("read the prefilter"))?;
        Ok(prefilter::marked_until_q8(mark))
    }

    fn tracked_cells(&self, now_q8: u64) -> Result<u64, DataplaneError> {
        let mut tracked = 0;
        let is_tracked = |mark: &&u32| prefilter::is_tracked(prefilter::marked_until_q8(**mark), now_q8);
        let count = |_: &[u32], marks: &[u32]| tracked += marks.iter().filter(is_tracked).count() as u64;
        batch::for_each_batch(self.marks.map().fd().as_fd(), (0, 0), 0_u32, count)
            .map_err(DataplaneError::io("read the prefilter"))?;
        Ok(tracked)
    }
}

// aya's array has no Debug of its own.
impl fmt::Debug for SourceTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceTable").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}

/// Turns the error for a missing key into `None`.
pub(super) fn found<V>(result: Result<V, MapError>) -> Result<Option<V>, MapError> {
    match result {
        Err(MapError::KeyNotFound) => Ok(None),
        result => result.map(Some),
    }
}

/// Removes the entries of a map that sources have under services, which are given by index.
pub(super) fn forget<V: Pod>(
    map: &HashMap<MapData, EntryKey, V>,
    zero: V,
    services: &[u32],
) -> std::io::Result<()> {
    let fd = map.map().fd().as_fd();
    let mut keys: Vec<EntryKey> = Vec::new();
    let zero = (EntryKey { hi: 0, lo: 0, group: 0 }, zero);
    batch::for_each_batch(fd, zero, 0_u32, |all, _| {
        keys.extend(all.iter().filter(|key| window::is_of_service(key.group, services)));
    })?;
    batch::delete_present(fd, &keys)
}
