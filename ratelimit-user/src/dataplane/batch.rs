//! Reads and writes large maps in few system calls.
//!
//! aya has no batches, and one call per entry takes seconds for a million sources.
//!
//! # Minimum kernel version
//! 5.6 for hash maps and arrays, 5.14 for tries. On older kernels a call fails with an error that [`is_missing`] recognises.
#![expect(unsafe_code, reason = "a system call that aya does not wrap")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use aya::{Pod, maps::MapData};

const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
const BPF_MAP_UPDATE_BATCH: libc::c_long = 26;
const BPF_MAP_DELETE_BATCH: libc::c_long = 27;
/// The error number for kinds of maps without batches. No C library defines it.
const ENOTSUPP: i32 = 524;
/// Entries per call: so many that the number of calls does not matter, and few enough that the buffers stay small.
const BATCH: usize = 4096;

/// The `batch` member of `union bpf_attr`.
#[repr(C)]
#[derive(Debug)]
struct Attributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Whether the kernel has no batches for this kind of map.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENOTSUPP | libc::EOPNOTSUPP))
}

/// Writes entries in their order. After an error, the entries before some place are written.
pub(super) fn update<K: Pod, V: Pod>(map: impl AsFd, entries: &[(K, V)]) -> io::Result<()> {
    for some in entries.chunks(BATCH) {
        let (keys, values): (Vec<K>, Vec<V>) = some.iter().copied().unzip();
        let mut attributes = Attributes {
            in_batch: 0,
            out_batch: 0,
            keys: keys.as_ptr() as u64,
            values: values.as_ptr() as u64,
            count: some.len() as u32,
            map_fd: map.as_fd().as_raw_fd() as u32,
            elem_flags: 0,
            flags: 0,
        };
        // SAFETY: the kernel reads `count` keys and values, of the sizes of the map's own definition, which the caller takes K and V
        // from; both live across the call.
        unsafe { call(BPF_MAP_UPDATE_BATCH, &mut attributes) }?;
    }
    Ok(())
}

/// Removes entries in their order. After an error, the entries before some place are gone.
pub(super) fn delete<K: Pod>(map: impl AsFd, keys: &[K]) -> io::Result<()> {
    keys.chunks(BATCH).try_for_each(|some| delete_some(&map, some).1)
}

/// Removes entries with one call, and returns how many are gone.
fn delete_some<K: Pod>(map: &impl AsFd, keys: &[K]) -> (usize, io::Result<()>) {
    let mut attributes = Attributes {
        in_batch: 0,
        out_batch: 0,
        keys: keys.as_ptr() as u64,
        values: 0,
        count: keys.len() as u32,
        map_fd: map.as_fd().as_raw_fd() as u32,
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads `count` keys of the size that the caller takes from the map's definition; they live across the call.
    let removed = unsafe { call(BPF_MAP_DELETE_BATCH, &mut attributes) };
    (attributes.count as usize, removed)
}

/// Removes those of the entries that are still there: an LRU map may have evicted some.
pub(super) fn delete_present<K: Pod>(map: impl AsFd, mut keys: &[K]) -> io::Result<()> {
    while !keys.is_empty() {
        let some = &keys[..keys.len().min(BATCH)];
        match delete_some(&map, some) {
            (_, Ok(())) => keys = &keys[some.len()..],
            (gone, Err(error)) if error.raw_os_error() == Some(libc::ENOENT) => {
                keys = &keys[(gone + 1).min(some.len())..];
            }
            (_, Err(error)) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the words of the only value of an array. The value may be too large for a stack.
pub(super) fn only_value(map: &MapData) -> io::Result<Vec<u64>> {
    let bytes = map.info().map_err(io::Error::other)?.value_size() as usize;
    let mut words = vec![0_u64; bytes.div_ceil(size_of::<u64>())];
    let (mut key, mut next) = (0_u32, 0_u32);
    let mut attributes = Attributes {
        in_batch: 0,
        out_batch: (&raw mut next) as u64,
        keys: (&raw mut key) as u64,
        values: words.as_mut_ptr() as u64,
        count: 1,
        map_fd: map.fd().as_fd().as_raw_fd() as u32,
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: every pointer is to memory that lives across the call; keys of arrays have four bytes, and there is room for one value.
    match unsafe { call(BPF_MAP_LOOKUP_BATCH, &mut attributes) } {
        // ENOENT says that this value was the last one.
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(words),
    }
}

/// Writes the words of the only value of an array, which may be too large for a stack.
pub(super) fn set_only_value(map: &MapData, words: &[u64]) -> io::Result<()> {
    let bytes = map.info().map_err(io::Error::other)?.value_size() as usize;
    if bytes != size_of_val(words) {
        return Err(io::Error::other(format!("the value has {bytes} bytes")));
    }
    let key = 0_u32;
    let mut attributes = Attributes {
        in_batch: 0,
        out_batch: 0,
        keys: (&raw const key) as u64,
        values: words.as_ptr() as u64,
        count: 1,
        map_fd: map.fd().as_fd().as_raw_fd() as u32,
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads one key of four bytes and one value of as many bytes as there are words, by the check above; both live across the call.
    unsafe { call(BPF_MAP_UPDATE_BATCH, &mut attributes) }
}

/// Makes one bpf system call.
///
/// # Safety
/// Every pointer in the attributes is 0 or to memory that the command may read or write, for as many bytes as the attributes say.
unsafe fn call(command: libc::c_long, attributes: &mut Attributes) -> io::Result<()> {
    // SAFETY: the attributes are as large as said; what they point to is the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<Attributes>()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Calls `each` with the entries of a map, some at a time. Entries that come or go meanwhile may be missed. `start` is any position of the
/// type that the map uses: the number of a bucket for hash maps, a key for others.
pub(super) fn for_each_batch<K: Pod, V: Pod, P: Pod>(
    map: impl AsFd,
    zero: (K, V),
    start: P,
    mut each: impl FnMut(&[K], &[V]),
) -> io::Result<()> {
    let mut room = BATCH;
    let mut keys = vec![zero.0; room];
    let mut values = vec![zero.1; room];
    let mut position = start;
    let mut started = false;
    loop {
        let mut next = start;
        let mut attributes = Attributes {
            in_batch: if started { (&raw const position) as u64 } else { 0 },
            out_batch: (&raw mut next) as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: room as u32,
            map_fd: map.as_fd().as_raw_fd() as u32,
            elem_flags: 0,
            flags: 0,
        };
        // SAFETY: every pointer is to memory that lives across the call; keys and values have room for `count` entries
        // of the sizes K and V, which the caller takes from the map's own definition, as it does P; Pod makes any bytes valid.
        let error = unsafe { call(BPF_MAP_LOOKUP_BATCH, &mut attributes) }.err();
        match error.as_ref().and_then(io::Error::raw_os_error) {
            // One hash bucket holds more entries than there is room for.
            Some(libc::ENOSPC) if attributes.count == 0 => {
                room *= 2;
                keys.resize(room, zero.0);
                values.resize(room, zero.1);
                continue;
            }
            // ENOENT marks the end, with the last entries or without any.
            None | Some(libc::ENOENT) => {}
            Some(_) => return Err(error.unwrap_or_else(|| io::Error::other("unknown"))),
        }
        let count = attributes.count as usize;
        each(&keys[..count], &values[..count]);
        if error.is_some() {
            return Ok(());
        }
        position = next;
        started = true;
    }
}
