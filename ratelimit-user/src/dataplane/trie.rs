//! Reads and writes many entries of a longest-prefix-match trie at once, or one by one where the kernel has no batches.

use std::{io, os::fd::AsFd as _};

use aya::{
    Pod,
    maps::{IterableMap as _, LpmTrie, MapData, MapError, lpm_trie::Key},
    sys::SyscallError,
};

use super::batch;

/// Sets entries, then removes others, both in their order. After an error, a part of this is done.
pub(super) fn write<A: Pod, V: Pod>(
    trie: &mut LpmTrie<MapData, A, V>,
    sets: &[(Key<A>, V)],
    removals: &[Key<A>],
) -> Result<(), MapError> {
    let fd = trie.map().fd();
    let batched = batch::update(fd.as_fd(), sets).and_then(|()| batch::delete(fd.as_fd(), removals));
    match batched {
        // No entry has been written yet: a kernel without batches refuses the first one.
        Err(error) if batch::is_missing(&error) => {
            sets.iter().try_for_each(|(key, value)| trie.insert(key, value, 0))?;
            removals.iter().try_for_each(|key| trie.remove(key))
        }
        other => other.map_err(|error| failed("bpf_map_update_batch", error)),
    }
}

/// Calls `each` with length, address and value of every entry.
pub(super) fn read<A: Pod, V: Pod>(
    trie: &LpmTrie<MapData, A, V>,
    zero: (A, V),
    mut each: impl FnMut(u32, A, V),
) -> Result<(), MapError> {
    let start = Key::new(0, zero.0);
    let batched = batch::for_each_batch(trie.map().fd().as_fd(), (start, zero.1), start, |keys, values| {
        keys.iter().zip(values).for_each(|(key, value)| each(key.prefix_len(), key.data(), *value));
    });
    match batched {
        Err(error) if batch::is_missing(&error) => trie.iter().try_for_each(|entry| {
            let (key, value) = entry?;
            each(key.prefix_len(), key.data(), value);
            Ok(())
        }),
        other => other.map_err(|error| failed("bpf_map_lookup_batch", error)),
    }
}

fn failed(call: &'static str, io_error: io::Error) -> MapError {
    MapError::SyscallError(SyscallError { call, io_error })
}
