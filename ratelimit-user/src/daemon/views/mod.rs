//! Views of the host for callers that ask or watch: status, explanations, what is left of limits, frames, and witnesses of attacks.

pub(super) mod explain;
pub(super) mod frames;
pub(super) mod known_totals;
pub(super) mod remaining;
pub(super) mod shared;
pub(super) mod status;
pub(super) mod witnesses;
