//! How a question is meant, and why refunds and resets fail.

use super::{BadRequest, JudgeMode};
use crate::store::worker::{Full, MOST_KEPT, Unavailable};

/// Whether a question counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// The question counts.
    Counted,
    /// The question counts, and stands for many requests that a proxy decides about by itself: no lease is taken for later requests.
    InBulk,
    /// The question only looks.
    Peeking,
}

impl From<Asking> for JudgeMode {
    fn from(asking: Asking) -> Self {
        match asking {
            Asking::Counted | Asking::InBulk => Self::Take,
            Asking::Peeking => Self::Peek,
        }
    }
}

/// Why nothing was given back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRefunded {
    /// The question makes no sense.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// The request was counted in the store, which does not answer.
    #[error("the store that hosts share does not answer, so nothing was given back; try again in a second")]
    StoreAway,
}

/// Why nothing was reset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReset {
    /// The question makes no sense.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// The store does not answer, and as many resets as may be kept for it are waiting already.
    #[error(
        "the store that hosts share does not answer, and {MOST_KEPT} resets are kept for it already, so nothing was reset; try again when it is back"
    )]
    TooMany,
}

impl From<Full> for NotReset {
    fn from(_: Full) -> Self {
        Self::TooMany
    }
}

impl From<Unavailable> for NotRefunded {
    fn from(_: Unavailable) -> Self {
        Self::StoreAway
    }
}
