//! Keys: the parts of a request that it is counted by, as one number, or as text for the store.

use std::{borrow::Cow, fmt::Write as _, hash::Hasher as _, net::IpAddr};

use ring::digest::{SHA256, digest};
use siphasher::sip::SipHasher13;

/// The most counter keys of one request: an API's and a plan's, or the three of a login and a plan's.
pub const MAX_COUNTER_KEYS: usize = 4;

/// The longest part that keys of the store have in full, in bytes. Longer parts are there as their hash.
pub const MAX_PART: usize = 1_024;

/// Begins an escaped byte, before its two hexadecimal digits. Unicode guarantees that this code point is not a character.
const ESCAPE: char = '\u{10ffff}';

/// Makes text of a name of any bytes. Different names make different texts, and text stays as it is.
pub fn named(bytes: &[u8]) -> Cow<'_, str> {
    match plain(bytes) {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(escaped(bytes)),
    }
}

/// Returns a name that is text already, without the escape character.
pub fn plain(bytes: &[u8]) -> Option<&str> {
    // Looking for the escape character takes longer than seeing that there is none: most names are ASCII.
    std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii() || !text.contains(ESCAPE))
}

fn escaped(bytes: &[u8]) -> String {
    let mut name = String::with_capacity(bytes.len() * 2);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                // Escapes the escape character, so that text never looks like escaped bytes.
                ESCAPE => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| escape(&mut name, byte)),
                c => name.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| escape(&mut name, *byte));
    }
    name
}

fn escape(name: &mut String, byte: u8) {
    let _always = write!(name, "{ESCAPE}{byte:02x}");
}

/// A key as a number of 64 bits: with a million keys, two are taken for one with a chance of about 1 in 37 million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hash {
    /// The number that stands for the parts of the key; never 0.
    pub fingerprint: u64,
}

impl Hash {
    /// Returns the key of these parts where they are counted apart: for one host, or under another list of limits.
    pub fn salted(self, salt: u64) -> Self {
        Self { fingerprint: (self.fingerprint ^ salt).max(1) }
    }

    /// Returns which of `shards` parts of a table has the key. It depends on the last bits; the place within a part depends on the first bits of both halves.
    pub fn shard(self, shards: usize) -> usize {
        (self.fingerprint % shards as u64) as usize
    }
}

/// Hashes keys with a secret, so that nobody can choose names that fall together.
#[derive(Clone, Copy, Debug)]
pub struct KeyHasher {
    secret: (u64, u64),
}

impl Default for KeyHasher {
    /// Makes a hasher with a secret of its own, from the system.
    fn default() -> Self {
        use std::hash::BuildHasher as _;
        let random = || std::collections::hash_map::RandomState::new().hash_one(0_u8);
        Self { secret: (random(), random()) }
    }
}

impl KeyHasher {
    /// Makes a hasher with a known secret, for tests.
    pub fn known(secret: (u64, u64)) -> Self {
        Self { secret }
    }

    /// Begins a key with a number.
    pub fn begin(&self, seed: u64) -> HashedKey {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        hasher.write_u64(seed);
        HashedKey { hasher }
    }
}

/// Takes the parts of a key. Different lists of parts are different keys, wherever one part ends.
pub trait KeyWriter {
    /// Adds a name.
    fn text(&mut self, text: &str);
    /// Adds an address, or the network around it.
    fn address(&mut self, ip: IpAddr);
    /// Adds the mark of a missing name, which all requests without a name share.
    fn nobody(&mut self);
}

/// A key whose parts are being hashed.
#[derive(Debug)]
pub struct HashedKey {
    hasher: SipHasher13,
}

impl HashedKey {
    /// Ends the key with these bytes, and returns its hash.
    pub fn bytes(mut self, bytes: &[u8]) -> Hash {
        self.hasher.write(bytes);
        self.finish()
    }

    /// Returns the hash of all parts.
    pub fn finish(self) -> Hash {
        Hash { fingerprint: self.hasher.finish().max(1) }
    }
}

