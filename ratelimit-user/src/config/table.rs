//! How a table of a policy file is declared: each key once, with its field and how its value is read. Reports every other key.

use std::{borrow::Cow, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    problem::Problems,
    value::{kind, table},
};

/// A table of a policy file.
pub(super) trait PolicyTable: Sized {
    /// The keys of the table, in the order of their declaration.
    const KEYS: &'static [&'static str];

    /// Reads as much of a table as possible, and reports the rest.
    fn read(fields: &DeTable<'_>, at: &Range<usize>, problems: &mut Problems<'_>) -> Self;
}

/// Declares a [`PolicyTable`]: a struct with one field for each key, and its place in the text if the first field is `at`.
macro_rules! policy_table {
    ($(#[$doc:meta])* $name:ident { $($at:ident,)? $($key:literal => $field:ident: $kind:ty = $read:expr,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(in crate::config) struct $name {
            $(pub(in crate::config) $at: std::ops::Range<usize>,)?
            $(pub(in crate::config) $field: $kind,)+
        }

        impl $crate::config::table::PolicyTable for $name {
            const KEYS: &'static [&'static str] = &[$($key),+];

            fn read(
                fields: &toml::de::DeTable<'_>,
                place: &std::ops::Range<usize>,
                problems: &mut $crate::config::problem::Problems<'_>,
            ) -> Self {
                let mut read = Self::default();
                $(read.$at = place.clone();)?
                let _ = place;
                for (key, value) in $crate::config::value::entries(fields, problems) {
                    match key.get_ref().as_ref() {
                        $($key => read.$field = $read($key, value, problems).into(),)+
                        _ => $crate::config::table::unknown(key, Self::KEYS, problems),
                    }
                }
                read
            }
        }
    };
}
pub(super) use policy_table;

/// Reads the value of a key as a table.
pub(super) fn one<T: PolicyTable>(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems<'_>,
) -> Option<T> {
    let fields = table(key, value, problems)?;
    Some(T::read(fields, &value.span(), problems))
}

/// Reads the tables of an array of tables.
pub(super) fn each<T: PolicyTable>(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems<'_>,
) -> Vec<T> {
    let DeValue::Array(items) = value.get_ref() else {
        let message = format!("{key} is {}; write each as a table, [[{key}]]", kind(value.get_ref()));
        problems.error(&value.span(), message);
        return Vec::new();
    };
    items.iter().filter_map(|item| one(key, item, problems)).collect()
}

/// Reports a key that its table does not have.
pub(super) fn unknown(key: &Spanned<Cow<'_, str>>, known: &[&str], problems: &mut Problems<'_>) {
    let name = key.get_ref().as_ref();
    let near = known.iter().map(|word| (distance(word, name), word)).min();
    let home = problems.homes().iter().find(|home| home.keys.contains(&name));
    let known = known.join(", ");
    let message = match (near, home) {
        // A distance of one letter is a typing mistake, even if the word is a key of another table.
        (Some((1, word)), _) => {
            format!("key {name:?} is not known; did you mean {word:?}? known here: {known}")
        }
        // The mistake that TOML invites: a key below the wrong [table] line.
        (_, Some(home)) => format!("key {name:?} belongs {}; move it there", home.place),
        (Some((distance, word)), None) if distance <= 2 => {
            format!("key {name:?} is not known; did you mean {word:?}? known here: {known}")
        }
        _ => format!("key {name:?} is not known; known here: {known}"),
    };
    problems.error(&key.span(), message);
}

/// The number of edits that turn one word into another (Levenshtein distance): small for a typing mistake.
fn distance(from: &str, to: &str) -> usize {
    if from.len().abs_diff(to.len()) > from.len() {
        return to.len();
    }
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
