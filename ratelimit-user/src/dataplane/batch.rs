//! Reading a large hash map in few system calls.
//!
//! aya has no batched reads, and one call per entry takes seconds for a million sources.
//!
//! # Minimum kernel version
//! 5.6, for BPF_MAP_LOOKUP_BATCH.
#![expect(unsafe_code, reason = "a system call that aya does not wrap")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use aya::Pod;

const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
/// Entries per call: large enough that the calls do not matter, small enough for the stack of nobody.
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

/// Calls `each` with the entries of a hash map, some at a time. Entries that come or go meanwhile may be missed.
pub(super) fn for_each_batch<K: Pod, V: Pod>(
    map: impl AsFd,
    zero: (K, V),
    mut each: impl FnMut(&[K], &[V]),
) -> io::Result<()> {
    let mut room = BATCH;
    let mut keys = vec![zero.0; room];
    let mut values = vec![zero.1; room];
    // Hash maps hand out a bucket number as the position to go on from.
    let mut position = 0_u32;
    let mut started = false;
    loop {
        let mut next = 0_u32;
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
        // of the sizes K and V, which the caller takes from the map's own definition; Pod makes any bytes valid.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, BPF_MAP_LOOKUP_BATCH, &raw mut attributes, size_of::<Attributes>())
        };
        let error = (result != 0).then(io::Error::last_os_error);
        match error.as_ref().and_then(io::Error::raw_os_error) {
            // One hash bucket holds more entries than there is room for.
            Some(libc::ENOSPC) if attributes.count == 0 => {
                room *= 2;
                keys.resize(room, zero.0);
                values.resize(room, zero.1);
                continue;
            }
            // The end: with the last entries, or without any.
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
