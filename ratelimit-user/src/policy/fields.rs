//! What a table of the policy says, as fields in words: what `diff` compares. Each type of the policy has a method `fields`.

use std::{borrow::Cow, collections::BTreeMap, fmt};

/// The word for a list without limits.
pub const NONE: &str = "none";

/// A value in words, and whether a running daemon cannot follow it.
pub(super) type ChangedField = (String, bool);
/// Fields by their names.
pub(super) type Fields = BTreeMap<Cow<'static, str>, ChangedField>;

/// Fields that a running daemon follows.
pub(super) fn followed<const N: usize>(rows: [(&'static str, String); N]) -> Fields {
    rows.into_iter().map(|(name, text)| (name.into(), (text, false))).collect()
}

/// Fields that take a restart.
pub(super) fn restarted<const N: usize>(rows: [(&'static str, String); N]) -> Fields {
    rows.into_iter().map(|(name, text)| (name.into(), (text, true))).collect()
}

/// The things of a list in the order of the list, as `limit set` takes them.
pub fn words<T: fmt::Display>(things: &[T]) -> String {
    match things {
        [] => NONE.to_owned(),
        things => things.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}
