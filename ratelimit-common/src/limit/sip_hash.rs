//! SipHash-2-4 of a few words (Aumasson, Bernstein 2012): a number that shows nothing of its key, for challenges that anybody sees.

/// The hash of words under a key.
#[inline(always)]
pub const fn hash<const WORDS: usize>([k0, k1]: [u64; 2], words: [u64; WORDS]) -> u64 {
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut word = 0;
    while word < WORDS {
        state = absorb(state, words[word]);
        word += 1;
    }
    // The last word of a message has its length in bytes.
    let [v0, v1, v2, v3] = absorb(state, (WORDS as u64 * 8) << 56);
    let [v0, v1, v2, v3] = round(round(round(round([v0, v1, v2 ^ 0xff, v3]))));
    v0 ^ v1 ^ v2 ^ v3
}

#[inline(always)]
const fn absorb([v0, v1, v2, v3]: [u64; 4], word: u64) -> [u64; 4] {
    let [v0, v1, v2, v3] = round(round([v0, v1, v2, v3 ^ word]));
    [v0 ^ word, v1, v2, v3]
}

#[inline(always)]
const fn round([v0, v1, v2, v3]: [u64; 4]) -> [u64; 4] {
    let v0 = v0.wrapping_add(v1);
    let v1 = v1.rotate_left(13) ^ v0;
    let v0 = v0.rotate_left(32);
    let v2 = v2.wrapping_add(v3);
    let v3 = v3.rotate_left(16) ^ v2;
    let v0 = v0.wrapping_add(v3);
    let v3 = v3.rotate_left(21) ^ v0;
    let v2 = v2.wrapping_add(v1);
    let v1 = v1.rotate_left(17) ^ v2;
    [v0, v1, v2.rotate_left(32), v3]
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn the_hash_is_that_of_the_paper() {
        // The key 00..0f and the message 00..07 of the reference vectors, and of 00..0f.
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(hash(key, [key[0]]), 0x93f5_f579_9a93_2462);
        assert_eq!(hash(key, key), 0x3f2a_cc7f_57c2_9bdb);
    }
}
