//! Keys: the parts of a request that it is counted by, as one number, or as text for the store.

use std::{fmt::Write as _, hash::Hasher as _, net::IpAddr};

use siphasher::sip::SipHasher13;

/// A key as a number of 64 bits: with a million keys, two are taken for one with a chance of about 1 in 37 million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hash {
    /// What tells it from others; never 0.
    pub fingerprint: u64,
}

impl Hash {
    /// The key under which it is kept that whoever has this one is known.
    pub fn known(self) -> Self {
        Self { fingerprint: (!self.fingerprint).max(1) }
    }

    /// The key under which a host counts for itself what it otherwise counts with others.
    pub fn alone(self) -> Self {
        // Any number will do that makes it another key.
        Self { fingerprint: (self.fingerprint ^ 0x9e37_79b9_7f4a_7c15).max(1) }
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
    /// A name.
    fn text(&mut self, text: &str);
    /// An address, or the network around it.
    fn address(&mut self, ip: IpAddr);
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

    /// The number.
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
}

/// A key as text. Parts are kept apart by `/`, which names have as `%2f`.
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
}
