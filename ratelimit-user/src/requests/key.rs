//! Keys: the parts of a request that it is counted by, as one number, or as text for the store.

use std::{borrow::Cow, fmt::Write as _, hash::Hasher as _, net::IpAddr};

use ring::digest::{SHA256, digest};
use siphasher::sip::SipHasher13;

/// Limits that one request can have at once: an API's and a plan's, or the three of a login and a plan's.
pub const MAX_COUNTER_KEYS: usize = 4;

/// The longest name that the store has in full, in bytes. Longer ones are there as what they hash to.
pub const MAX_PART: usize = 1_024;

/// Stands before two digits of a byte that is no text. Unicode promises that it is no character.
const ESCAPE: char = '\u{10ffff}';

/// A name of any bytes as text; two that differ stay two. Text stays as it is.
pub fn named(bytes: &[u8]) -> Cow<'_, str> {
    match plain(bytes) {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(escaped(bytes)),
    }
}

/// A name that is text already.
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
    /// What tells it from others; never 0.
    pub fingerprint: u64,
}

impl Hash {
    /// The key of these parts where they are counted apart: for one host, or under another list of limits.
    pub fn salted(self, salt: u64) -> Self {
        Self { fingerprint: (self.fingerprint ^ salt).max(1) }
    }

    /// Which of so many parts of a table it is in. From its last bits: a place within the part comes from the first ones of its halves.
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
    /// A secret of its own, from the system.
    fn default() -> Self {
        use std::hash::BuildHasher as _;
        let random = || std::collections::hash_map::RandomState::new().hash_one(0_u8);
        Self { secret: (random(), random()) }
    }
}

impl KeyHasher {
    /// With a secret that is known, for tests.
    pub fn known(secret: (u64, u64)) -> Self {
        Self { secret }
    }

    /// A key that begins with a number.
    pub fn begin(&self, seed: u64) -> HashedKey {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        hasher.write_u64(seed);
        HashedKey { hasher }
    }
}

/// Whatever takes in the parts of a key. Two lists of parts that differ are two keys, wherever one part ends.
pub trait KeyWriter {
    /// Takes in a name.
    fn text(&mut self, text: &str);
    /// An address, or the network around it.
    fn address(&mut self, ip: IpAddr);
    /// A name that was not given: all who give none are one.
    fn nobody(&mut self);
}

/// A key on its way to a number.
#[derive(Debug)]
pub struct HashedKey {
    hasher: SipHasher13,
}

impl HashedKey {
    /// The number of a key that ends with these bytes.
    pub fn bytes(mut self, bytes: &[u8]) -> Hash {
        self.hasher.write(bytes);
        self.finish()
    }

    /// The hash of all parts.
    pub fn finish(self) -> Hash {
        Hash { fingerprint: self.hasher.finish().max(1) }
    }
}

impl KeyWriter for HashedKey {
    fn text(&mut self, text: &str) {
        self.hasher.write(text.as_bytes());
        // Behind a text stands how long it was: ("ab", "c") is not ("a", "bc").
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
        // No text is as long.
        self.hasher.write_u32(u32::MAX);
    }
}

/// A key as text. Parts are kept apart by `/`, which names have as `%2f`; `%` alone is nobody, and behind `%x` stands what a long name hashes to.
#[derive(Debug, Default)]
pub struct TextKey {
    text: String,
    /// The first part: what hosts of the store are chosen by.
    first: Option<usize>,
}

impl TextKey {
    /// The first part, and all others behind it.
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
