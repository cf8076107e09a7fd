//! Frames that have no source: ARP, neighbour discovery, and frames that are not IP.
//!
//! Half of the cap of an interface is shared by all senders. The other half belongs to neighbours that were seen before, each with a bucket of
//! its own that nobody else can spend: a router that was there first stays reachable, whatever addresses a flood makes up.

use super::Limit;
use crate::abi_struct;

/// Interfaces with neighbours of their own, by the lower bits of the interface's number.
pub const LINK_INTERFACES: u32 = 64;
/// Sets of cells for each interface; a keyed hash chooses the set of a neighbour.
pub const LINK_SETS: u32 = 128;
/// Cells of a set.
pub const LINK_WAYS: u32 = 4;
/// Neighbours of one interface that can have a bucket of their own.
pub const LINK_NEIGHBOURS: u32 = LINK_SETS * LINK_WAYS;
/// Cells of all interfaces.
pub const LINK_CELLS: u32 = LINK_INTERFACES * LINK_NEIGHBOURS;
const _: () = assert!(LINK_INTERFACES.is_power_of_two() && LINK_SETS.is_power_of_two());

/// How long the cell of a silent neighbour is kept, in 1/256 ns: an hour, because some routers ask that rarely.
pub const NEIGHBOUR_HOLD_Q8: u64 = 3_600_000_000_000 << 8;

abi_struct! {
    /// The cap of one interface; a price of 0 switches it off.
    pub struct LinkLimits: 48 {
        /// The limit on all senders together.
        pub shared: Limit,
        /// The limit on one known neighbour, in addition to `shared`.
        pub own: Limit,
    }
}

impl LinkLimits {
    /// Limits that refuse no frame.
    pub const OFF: Self = Self { shared: Limit::UNUSED, own: Limit::UNUSED };
}

abi_struct! {
    /// The cell of one neighbour.
    pub struct LinkCell: 16 {
        /// The name of the neighbour, see [`neighbour`]; 0 if the cell is free.
        pub owner: u64,
        /// The neighbour's bucket, a time word that also shows when the neighbour was last seen.
        pub tat_q8: u64,
    }
}

impl LinkCell {
    /// A cell without a neighbour.
    pub const FREE: Self = Self { owner: 0, tat_q8: 0 };
}

/// The kind of a frame without a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LinkKind {
    /// Neither IP nor ARP.
    NotIp = 1,
    /// The frame is ARP.
    Arp = 2,
    /// IPv6 neighbour discovery.
    NeighbourDiscovery = 3,
}

/// The name of a neighbour: its hardware address, the kind of its frames, and the interface. Never 0; unambiguous for interface numbers below 16384.
#[inline(always)]
pub const fn neighbour(interface: u32, mac: u64, kind: LinkKind) -> u64 {
    (mac & 0xffff_ffff_ffff) | (kind as u64) << 48 | ((interface as u64) & 0x3fff) << 50
}

/// The index of the first cell of a neighbour's set. The secret keeps senders from choosing addresses that fall into one set.
#[inline(always)]
pub const fn link_set(interface: u32, neighbour: u64, secret: [u64; 2]) -> u32 {
    let hash = neighbour.wrapping_mul(secret[1]);
    let set = (hash >> 57) as u32 & (LINK_SETS - 1);
    ((interface & (LINK_INTERFACES - 1)) * LINK_SETS + set) * LINK_WAYS
}
const _: () = assert!(LINK_SETS == 1 << (64 - 57));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_have_names_of_their_own_and_places_on_their_interface() {
        let mut names = [0; 18];
        let kinds = [LinkKind::NotIp, LinkKind::Arp, LinkKind::NeighbourDiscovery];
        for (at, name) in names.iter_mut().enumerate() {
            let (interface, mac) = ((at / 6) as u32 + 63, (at / 3 % 2) as u64 * 0xffff_ffff_ffff);
            *name = neighbour(interface, mac, kinds[at % 3]);
            let place = link_set(interface, *name, [3, 0x9e37_79b9_7f4a_7c15]);
            assert!(*name != 0 && place.is_multiple_of(LINK_WAYS) && place < LINK_CELLS);
            assert_eq!(place / LINK_NEIGHBOURS, interface % LINK_INTERFACES);
        }
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name:x}");
        }
    }

    #[test]
    fn the_name_of_a_neighbour_has_its_hardware_address_and_nothing_of_what_lies_beside_it() {
        let mac = 0x0012_3456_789a;
        let name = neighbour(7, mac, LinkKind::Arp);
        assert_eq!(name & 0xffff_ffff_ffff, mac);
        assert_eq!(
            neighbour(7, 0xabcd << 48 | mac, LinkKind::Arp),
            name,
            "what lies behind the address in memory"
        );
        assert_eq!(neighbour(0x4000 + 7, mac, LinkKind::Arp), name, "numbers of interfaces go round");
    }
}
