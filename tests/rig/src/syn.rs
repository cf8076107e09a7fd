//! The size of the frame that opens a connection, on which the kernel program and its loader have to agree.

use network_types::{eth::EthHdr, ip::Ipv4Hdr, tcp::TcpHdr};

/// Bytes of options that Linux sends with a SYN.
const OPTIONS_LEN: usize = 20;
/// Ethernet, IPv4, and TCP with every option that Linux sends.
pub const FRAME_LEN: usize = EthHdr::LEN + Ipv4Hdr::LEN + TcpHdr::LEN + OPTIONS_LEN;
/// Bytes of one word of the frame.
pub const WORD: usize = 8;
/// Words of it, the last one padded.
pub const WORDS: usize = FRAME_LEN.div_ceil(WORD);

/// A frame as words in the order of memory.
pub fn words(frame: &[u8; FRAME_LEN]) -> [u64; WORDS] {
    let mut padded = [[0; WORD]; WORDS];
    for (at, byte) in frame.iter().enumerate() {
        padded[at / WORD][at % WORD] = *byte;
    }
    padded.map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_memory_are_the_frame_again() {
        let frame: [u8; FRAME_LEN] = core::array::from_fn(|at| at as u8 + 1);
        let words = words(&frame).map(u64::to_ne_bytes);
        assert_eq!(words.as_flattened()[..FRAME_LEN], frame);
        assert!(words.as_flattened()[FRAME_LEN..].iter().all(|byte| *byte == 0));
    }
}
