//! An address prefix, as used in lists, users and services.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ratelimit_common::abi::list::{ListAddrV4, ListAddrV6};

/// A prefix without host bits. Prefixes sort by family, and each comes right before all prefixes inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// A prefix as the key of a kernel trie: length in bits, then the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrieKey {
    /// A key of the IPv4 trie.
    V4(u32, ListAddrV4),
    /// A key of the IPv6 trie.
    V6(u32, ListAddrV6),
}

/// Why a text is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The text does not begin with an address.
    #[error(
        "{0:?} is not an address or prefix; use one such as 203.0.113.7, 203.0.113.0/24 or 2001:db8::/48"
    )]
    NotAnAddress(String),
    /// The prefix length is not a number, or too large.
    #[error("prefix length {length:?} of {text:?} is out of range; use 0 to {max}")]
    Length {
        /// The whole text.
        text: String,
        /// The part behind the slash.
        length: String,
        /// The largest length of the family.
        max: u8,
    },
    /// The address has bits set behind its prefix length: either the network or the address was meant.
    #[error("{text} has host bits set; use {right} for the network, or the address alone")]
    HostBits {
        /// The whole text.
        text: String,
        /// The network around the address.
        right: Prefix,
    },
    /// The address is an IPv4-mapped IPv6 address, which is never a source on a wire.
    #[error("{text} is an IPv4 address in IPv6 form; use {right}")]
    Mapped {
        /// The whole text.
        text: String,
        /// The address in IPv4 form.
        right: String,
    },
}

impl Prefix {
    /// Every IPv4 address.
    pub const ALL_V4: Self = Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 };
    /// Every IPv6 address.
    pub const ALL_V6: Self = Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 };

    /// The prefix of `len` bits around an address; larger lengths give the address itself.
    pub fn masked(address: IpAddr, len: u8) -> Self {
        match address {
            IpAddr::V4(a) => {
                let len = len.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                Self { address: Ipv4Addr::from_bits(a.to_bits() & mask).into(), len }
            }
            IpAddr::V6(a) => {
                let len = len.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                Self { address: Ipv6Addr::from_bits(a.to_bits() & mask).into(), len }
            }
        }
    }

    /// The prefix of a key of the IPv4 trie.
    pub fn from_v4_key(len: u32, data: ListAddrV4) -> Self {
        Self::masked(Ipv4Addr::new(data[0], data[1], data[2], data[3]).into(), len as u8)
    }

    /// The prefix of a key of the IPv6 trie.
    pub fn from_v6_key(len: u32, data: ListAddrV6) -> Self {
        Self::masked(Ipv6Addr::from(data).into(), len as u8)
    }

    /// The key of this prefix in the trie of its family.
    pub fn trie_key(&self) -> TrieKey {
        match self.address {
            IpAddr::V4(address) => {
                let [a, b, c, d] = address.octets();
                TrieKey::V4(u32::from(self.len), [a, b, c, d, 0, 0, 0, 0])
            }
            IpAddr::V6(address) => TrieKey::V6(u32::from(self.len), address.octets()),
        }
    }

    /// The prefix in 16 bytes, IPv4 at `::ffff:a.b.c.d`: its length in bits there, and the bytes.
    pub fn mapped(&self) -> (u32, [u8; 16]) {
        match self.address {
            IpAddr::V4(address) => (96 + u32::from(self.len), address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => (u32::from(self.len), address.octets()),
        }
    }

    /// Length in bits.
    #[expect(clippy::len_without_is_empty, reason = "a length of bits, not a number of items")]
    pub fn len(&self) -> u8 {
        self.len
    }

    /// The prefix as text for people: a single address is written without a length.
    pub fn shown(&self) -> String {
        let alone = if self.is_v4() { 32 } else { 128 } == self.len;
        if alone { self.address.to_string() } else { self.to_string() }
    }

    /// Whether the prefix is an IPv4 prefix.
    pub fn is_v4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// The prefix of the first `len` bits of this one.
    pub fn shortened(&self, len: u8) -> Self {
        Self::masked(self.address, len.min(self.len))
    }

    /// The longest prefix that covers both; `None` if their families differ.
    pub fn common(&self, other: &Self) -> Option<Self> {
        let same_bits = match (self.address, other.address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return None,
        };
        Some(self.shortened((same_bits as u8).min(other.len)))
    }

    /// Whether every address of `other` is in this prefix.
    pub fn covers(&self, other: &Self) -> bool {
        self.len <= other.len && Self::masked(other.address, self.len) == *self
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| PrefixError::NotAnAddress(text.to_owned()))?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let len = match length {
            None => max,
            Some(length) => parse_length(length).filter(|len| *len <= max).ok_or_else(|| {
                PrefixError::Length { text: text.to_owned(), length: length.to_owned(), max }
            })?,
        };
        if let IpAddr::V6(v6) = address
            && let Some(v4) = v6.to_ipv4_mapped()
            && len >= 96
        {
            let right = Self::masked(v4.into(), len - 96).to_string();
            return Err(PrefixError::Mapped { text: text.to_owned(), right });
        }
        let prefix = Self::masked(address, len);
        if prefix.address != address {
            return Err(PrefixError::HostBits { text: text.to_owned(), right: prefix });
        }
        Ok(prefix)
    }
}

