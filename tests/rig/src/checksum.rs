//! The Internet checksum, split: what never changes is added up once on the host, the source for each packet.

/// Adds up the 16-bit words of some bytes; an odd one out is padded with zero.
pub fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)])))
        .fold(0, u32::wrapping_add)
}

/// Adds the words of an IPv4 address.
#[inline(always)]
pub fn with_v4(sum: u32, address: u32) -> u32 {
    sum + (address >> 16) + (address & 0xffff)
}

/// Adds the words of the upper half of an IPv6 address.
#[inline(always)]
pub fn with_v6(sum: u32, network: u64) -> u32 {
    let words = [network >> 48, (network >> 32) & 0xffff, (network >> 16) & 0xffff, network & 0xffff];
    words.iter().fold(sum, |sum, word| sum + *word as u32)
}

/// The field's value. Two folds are enough: the sums of a header or a packet stay far below 2^32.
#[inline(always)]
pub fn finish(sum: u32) -> u16 {
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example everybody uses: checksum 0xb861, source 192.168.0.1.
    const HEADER: [u8; 20] =
        [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 0x01, 0xc0, 0xa8, 0, 0xc7];

    #[test]
    fn a_header_without_source_and_checksum_gets_the_same_checksum_back() {
        let mut header = HEADER;
        header[10..16].fill(0);
        assert_eq!(finish(with_v4(sum(&header), 0xc0a8_0001)), 0xb861);
    }

    #[test]
    fn a_correct_header_adds_up_to_nothing() {
        assert_eq!(finish(sum(&HEADER)), 0);
    }

    #[test]
    fn the_words_of_an_ipv6_network_are_added_one_by_one() {
        let network = 0x2001_0db8_ffff_0001_u64;
        assert_eq!(with_v6(7, network), 7 + sum(&network.to_be_bytes()));
    }
}
