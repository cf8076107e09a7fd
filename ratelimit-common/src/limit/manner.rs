//! How a limit is counted, and what happens just above it.

use core::fmt;

/// What an algorithm keeps of what it has counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    /// The level of a bucket.
    Level,
    /// Numbers of windows, where a burst has no meaning.
    Windows,
    /// The time of every single one, as far as it lies in the window.
    EveryOne,
}

/// Declares the algorithms: one row for each, with its word and what it keeps.
macro_rules! algorithms {
    ($($(#[$about:meta])* $algorithm:ident: $word:literal, $keeps:ident;)*) => {
        /// How a limit is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Algorithm {
            $($(#[$about])* $algorithm,)*
        }

        impl Algorithm {
            /// All of them.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$algorithm),*];

            /// The word users type for it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$algorithm => $word,)*
                }
            }

            const fn keeps(self) -> Keeps {
                match self {
                    $(Self::$algorithm => Keeps::$keeps,)*
                }
            }
        }
    };
}

algorithms! {
    /// A bucket that fills at the rate: [`super::gcra`].
    TokenBucket: "token-bucket", Level;
    /// The same seen from the other side: a bucket that leaks at the rate, and overflows. As a meter, which lets pass or refuses and
    /// delays nothing, it decides like the token bucket, packet for packet.
    LeakyBucket: "leaky-bucket", Level;
    /// So many in every minute that the clock counts: [`super::window::fixed`].
    FixedWindow: "fixed-window", Windows;
    /// So many in any minute, whenever it begins: [`super::window::sliding`].
    SlidingWindow: "sliding-window", Windows;
    /// A sliding window by an estimate: [`super::window::weighted`].
    SlidingWindowWeighted: "sliding-window-weighted", Windows;
    /// A sliding window from a record of every single one. For requests only.
    SlidingLog: "sliding-log", EveryOne;
}

impl Algorithm {
    /// Why the kernel program does not have it, if it does not: the middle of a sentence.
    pub const fn why_requests_only(self) -> Option<&'static str> {
        if self.keeps_every_one() { Some("keeps every single one") } else { None }
    }

    /// Whether the algorithm counts in windows, where a burst has no meaning.
    pub const fn is_window(self) -> bool {
        !matches!(self.keeps(), Keeps::Level)
    }

    /// Whether the algorithm keeps the time of every single one, so that it takes room in proportion to the limit.
    pub const fn keeps_every_one(self) -> bool {
        matches!(self.keeps(), Keeps::EveryOne)
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
