//! What is answered, and why.

use super::allowance::{Allowance, Limit};

/// The answer to one request.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'r> {
    /// What is to be done with it.
    pub outcome: Outcome,
    /// The limit that decided, or the one that is nearest to its end; none where nothing limits the request.
    pub limit: Option<Nearest<'r>>,
}

/// What is to be done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Serve it.
    Allowed,
    /// Serve it; it is above the limit, in the margin of a soft or elastic one.
    InMargin,
    /// Serve it after others: it is above its limit.
    Deprioritised,
    /// Serve it after this time. Its place is held.
    Delayed {
        /// How long.
        wait_us: u64,
    },
    /// Refuse it.
    Refused {
        /// How long until it would fit, if nobody else takes anything; none if it never will.
        retry_us: Option<u64>,
    },
}

impl Outcome {
    /// Whether the request is to be served.
    pub const fn is_served(self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// The word for it in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::InMargin => "in_margin",
            Self::Deprioritised => "deprioritised",
            Self::Delayed { .. } => "delayed",
            Self::Refused { .. } => "refused",
        }
    }

    /// All words, in the order of [`Outcome::index`].
    pub const NAMES: [&'static str; 5] = ["allowed", "in_margin", "deprioritised", "delayed", "refused"];

    /// Its place among [`Outcome::NAMES`].
    pub const fn index(self) -> usize {
        match self {
            Self::Allowed => 0,
            Self::InMargin => 1,
            Self::Deprioritised => 2,
            Self::Delayed { .. } => 3,
            Self::Refused { .. } => 4,
        }
    }
}

/// Whole seconds, rounded up: nobody comes back too early.
pub const fn seconds(us: u64) -> u64 {
    us.div_ceil(1_000_000)
}

/// Where a limit stands.
#[derive(Clone, Copy, Debug)]
pub struct Nearest<'r> {
    /// Whose limit it is.
    pub allowance: &'r Allowance,
    /// The limit.
    pub limit: &'r Limit,
    /// What is left of it.
    pub remaining: u64,
    /// How long until it is whole again.
    pub reset_us: u64,
}
