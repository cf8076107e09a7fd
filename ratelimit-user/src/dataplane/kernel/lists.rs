//! The block list and the allow list in the kernel's tries.

use aya::maps::{LpmTrie, MapData, MapError, lpm_trie::Key};
use ratelimit_common::abi::{
    ListEntry,
    list::{self, ListAddrV4, ListAddrV6},
};

use super::KernelMaps;
use crate::{
    compile::lists::{self, Change, Lists, Prefix, TrieKey},
    dataplane::{DataplaneError, trie},
};

impl KernelMaps {
    /// Reads the block list and the allow list out of the kernel.
    pub fn lists(&self) -> Result<Lists, DataplaneError> {
        read_lists(&self.lists_v4, &self.lists_v6)
    }

    /// Carries out changes of the lists, all or none. `lists` is the kernel's state, before and after.
    pub fn change_lists(&mut self, lists: &mut Lists, changes: &[Change]) -> Result<(), DataplaneError> {
        require_room(lists, changes)?;
        // The program skips a list without entries. The list is switched on before its first entry is written, and off after the last is removed.
        self.lane.lists_change(lists, changes)?;
        if let Err(error) = self.write_lists(changes) {
            // Half a change could let a source pass, so it is undone: entries are removed and put back, and
            // neither needs more room than there was.
            self.lane.lists_undone()?;
            self.write_lists(&lists::changes(&self.lists()?, lists))?;
            self.lane.lists_changed(lists)?;
            return Err(error);
        }
        self.lane.lists_carry_out(lists, changes);
        lists::carry_out(lists, changes);
        self.lane.lists_changed(lists)
    }

    /// Writes the changes in their order, first those of IPv4, then those of IPv6.
    fn write_lists(&mut self, changes: &[Change]) -> Result<(), DataplaneError> {
        let (mut sets_v4, mut sets_v6, mut gone_v4, mut gone_v6) = (vec![], vec![], vec![], vec![]);
        for change in changes {
            match change {
                Change::Set(prefix, entry) => match prefix.trie_key() {
                    TrieKey::V4(len, data) => sets_v4.push((Key::new(len, data), *entry)),
                    TrieKey::V6(len, data) => sets_v6.push((Key::new(len, data), *entry)),
                },
                Change::Remove(prefix) => match prefix.trie_key() {
                    TrieKey::V4(len, data) => gone_v4.push(Key::new(len, data)),
                    TrieKey::V6(len, data) => gone_v6.push(Key::new(len, data)),
                },
            }
        }
        trie::write(&mut self.lists_v4, &sets_v4, &gone_v4).map_err(|error| list_error("IPv4", error))?;
        trie::write(&mut self.lists_v6, &sets_v6, &gone_v6).map_err(|error| list_error("IPv6", error))
    }
}

/// Reads the block list and the allow list out of two maps.
pub(in crate::dataplane) fn read_lists(
    v4: &LpmTrie<MapData, ListAddrV4, ListEntry>,
    v6: &LpmTrie<MapData, ListAddrV6, ListEntry>,
) -> Result<Lists, DataplaneError> {
    let mut lists = Lists::new();
    trie::read(v4, ([0; 8], ListEntry::EMPTY), |len, data, entry| {
        lists.insert(Prefix::from_v4_key(len, data), entry);
    })
    .map_err(DataplaneError::map("read the IPv4 list"))?;
    trie::read(v6, ([0; 16], ListEntry::EMPTY), |len, data, entry| {
        lists.insert(Prefix::from_v6_key(len, data), entry);
    })
    .map_err(DataplaneError::map("read the IPv6 list"))?;
    Ok(lists)
}

/// Refuses changes for which a list has no room.
pub fn require_room(lists: &Lists, changes: &[Change]) -> Result<(), DataplaneError> {
    let room = list::MAX_LISTED as usize;
    // All entries of both families would fit into one list, so they need not be counted by family.
    if lists.len() + changes.len() <= room {
        return Ok(());
    }
    for (family, v4) in [("IPv4", true), ("IPv6", false)] {
        if lists::peak(lists, changes, v4) > room {
            return Err(DataplaneError::ListFull { family, max: list::MAX_LISTED });
        }
    }
    Ok(())
}

/// Whether the lists have an entry of a family. IPv4 comes first in their order.
pub(super) fn has_family(lists: &Lists, v4: bool) -> bool {
    let outermost = if v4 { lists.first_key_value() } else { lists.last_key_value() };
    outermost.is_some_and(|(prefix, _)| prefix.is_v4() == v4)
}

fn list_error(family: &'static str, source: MapError) -> DataplaneError {
    match source {
        MapError::SyscallError(e) if e.io_error.raw_os_error() == Some(libc::ENOSPC) => {
            DataplaneError::ListFull { family, max: list::MAX_LISTED }
        }
        source => DataplaneError::Map { action: format!("change the {family} list"), source },
    }
}
