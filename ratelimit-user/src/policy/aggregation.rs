//! Prefix aggregation: limits on the prefixes around a source, as multiples of the limits of one source.

use std::{fmt, str::FromStr};

use ratelimit_common::abi::prefix::MAX_PREFIX_LEVELS;

use super::fields::{Fields, followed, words};

/// The largest multiple of an aggregation level; no prefix needs more.
const MAX_MULTIPLE: u64 = 1_000_000;

/// One aggregation level: a prefix length and its multiple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregationLevel {
    /// Length of the prefix in bits.
    pub bits: u8,
    /// The addresses of the prefix together may send this many times what one source may send.
    pub multiple: u64,
}

/// The address family of a list of aggregation levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregationFamily {
    /// IPv4 prefixes.
    V4,
    /// IPv6 prefixes.
    V6,
}

impl AggregationFamily {
    /// The key in the policy file.
    pub const fn key(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }
}

/// The aggregation levels of both address families, narrowest prefix first. Empty lists: aggregation is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregationPolicy {
    v4: Vec<AggregationLevel>,
    v6: Vec<AggregationLevel>,
}

/// Why a list of aggregation levels is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AggregationError {
    /// An entry that is not of the form `/24 x32`.
    #[error("ladder entry {text:?} is not a prefix length and a multiple; write one such as \"/24 x32\"")]
    Form {
        /// The rejected value, as the policy file has it.
        text: String,
    },
    /// An entry whose multiple is out of range.
    #[error(
        "ladder entry \"{prefix_level}\" has a multiple out of range; use 1 to {MAX_MULTIPLE}, and leave the entry out for no limit"
    )]
    Multiple {
        /// The rejected value, as the policy file has it.
        prefix_level: AggregationLevel,
    },
    /// More entries than the kernel has room for.
    #[error("{count} entries are more than the {family} ladder can have; use at most {MAX_PREFIX_LEVELS}", family = .family.key())]
    TooMany {
        /// The address family of the list.
        family: AggregationFamily,
        /// How many entries the list has.
        count: usize,
    },
    /// An entry whose prefix is not wider than the one before it.
    #[error(
        "ladder entry \"{prefix_level}\" is not wider than what comes before it (/{before}); list wider and wider prefixes, below /{before}"
    )]
    Order {
        /// The rejected value, as the policy file has it.
        prefix_level: AggregationLevel,
        /// Prefix length in bits of a source, or of the entry before.
        before: u8,
    },
    /// A wider prefix that may have less than one inside it.
    #[error(
        "ladder entry \"{prefix_level}\" allows a wider prefix no more than the one before it (x{before}); use a larger multiple"
    )]
    Shrinks {
        /// The rejected value, as the policy file has it.
        prefix_level: AggregationLevel,
        /// The multiple of the entry before.
        before: u64,
    },
}

impl fmt::Display for AggregationLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{} x{}", self.bits, self.multiple)
    }
}

impl FromStr for AggregationLevel {
    type Err = AggregationError;

    fn from_str(text: &str) -> Result<Self, AggregationError> {
        let parts = || {
            let (bits, multiple) = text.strip_prefix('/')?.split_once(" x")?;
            Some(Self { bits: bits.parse().ok()?, multiple: multiple.parse().ok()? })
        };
        parts().ok_or_else(|| AggregationError::Form { text: text.to_owned() })
    }
}

/// Aggregation levels unless the policy says otherwise. A /24 is the size of a small site, a /20 of a provider's pool; a /56 is one household or branch,
/// a /48 one company, a /32 one provider.
const DEFAULT_V4: [AggregationLevel; 2] =
    [AggregationLevel { bits: 24, multiple: 32 }, AggregationLevel { bits: 20, multiple: 256 }];
const DEFAULT_V6: [AggregationLevel; 3] = [
    AggregationLevel { bits: 56, multiple: 4 },
    AggregationLevel { bits: 48, multiple: 64 },
    AggregationLevel { bits: 32, multiple: 1024 },
];

impl AggregationPolicy {
    /// A policy without prefix aggregation.
    pub const OFF: Self = Self { v4: Vec::new(), v6: Vec::new() };

    /// The default aggregation levels that are wider than a source.
    pub fn default_for(ipv4_prefix: u8, ipv6_prefix: u8) -> Self {
        let wider = |prefix_levels: &[AggregationLevel], source: u8| {
            prefix_levels.iter().copied().filter(|prefix_level| prefix_level.bits < source).collect()
        };
        Self { v4: wider(&DEFAULT_V4, ipv4_prefix), v6: wider(&DEFAULT_V6, ipv6_prefix) }
    }

    /// Checks the aggregation levels of one family. `source` is the prefix length of a source in bits.
    pub fn check(
        family: AggregationFamily,
        prefix_levels: &[AggregationLevel],
        source: u8,
    ) -> Result<(), AggregationError> {
        if prefix_levels.len() > MAX_PREFIX_LEVELS {
            return Err(AggregationError::TooMany { family, count: prefix_levels.len() });
        }
        let mut before = AggregationLevel { bits: source, multiple: 0 };
        for prefix_level in prefix_levels {
            if !(1..=MAX_MULTIPLE).contains(&prefix_level.multiple) {
                return Err(AggregationError::Multiple { prefix_level: *prefix_level });
            }
            if prefix_level.bits == 0 || prefix_level.bits >= before.bits {
                return Err(AggregationError::Order { prefix_level: *prefix_level, before: before.bits });
            }
            if prefix_level.multiple <= before.multiple {
                return Err(AggregationError::Shrinks {
                    prefix_level: *prefix_level,
                    before: before.multiple,
                });
            }
            before = *prefix_level;
        }
        Ok(())
    }

    /// Replaces the aggregation levels of one address family.
    pub fn with(
        mut self,
        family: AggregationFamily,
        prefix_levels: Vec<AggregationLevel>,
        source: u8,
    ) -> Result<Self, AggregationError> {
        Self::check(family, &prefix_levels, source)?;
        match family {
            AggregationFamily::V4 => self.v4 = prefix_levels,
            AggregationFamily::V6 => self.v6 = prefix_levels,
        }
        Ok(self)
    }

    /// The aggregation in words, for `diff`.
    pub(super) fn fields(&self) -> Fields {
        followed([
            ("ladder ipv4", words(self.prefix_levels(AggregationFamily::V4))),
            ("ladder ipv6", words(self.prefix_levels(AggregationFamily::V6))),
        ])
    }

    /// The aggregation levels of one family, narrowest first.
    pub fn prefix_levels(&self, family: AggregationFamily) -> &[AggregationLevel] {
        match family {
            AggregationFamily::V4 => &self.v4,
            AggregationFamily::V6 => &self.v6,
        }
    }
}
