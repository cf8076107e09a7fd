//! Drop events: samples of refused packets for the daemon.

use crate::abi_struct;

abi_struct! {
    /// One refused packet.
    pub struct DropEvent: 48 {
        /// When the packet was refused: nanoseconds of the kernel's monotonic clock.
        pub time_ns: u64,
        /// Bytes 0 to 7 of the source, native load. The source is cut to the policy's prefix length, as in the table of sources.
        pub hi: u64,
        /// Bytes 8 to 15 of the source, native load.
        pub lo: u64,
        /// The number of a [`Reason`](super::Reason).
        pub reason: u32,
        /// The number of a [`Fate`](super::counter::Fate): what happens to the refused packet.
        pub fate: u32,
        /// The number of the packet's service, as in the table of ports.
        pub service: u32,
        /// Destination port; 0 if the packet has none.
        pub port: u32,
        /// Length of the frame in bytes, from the Ethernet header on.
        pub len: u32,
        /// 0 for IPv4, 1 for IPv6.
        pub family: u32,
    }
}

/// Size of the ring buffer in bytes: a power of two, and a whole number of pages. Room for 4681 events with their headers.
pub const RING_BYTES: usize = 256 * 1024;

impl DropEvent {
    /// Parses a record of the ring buffer; `None` if it has another size.
    pub fn from_bytes(record: &[u8]) -> Option<Self> {
        let record: &[u8; size_of::<Self>()] = record.try_into().ok()?;
        let (words, _) = record.as_chunks::<8>();
        let (halves, _) = record.as_chunks::<4>();
        let half = |index: usize| u32::from_ne_bytes(halves[6 + index]);
        Some(Self {
            time_ns: u64::from_ne_bytes(words[0]),
            hi: u64::from_ne_bytes(words[1]),
            lo: u64::from_ne_bytes(words[2]),
            reason: half(0),
            fate: half(1),
            service: half(2),
            port: half(3),
            len: half(4),
            family: half(5),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_from_the_bytes_of_a_record_and_from_no_others() {
        let mut record = [0_u8; 48];
        for (at, word) in [1_u64, 2, 3].into_iter().enumerate() {
            record[at * 8..at * 8 + 8].copy_from_slice(&word.to_ne_bytes());
        }
        for (at, half) in [4_u32, 5, 6, 7, 8, 9].into_iter().enumerate() {
            record[24 + at * 4..28 + at * 4].copy_from_slice(&half.to_ne_bytes());
        }
        let event = DropEvent {
            time_ns: 1,
            hi: 2,
            lo: 3,
            reason: 4,
            fate: 5,
            service: 6,
            port: 7,
            len: 8,
            family: 9,
        };
        assert_eq!(DropEvent::from_bytes(&record), Some(event));
        assert_eq!(DropEvent::from_bytes(&record[..47]), None);
    }
}