/// Parses a length of digits only: `u8::from_str` would also take a sign.
fn parse_length(text: &str) -> Option<u8> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Prefix>().unwrap_err().to_string()
    }

    #[test]
    fn an_address_alone_is_its_own_prefix() {
        assert_eq!("203.0.113.7".parse::<Prefix>().unwrap().to_string(), "203.0.113.7/32");
        assert_eq!("2001:db8::1".parse::<Prefix>().unwrap().to_string(), "2001:db8::1/128");
        assert_eq!("0.0.0.0/0".parse::<Prefix>().unwrap().to_string(), "0.0.0.0/0");
    }

    #[test]
    fn mistakes_are_answered_with_what_would_be_right() {
        assert_eq!(
            error("203.0.113.7/24"),
            "203.0.113.7/24 has host bits set; use 203.0.113.0/24 for the network, or the address alone"
        );
        assert_eq!(
            error("203.0.113.0/33"),
            "prefix length \"33\" of \"203.0.113.0/33\" is out of range; use 0 to 32"
        );
        assert_eq!(error("::/129"), "prefix length \"129\" of \"::/129\" is out of range; use 0 to 128");
        assert_eq!(
            error("::ffff:192.0.2.0/120"),
            "::ffff:192.0.2.0/120 is an IPv4 address in IPv6 form; use 192.0.2.0/24"
        );
        for text in
            ["", "/", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "example.com", "1.2.3.4/8/8", "fe80::1%eth0"]
        {
            assert!(!error(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_prefix_sorts_right_before_everything_inside_it() {
        let sorted = [
            "10.0.0.0/8",
            "10.0.0.0/16",
            "10.0.0.0/32",
            "10.1.0.0/16",
            "11.0.0.0/8",
            "::/0",
            "2001:db8::/32",
        ]
        .map(|text| text.parse::<Prefix>().unwrap());
        assert!(sorted.is_sorted());
    }

    #[test]
    fn a_length_beyond_the_family_is_the_address_itself() {
        for (text, len) in [("10.0.0.1", 33), ("10.0.0.1", 128), ("2001:db8::1", 255)] {
            assert_eq!(Prefix::masked(text.parse().unwrap(), len), text.parse().unwrap());
        }
    }

    #[test]
    fn a_prefix_covers_what_is_inside_it_in_its_own_family_only() {
        let covers = |a: &str, b: &str| a.parse::<Prefix>().unwrap().covers(&b.parse().unwrap());
        assert!(covers("10.0.0.0/8", "10.0.0.0/8") && covers("10.0.0.0/8", "10.255.0.1"));
        assert!(covers("0.0.0.0/0", "255.255.255.255") && covers("::/0", "2001:db8::/32"));
        assert!(!covers("10.0.0.0/16", "10.0.0.0/8") && !covers("10.0.0.0/8", "11.0.0.0"));
        assert!(!covers("::/0", "0.0.0.0/0") && !covers("0.0.0.0/0", "::"));
    }

    #[test]
    fn the_common_part_of_two_prefixes_is_around_both_and_no_longer_one_is() {
        let common = |a: &str, b: &str| {
            a.parse::<Prefix>().unwrap().common(&b.parse().unwrap()).map(|prefix| prefix.to_string())
        };
        assert_eq!(common("10.0.0.0/8", "10.1.2.3").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(common("10.1.2.3", "10.1.2.2").as_deref(), Some("10.1.2.2/31"));
        assert_eq!(common("128.0.0.0/1", "0.0.0.0/1").as_deref(), Some("0.0.0.0/0"));
        assert_eq!(common("2001:db8::/48", "2001:db8::/32").as_deref(), Some("2001:db8::/32"));
        assert_eq!(common("10.0.0.0/8", "::/0"), None);
    }

    #[test]
    fn trie_keys_lead_back_to_the_prefix() {
        for text in ["0.0.0.0/0", "10.1.2.0/23", "192.0.2.1/32", "::/0", "2001:db8::/32", "fe80::1/128"] {
            let prefix: Prefix = text.parse().unwrap();
            let back = match prefix.trie_key() {
                TrieKey::V4(len, data) => Prefix::from_v4_key(len, data),
                TrieKey::V6(len, data) => Prefix::from_v6_key(len, data),
            };
            assert_eq!(back, prefix);
        }
    }
}
