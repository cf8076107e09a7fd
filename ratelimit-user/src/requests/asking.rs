//! How a question is meant, and what can go wrong with giving back and forgetting.

use super::{BadRequest, JudgeMode};
use crate::store::worker::{Full, MOST_KEPT, Unavailable};

/// Whether a question counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// The question counts.
    Counted,
    /// The question counts, and is for many requests at once that a proxy decides about: no lease is taken for more of them.
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
    /// The store has not answered for so many resets that one more is not kept for it.
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
