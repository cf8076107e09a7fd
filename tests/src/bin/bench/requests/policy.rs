//! The policies that the limiter is measured with.

/// The smallest policy there is; requests come on top of it.
pub(super) const PACKETS: &str = "[source]\nlimits = [\"5000 packets/s burst 10000\"]\n";

/// An API that counts by user.
pub(super) fn api(name: &str, limit: &str, algorithm: &str) -> String {
    format!(
        "[[api]]\nname = \"{name}\"\nkey = [\"user\"]\nlimits = [\"{limit}\"]\nalgorithm = \"{algorithm}\"\n"
    )
}
