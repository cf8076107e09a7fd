//! The manner of a limit: its algorithm and its throttle.

use core::fmt;

/// What an algorithm keeps in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    /// The level of a bucket.
    Level,
    /// Counts of windows, for which a burst has no meaning.
    Windows,
    /// The time of every request within the window.
    EveryOne,
}

/// Declares the algorithms: one row for each, with its word and what it keeps.
macro_rules! algorithms {
    ($($(#[$about:meta])* $algorithm:ident: $word:literal, $keeps:ident;)*) => {
        /// The algorithm of a limit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Algorithm {
            $($(#[$about])* $algorithm,)*
        }

        impl Algorithm {
            /// All algorithms.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$algorithm),*];

            /// The word for the algorithm, as users type it.
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
    /// A bucket that leaks at the rate and overflows. As a meter, which admits or refuses and
    /// delays nothing, it decides like the token bucket, packet for packet.
    LeakyBucket: "leaky-bucket", Level;
    /// Counts per period of the clock: [`super::window::fixed`].
    FixedWindow: "fixed-window", Windows;
    /// Counts per period, wherever the period begins: [`super::window::sliding`].
    SlidingWindow: "sliding-window", Windows;
    /// Estimates a sliding window from two counts: [`super::window::weighted`].
    SlidingWindowWeighted: "sliding-window-weighted", Windows;
    /// A sliding window with the time of every request. For requests only.
    SlidingLog: "sliding-log", EveryOne;
}

impl Algorithm {
    /// Why the kernel program does not support the algorithm, as the middle of a sentence; `None` if it does.
    pub const fn why_requests_only(self) -> Option<&'static str> {
        if self.keeps_every_one() { Some("keeps every single one") } else { None }
    }

    /// Whether the algorithm counts in windows, for which a burst has no meaning.
    pub const fn is_window(self) -> bool {
        !matches!(self.keeps(), Keeps::Level)
    }

    /// Whether the algorithm keeps the time of every request, so that its memory grows with the limit.
    pub const fn keeps_every_one(self) -> bool {
        matches!(self.keeps(), Keeps::EveryOne)
    }
}

/// What happens above a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Throttle {
    /// Nothing above the limit passes.
    Hard,
    /// This many percent more pass, and are counted apart.
    Soft(u32),
    /// This many percent more pass while the host has headroom, and are counted apart.
    Elastic(u32),
}

/// The largest margin in percent.
pub const MAX_MARGIN: u32 = 1_000;

/// The manner of a limit: its algorithm, and what happens just above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Manner {
    /// The algorithm that counts the limit.
    pub algorithm: Algorithm,
    /// What happens above the limit.
    pub throttle: Throttle,
}

impl Manner {
    /// A hard token bucket.
    pub const PLAIN: Self = Self { algorithm: Algorithm::TokenBucket, throttle: Throttle::Hard };

    /// Percent that pass above the limit, with or without headroom.
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

/// The manner as it stands behind a rate, with a space before it; empty for a hard token bucket.
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