impl KeyWriter for HashedKey {
    fn text(&mut self, text: &str) {
        self.hasher.write(text.as_bytes());
        // The length follows the text, so that ("ab", "c") is not ("a", "bc").
        self.hasher.write_u32(text.len() as u32);
    }

    fn address(&mut self, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => self.hasher.write_u32(ip.into()),
            IpAddr::V6(ip) => self.hasher.write(&ip.octets()),
        }
        self.hasher.write_u8(if ip.is_ipv4() { 4 } else { 6 });
    }

    fn nobody(&mut self) {
        // No text has this length.
        self.hasher.write_u32(u32::MAX);
    }
}

/// A key as text. `/` separates parts, and is `%2f` within names. `%` alone is a missing name, and the hash of a long name follows `%x`.
#[derive(Debug, Default)]
pub struct TextKey {
    text: String,
    /// Where the first part ends. Servers of the store are chosen by the first part.
    first: Option<usize>,
}

impl TextKey {
    /// Returns the first part, and all parts behind it.
    pub fn split(&self) -> (&str, &str) {
        let first = self.first.unwrap_or(self.text.len());
        let (first, rest) = self.text.split_at(first);
        (first, rest.trim_start_matches('/'))
    }

    fn part(&mut self, write: impl FnOnce(&mut String)) {
        if !self.text.is_empty() {
            self.text.push('/');
        }
        write(&mut self.text);
        self.first.get_or_insert(self.text.len());
    }
}

impl KeyWriter for TextKey {
    fn text(&mut self, text: &str) {
        self.part(|key| {
            if text.len() > MAX_PART {
                key.push_str("%x");
                for byte in digest(&SHA256, text.as_bytes()).as_ref() {
                    let _always = write!(key, "{byte:02x}");
                }
                return;
            }
            for c in text.chars() {
                match c {
                    '/' | '%' | '{' | '}' | ':' => {
                        let _always = write!(key, "%{:02x}", c as u32);
                    }
                    other => key.push(other),
                }
            }
        });
    }

    fn address(&mut self, ip: IpAddr) {
        self.part(|key| {
            let _always = write!(key, "{ip}");
        });
    }

    fn nobody(&mut self) {
        self.part(|key| key.push('%'));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_of_any_bytes_are_text_and_stay_apart() {
        let all: [&[u8]; 9] = [
            b"",
            b"ann",
            "ännä".as_bytes(),
            b"\xff",
            b"\xfe",
            b"a\xffb",
            "\u{10ffff}ff".as_bytes(),
            "\u{10ffff}".as_bytes(),
            "a\u{10ffff}ffb".as_bytes(),
        ];
        let names: HashSet<Cow<'_, str>> = all.into_iter().map(named).collect();
        assert_eq!(names.len(), all.len(), "{names:?}");
        assert_eq!(named(b"ann"), "ann");
        assert_eq!(named(b"a\xffb"), "a\u{10ffff}ffb");
        let texts: Vec<Option<&str>> = all.into_iter().map(plain).collect();
        assert_eq!(texts[..3], [Some(""), Some("ann"), Some("ännä")], "they are not copied");
        assert!(texts[3..].iter().all(Option::is_none), "{texts:?}");
    }

    #[test]
    fn keys_of_the_store_are_short_whatever_the_names_and_stay_apart() {
        let key = |write: &dyn Fn(&mut TextKey)| {
            let mut key = TextKey::default();
            write(&mut key);
            key.text
        };
        let long = "x".repeat(60_000);
        let longer = "x".repeat(60_001);
        let keys = [
            key(&|key| key.text(&long)),
            key(&|key| key.text(&longer)),
            key(&|key| key.text("%")),
            key(&TextKey::nobody),
            key(&|key| key.text("%x")),
            key(&|key| key.text(&"x".repeat(MAX_PART))),
        ];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        assert_eq!(keys[3], "%");
        assert_eq!(keys.iter().map(String::len).collect::<Vec<_>>(), [66, 66, 3, 1, 4, MAX_PART]);
        assert_eq!(key(&|key| key.text(&long)), keys[0], "on every host");
    }
}
