//! What differs between the stores of two clusters and is never shown.

use crate::policy::Policy;

/// The table's name, and the subject's.
pub(super) const CLUSTER: &str = "cluster";

/// Whether the stores of two policies differ in what is never shown.
pub(super) fn other_secret(before: &Policy, after: &Policy) -> bool {
    let stores = before.cluster().zip(after.cluster()).map(|(old, new)| (old.redis(), new.redis()));
    stores.is_some_and(|(old, new)| old != new && old.to_string() == new.to_string())
}
