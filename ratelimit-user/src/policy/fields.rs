//! The tables of a policy as fields in words, which `diff` compares. Each type of the policy has a method `fields`.

use std::{borrow::Cow, collections::BTreeMap, fmt};

/// The word for an empty list of limits.
pub const NONE: &str = "none";

/// A value in words, and whether a change of it needs a restart of the daemon.
pub(super) type ChangedField = (String, bool);
/// Fields by their names.
pub(super) type Fields = BTreeMap<Cow<'static, str>, ChangedField>;

/// Fields whose changes a running daemon applies.
pub(super) fn followed<const N: usize>(rows: [(&'static str, String); N]) -> Fields {
    rows.into_iter().map(|(name, text)| (name.into(), (text, false))).collect()
}

/// Fields whose changes need a restart of the daemon.
pub(super) fn restarted<const N: usize>(rows: [(&'static str, String); N]) -> Fields {
    rows.into_iter().map(|(name, text)| (name.into(), (text, true))).collect()
}

/// The items of a list in order, as `limit set` takes them.
pub fn words<T: fmt::Display>(things: &[T]) -> String {
    match things {
        [] => NONE.to_owned(),
        things => things.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}
