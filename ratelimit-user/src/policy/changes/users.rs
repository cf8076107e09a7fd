//! Users in words. Of thousands only those that differ are looked at.

use std::collections::{BTreeMap, HashMap};

use super::PolicyChange;
use crate::policy::{Difference, NONE, Prefix, Sources, User, Users};

/// Users that the other policy does not have, or not like that, by subject. Most of thousands stay as they are and need no words.
pub(super) fn unlike<'p>(these: &'p Users, those: &Users) -> BTreeMap<String, &'p User> {
    let others: HashMap<&str, &User> = those.iter().map(|user| (user.name(), user)).collect();
    let differs = |user: &&User| others.get(user.name()) != Some(user);
    these.iter().filter(differs).map(|user| (format!("user {}", user.name()), user)).collect()
}

/// Prefixes that a user loses and gets.
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

/// Prefixes shown of what can be thousands.
const SHOWN: usize = 8;

fn first_few(prefixes: &[Prefix]) -> String {
    let shown: Vec<String> = prefixes.iter().take(SHOWN).map(ToString::to_string).collect();
    match prefixes.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// All prefixes of a user, or as many as are shown.
pub(super) fn sources_in_words(user: &User) -> String {
    let all = Sources::default().difference(user.sources()).come;
    if all.is_empty() { NONE.to_owned() } else { first_few(&all) }
}
