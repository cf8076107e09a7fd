//! Which build this is.

/// The version and a hash of the sources: two builds that differ have names that do.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("RATELIMIT_SOURCES"));
