//! The exchange with the store about leases, blocks and members.

pub(super) mod driver;
pub(super) mod lease_thread;
