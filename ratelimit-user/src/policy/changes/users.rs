//! Users and plans in words. Of thousands only those that differ are looked at.

use std::collections::{BTreeMap, HashMap};

use super::{
    Fields, PolicyChange, followed,
    requests::{given, in_order},
};
use crate::policy::{Difference, NONE, Plan, Prefix, Sources, User, Users, words};

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

pub(super) fn of_plan(plan: &Plan) -> Fields {
    let mut fields = followed([("network", words(plan.network()))]);
    if !plan.requests().is_empty() {
        fields.insert("limits".into(), (in_order(plan.requests()), false));
    }
    fields
}

pub(super) fn of_user(user: &User) -> Fields {
    // A plan that changes is one row, however many are on it.
    let network = user.own().map_or_else(|| "of its plan".to_owned(), words);
    let mut fields = followed([("network", network)]);
    if let Some(plan) = user.plan() {
        fields.insert("plan".into(), (plan.to_owned(), false));
    }
    if let Some(limits) = user.requests() {
        fields.insert("limits".into(), (given(limits), false));
    }
    fields
}
