//! Services that share a port are told apart by the destination of a packet.
//!
//! Ports with the same services form a class. In the table of ports such a port has the number of its class instead of a
//! service's number, and one longest-prefix-match trie, keyed by class and address, has the service.

/// Prefixes of all classes together. The trie allocates per entry, so a high ceiling costs nothing.
pub const MAX_DESTINATIONS: u32 = 1 << 15;

/// A flag in the table of ports: the other bits are the number of a class, not of a service.
pub const BY_DESTINATION: u32 = 1 << 15;

// Every class has at least one prefix in the trie, so the number of classes fits into the bits below the flag.
const _: () = assert!(MAX_DESTINATIONS <= BY_DESTINATION);
const _: () =
    assert!(BY_DESTINATION as usize > super::service::MAX_SERVICES, "no service looks like a class");

/// Data part of a trie key: the class as in the table of ports, the IP version, and the address, IPv4 at `::ffff:a.b.c.d`.
///
/// The version keeps families apart: without it, all of IPv4 would lie inside `::/0`. Twenty bytes keep the value behind
/// them aligned.
pub type DestinationKey = [u8; 20];

/// Length of the class in a key, in bits. It is also the prefix length of the entry for the rest of the destinations, which has both families.
pub const CLASS_BITS: u32 = 16;
/// Offset of the address in a key, in bits.
pub const ADDRESS_AT: u32 = 32;
/// Length of a whole key, in bits.
pub const KEY_BITS: u32 = ADDRESS_AT + 128;

/// The key of an address of 16 bytes in network order.
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
