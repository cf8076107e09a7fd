//! Moving from maps of another layout to our own, without a gap.
//!
//! The old maps stay in force until the links run the new program. What operators typed (the lists) comes along;
//! buckets do not, because their meaning may have changed: every source starts once with a full burst.

use aya::maps::{LpmTrie, Map, MapData};
use ratelimit_common::abi::{ListEntry, names};

use super::log;
use crate::{
    compile::lists::{self, Lists, Prefix},
    dataplane::{
        DataplaneError,
        kernel::Maps,
        pin::{Layout, PinDir},
    },
};

/// Layouts beside ours that have maps pinned.
pub(super) fn others(pins: &PinDir, ours: Layout) -> Result<Vec<Layout>, DataplaneError> {
    Ok(pins.layouts()?.into_iter().filter(|layout| *layout != ours).collect())
}

/// Copies the lists of other layouts into ours. Entries that ours has already are kept.
pub(super) fn carry_lists(pins: &PinDir, from: &[Layout], maps: &mut Maps) -> Result<(), DataplaneError> {
    for layout in from {
        let mut lists = maps.lists()?;
        let before = lists.len();
        let mut carried = old_lists(pins, *layout);
        carried.retain(|prefix, _| !lists.contains_key(prefix));
        let changes = lists::edited(&lists, &carried);
        maps.change_lists(&mut lists, &changes)?;
        log::info(format!(
            "maps of another layout found (abi {}, {} sources): {} listed prefixes carried over, buckets start anew",
            layout.abi,
            layout.sources,
            lists.len() - before
        ));
    }
    Ok(())
}

/// The lists of another layout, as far as this build can read them.
fn old_lists(pins: &PinDir, layout: Layout) -> Lists {
    let mut lists = Lists::new();
    if let Some(trie) = open::<8>(pins, layout, names::LISTS_V4) {
        let entries = trie.iter().flatten();
        lists.extend(entries.map(|(key, value)| (Prefix::from_v4_key(key.prefix_len(), key.data()), value)));
    }
    if let Some(trie) = open::<16>(pins, layout, names::LISTS_V6) {
        let entries = trie.iter().flatten();
        lists.extend(entries.map(|(key, value)| (Prefix::from_v6_key(key.prefix_len(), key.data()), value)));
    }
    lists
}

fn open<const N: usize>(
    pins: &PinDir,
    layout: Layout,
    name: &str,
) -> Option<LpmTrie<MapData, [u8; N], ListEntry>> {
    let map = MapData::from_pin(pins.maps(layout).join(name)).ok()?;
    // aya checks the sizes of key and value: entries of another shape are not misread.
    let trie = LpmTrie::try_from(Map::LpmTrie(map)).ok();
    if trie.is_none() {
        log::warning(format!("the {name} map of abi {} has another shape: its entries are lost", layout.abi));
    }
    trie
}
