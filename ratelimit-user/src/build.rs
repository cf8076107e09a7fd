//! The name of this build.

/// The version and a hash of the sources, so that builds of different sources have different names.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("RATELIMIT_SOURCES"));
