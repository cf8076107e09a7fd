//! The seal of a file: the length and hash of its content, which show whether it is what was written. It protects against damage, not against whoever can write there.

use std::hash::Hasher as _;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// The length and hash of a text when it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::daemon) struct Seal {
    bytes: u64,
    /// A hash of the text, in hexadecimal digits.
    hash: String,
}

impl Seal {
    /// Returns the seal of a content.
    pub(in crate::daemon) fn of(content: &[u8]) -> Self {
        Self { bytes: content.len() as u64, hash: digits(content) }
    }

    /// Checks that a content is what was written; otherwise returns what is wrong, as a sentence about a file.
    pub(in crate::daemon) fn check(&self, content: &[u8]) -> Result<(), String> {
        let found = content.len() as u64;
        if found != self.bytes {
            return Err(format!("it has {found} bytes, and {} were written", self.bytes));
        }
        match digits(content) == self.hash {
            true => Ok(()),
            false => Err("it is not what was written: its checksum is another".to_owned()),
        }
    }
}

/// Returns the hash of a text as 16 hexadecimal digits.
pub(in crate::daemon) fn digits(content: &[u8]) -> String {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write(content);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_other_byte_and_any_other_length_is_found_out() {
        let text = b"[source]\nlimits = [\"1000/s\"]\n";
        let seal = Seal::of(text);
        assert_eq!(seal.check(text), Ok(()));
        for at in 0..text.len() {
            let mut flipped = text.to_vec();
            flipped[at] ^= 1;
            assert!(seal.check(&flipped).unwrap_err().contains("checksum"));
            assert_eq!(
                seal.check(&text[..at]).unwrap_err(),
                format!("it has {at} bytes, and {} were written", text.len())
            );
        }
    }
}
