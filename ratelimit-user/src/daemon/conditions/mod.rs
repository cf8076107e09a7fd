//! The conditions of the host: its interfaces, the way to its listeners, its headroom, and warnings about them.

pub(super) mod arrivals;
pub(super) mod express_lane;
pub(crate) mod headroom;
pub(super) mod interfaces;
pub(super) mod warnings;
