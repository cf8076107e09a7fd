//! What prefixes around sources may have together, as multiples of what one source may have.

use std::{fmt, str::FromStr};

use ratelimit_common::abi::policy::MAX_RUNGS;

/// Largest multiple: more than any prefix needs.
const MAX_MULTIPLE: u64 = 1_000_000;

/// One prefix length and its multiple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// Bits of the prefix.
    pub bits: u8,
    /// How many sources' worth its addresses may have together.
    pub multiple: u64,
}

/// An address family, as far as prefixes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LadderFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl LadderFamily {
    /// The key in the policy file.
    pub const fn key(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }
}

/// Wider and wider prefixes, narrowest first. Empty: off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderPolicy {
    v4: Vec<Rung>,
    v6: Vec<Rung>,
}

/// Why there cannot be such a ladder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LadderError {
    /// Not of the form `/24 x32`.
    #[error("ladder entry {text:?} is not a prefix length and a multiple; write one such as \"/24 x32\"")]
    Form {
        /// As given.
        text: String,
    },
    /// A multiple that is none.
    #[error(
        "ladder entry \"{rung}\" has a multiple out of range; use 1 to {MAX_MULTIPLE}, and leave the entry out for no limit"
    )]
    Multiple {
        /// As given.
        rung: Rung,
    },
    /// More than the kernel has room for.
    #[error("{count} entries are more than the {family} ladder can have; use at most {MAX_RUNGS}", family = .family.key())]
    TooMany {
        /// The address family of the list.
        family: LadderFamily,
        /// How many there are.
        count: usize,
    },
    /// Not wider than what comes before it.
    #[error(
        "ladder entry \"{rung}\" is not wider than what comes before it (/{before}); list wider and wider prefixes, below /{before}"
    )]
    Order {
        /// As given.
        rung: Rung,
        /// The source's prefix, or the entry before.
        before: u8,
    },
    /// A wider prefix that may have less than one inside it.
    #[error(
        "ladder entry \"{rung}\" allows a wider prefix no more than the one before it (x{before}); use a larger multiple"
    )]
    Shrinks {
        /// As given.
        rung: Rung,
        /// The multiple before.
        before: u64,
    },
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{} x{}", self.bits, self.multiple)
    }
}

impl FromStr for Rung {
    type Err = LadderError;

    fn from_str(text: &str) -> Result<Self, LadderError> {
        let parts = || {
            let (bits, multiple) = text.strip_prefix('/')?.split_once(" x")?;
            Some(Self { bits: bits.parse().ok()?, multiple: multiple.parse().ok()? })
        };
        parts().ok_or_else(|| LadderError::Form { text: text.to_owned() })
    }
}

/// Unless the policy says otherwise. A /24 is what one small site has, a /20 a provider's pool; a /56 is one household's or branch's,
/// a /48 one company's, a /32 one provider's.
const DEFAULT_V4: [Rung; 2] = [Rung { bits: 24, multiple: 32 }, Rung { bits: 20, multiple: 256 }];
const DEFAULT_V6: [Rung; 3] =
    [Rung { bits: 56, multiple: 4 }, Rung { bits: 48, multiple: 64 }, Rung { bits: 32, multiple: 1024 }];

impl LadderPolicy {
    /// No aggregates at all.
    pub const OFF: Self = Self { v4: Vec::new(), v6: Vec::new() };

    /// The default one, as far as it is wider than a source.
    pub fn default_for(ipv4_prefix: u8, ipv6_prefix: u8) -> Self {
        let wider =
            |rungs: &[Rung], source: u8| rungs.iter().copied().filter(|rung| rung.bits < source).collect();
        Self { v4: wider(&DEFAULT_V4, ipv4_prefix), v6: wider(&DEFAULT_V6, ipv6_prefix) }
    }

    /// The rungs of one family, whose sources are prefixes of so many bits.
    pub fn check(family: LadderFamily, rungs: &[Rung], source: u8) -> Result<(), LadderError> {
        if rungs.len() > MAX_RUNGS {
            return Err(LadderError::TooMany { family, count: rungs.len() });
        }
        let mut before = Rung { bits: source, multiple: 0 };
        for rung in rungs {
            if !(1..=MAX_MULTIPLE).contains(&rung.multiple) {
                return Err(LadderError::Multiple { rung: *rung });
            }
            if rung.bits == 0 || rung.bits >= before.bits {
                return Err(LadderError::Order { rung: *rung, before: before.bits });
            }
            if rung.multiple <= before.multiple {
                return Err(LadderError::Shrinks { rung: *rung, before: before.multiple });
            }
            before = *rung;
        }
        Ok(())
    }

    /// The same with the rungs of one family replaced.
    pub fn with(mut self, family: LadderFamily, rungs: Vec<Rung>, source: u8) -> Result<Self, LadderError> {
        Self::check(family, &rungs, source)?;
        match family {
            LadderFamily::V4 => self.v4 = rungs,
            LadderFamily::V6 => self.v6 = rungs,
        }
        Ok(self)
    }

    /// The rungs of one family, narrowest first.
    pub fn rungs(&self, family: LadderFamily) -> &[Rung] {
        match family {
            LadderFamily::V4 => &self.v4,
            LadderFamily::V6 => &self.v6,
        }
    }
}
