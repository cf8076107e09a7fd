//! The conditions that the host offers: its interfaces, its listeners, its headroom, and what an operator should know of them.

pub(super) mod arrivals;
pub(super) mod express_lane;
pub(crate) mod headroom;
pub(super) mod interfaces;
pub(super) mod warnings;
