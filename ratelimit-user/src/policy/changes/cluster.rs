//! Differences between the store addresses of two policies that are never shown, such as passwords.

use crate::policy::Policy;

/// The key of the table in the policy, and the name of the subject in a diff.
pub(super) const CLUSTER: &str = "cluster";

/// Whether the store addresses of two policies differ only in what is never shown.
pub(super) fn other_secret(before: &Policy, after: &Policy) -> bool {
    let stores = before.cluster().zip(after.cluster()).map(|(old, new)| (old.redis(), new.redis()));
    stores.is_some_and(|(old, new)| old != new && old.to_string() == new.to_string())
}
