//! Users as fields in words. Only users that differ are turned into words, of possibly thousands.

use std::collections::{BTreeMap, HashMap};

use super::PolicyChange;
use crate::policy::{Difference, NONE, Prefix, Sources, User, Users};

/// The users of `these` that are missing in `those` or differ there, by subject. Most users stay as they are and need no words.
pub(super) fn unlike<'p>(these: &'p Users, those: &Users) -> BTreeMap<String, &'p User> {
    let others: HashMap<&str, &User> = those.iter().map(|user| (user.name(), user)).collect();
    let differs = |user: &&User| others.get(user.name()) != Some(user);
    these.iter().filter(differs).map(|user| (format!("user {}", user.name()), user)).collect()
}

/// Rows for the prefixes that a user loses and gains.
pub(super) fn source_rows(subject: &str, before: &User, after: &User) -> Vec<PolicyChange> {
    let Difference { gone, come } = before.sources().difference(after.sources());
    let row = |before: &[Prefix], after: &[Prefix]| PolicyChange {
        subject: subject.to_owned(),
        field: Some("sources".to_owned()),
        before: (!before.is_empty()).then(|| first_few(before)),
        after: (!after.is_empty()).then(|| first_few(after)),
        needs_restart: false,
    };
    let rows = [row(&gone, &[]), row(&[], &come)];
    rows.into_iter().filter(|row| row.before.is_some() || row.after.is_some()).collect()
}

/// Prefixes shown at most in one row; a user can have thousands.
const SHOWN: usize = 8;

fn first_few(prefixes: &[Prefix]) -> String {
    let shown: Vec<String> = prefixes.iter().take(SHOWN).map(ToString::to_string).collect();
    match prefixes.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The prefixes of a user in words, at most as many as a row shows.
pub(super) fn sources_in_words(user: &User) -> String {
    let all = Sources::default().difference(user.sources()).come;
    if all.is_empty() { NONE.to_owned() } else { first_few(&all) }
}
