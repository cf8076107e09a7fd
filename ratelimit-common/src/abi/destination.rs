//! Services that share a port: which of them a packet is for is a matter of its destination.
//!
//! Ports that are shared by the same services make a class. In the table of ports such a port has the number of its class instead of a
//! service's, and one longest-prefix-match trie, keyed by class and address, has the service.

/// Prefixes of all classes together. The trie allocates per entry, so a high ceiling costs nothing.
pub const MAX_DESTINATIONS: u32 = 1 << 15;

/// In the table of ports: what follows is the number of a class.
pub const BY_DESTINATION: u32 = 1 << 15;

// Every class has a prefix at least, so what fits into the trie fits into the bits below the mark.
const _: () = assert!(MAX_DESTINATIONS <= BY_DESTINATION);
const _: () =
    assert!(BY_DESTINATION as usize > super::service::MAX_SERVICES, "no service looks like a class");

/// Data part of a trie key: the class as the table of ports has it, the version of IP, the address; IPv4 at `::ffff:a.b.c.d`.
///
/// The version keeps families apart: all of IPv4 lies inside `::/0`, which is not meant to have it. Twenty bytes keep the value behind
/// them aligned.
pub type DestinationKey = [u8; 20];

/// Bits of a key that are the class: the prefix of a service that takes what is left, of both families.
pub const CLASS_BITS: u32 = 16;
/// Bits of a key before the address.
pub const ADDRESS_AT: u32 = 32;
/// All bits of a key.
pub const KEY_BITS: u32 = ADDRESS_AT + 128;

/// The key of an address in network order.
#[inline(always)]
pub const fn destination_key(class: u32, ip_version: u8, o: [u8; 16]) -> DestinationKey {
    let [_, _, hi, lo] = class.to_be_bytes();
    [
        hi, lo, 0, ip_version, o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7], o[8], o[9], o[10], o[11],
        o[12], o[13], o[14], o[15],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_class_then_the_version_then_the_address() {
        let key = destination_key(BY_DESTINATION | 0x1234, 6, [9; 16]);
        assert_eq!(key[..4], [0x92, 0x34, 0, 6]);
        assert_eq!(key[4..], [9; 16]);
        assert_eq!((KEY_BITS as usize, ADDRESS_AT, CLASS_BITS), (key.len() * 8, 32, 16));
    }
}
