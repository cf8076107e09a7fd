//! Users: prefixes that share limits of their own on this host.

/// Users that a policy can have.
pub const MAX_USERS: usize = 4096;
/// The number that stands for no user.
pub const NO_USER: u16 = 0;
const _: () = assert!(MAX_USERS < u16::MAX as usize);
