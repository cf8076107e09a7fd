//! How a limit is counted, and what happens just above it.

use core::fmt;

/// How a limit is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// A bucket that fills at the rate: [`super::gcra`].
    TokenBucket,
    /// The same seen from the other side: a bucket that leaks at the rate, and overflows. As a meter, which lets pass or refuses and
    /// delays nothing, it decides like the token bucket, packet for packet.
    LeakyBucket,
    /// So many in every minute that the clock counts: [`super::window::fixed`].
    FixedWindow,
    /// So many in any minute, whenever it begins: [`super::window::sliding`].
    SlidingWindow,
    /// A sliding window by an estimate: [`super::window::weighted`].
    SlidingWindowWeighted,
    /// A sliding window from a record of every single one. For requests only.
    SlidingLog,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingWindowWeighted,
        Self::SlidingLog,
    ];

    /// The word users type for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
            Self::FixedWindow => "fixed-window",
            Self::SlidingWindow => "sliding-window",
            Self::SlidingWindowWeighted => "sliding-window-weighted",
            Self::SlidingLog => "sliding-log",
        }
    }

    /// Why the kernel program does not have it, if it does not: the middle of a sentence.
    pub const fn why_requests_only(self) -> Option<&'static str> {
        match self {
            Self::SlidingLog => Some("keeps every single one"),
            _ => None,
        }
    }

    /// Whether the algorithm counts in windows, where a burst has no meaning.
    pub const fn is_window(self) -> bool {
        !matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }
}

/// What happens above a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Throttle {
    /// Nothing above the limit passes.
    Hard,
    /// So many percent more pass, and are counted apart.
    Soft(u32),
    /// So many percent more pass while the host has headroom, and are counted apart.
    Elastic(u32),
}

/// The largest margin in percent.
pub const MAX_MARGIN: u32 = 1_000;

/// How a limit is counted, and what happens just above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Manner {
    /// The algorithm that counts the limit.
    pub algorithm: Algorithm,
    /// What happens above it.
    pub throttle: Throttle,
}

impl Manner {
    /// A hard token bucket.
    pub const PLAIN: Self = Self { algorithm: Algorithm::TokenBucket, throttle: Throttle::Hard };

    /// Percent that pass above the limit, if the host has headroom or has none.
    pub const fn margin(self, headroom: bool) -> u32 {
        match self.throttle {
            Throttle::Hard => 0,
            Throttle::Soft(percent) => percent,
            Throttle::Elastic(percent) => {
                if headroom {
                    percent
                } else {
                    0
                }
            }
        }
    }
}

/// As it stands behind a rate, with a space before it; nothing for a hard token bucket.
impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.algorithm != Algorithm::TokenBucket {
            write!(f, " {}", self.algorithm.name())?;
        }
        match self.throttle {
            Throttle::Hard => Ok(()),
            Throttle::Soft(percent) => write!(f, " soft {percent}%"),
            Throttle::Elastic(percent) => write!(f, " elastic {percent}%"),
        }
    }
}
