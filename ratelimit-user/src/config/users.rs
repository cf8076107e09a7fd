//! The meaning of `[[user]]` and `[plan.<name>]` tables.

use std::{collections::HashMap, ops::Range};

use ratelimit_common::limit::rate::Rate;

use super::{
    document::{At, Document, PlanTable, UserTable},
    problem::Problems,
    reader::Aside,
    resolve::rates,
};
use crate::policy::{Chunk, Prefix, Sources, User, Users};

/// The users, if all of them make sense.
pub(super) fn resolve(document: &Document, aside: &Aside, problems: &mut Problems<'_>) -> Option<Users> {
    let plans: HashMap<&str, Vec<Rate>> =
        document.plans.iter().map(|plan| (plan.name.as_str(), network(plan, problems))).collect();
    let tables = &document.users;
    let users: Vec<User> = tables.iter().filter_map(|table| user(table, &plans, aside, problems)).collect();
    let complete = users.len() == tables.len();
    let claimed = tables.iter().filter_map(|table| table.sources.as_ref());
    if claimed.map(|sources| runs(&sources.at, aside).len()).sum::<usize>() != aside.runs.len() {
        problems.error(&(0..0), "there are prefixes where no prefix belongs");
    }
    match Users::new(users, &aside.before) {
        Ok(users) => complete.then_some(users),
        Err(errors) => {
            for error in errors {
                let table = error.index().filter(|_| complete).and_then(|index| tables.get(index));
                problems.error(&table.or(tables.first()).map_or(0..0, |table| table.at.clone()), error);
            }
            None
        }
    }
}

fn network(plan: &PlanTable, problems: &mut Problems<'_>) -> Vec<Rate> {
    plan.network.as_ref().map_or_else(Vec::new, |limits| plain(rates(limits, problems)))
}

fn plain(rates: Vec<At<Rate>>) -> Vec<Rate> {
    rates.into_iter().map(|(rate, _)| rate).collect()
}

/// A user has the limits of its plan, unless it has its own.
fn user(
    table: &UserTable,
    plans: &HashMap<&str, Vec<Rate>>,
    aside: &Aside,
    problems: &mut Problems<'_>,
) -> Option<User> {
    let Some((name, _)) = &table.name else {
        problems.missing(&table.at, "[[user]] has no name; write name = \"acme\"");
        return None;
    };
    let (mut sources, mut chunks) = (Vec::new(), Vec::new());
    let mut readable = true;
    for (text, at) in table.sources.iter().flat_map(|sources| &sources.entries) {
        match text.as_ref().map(|text| text.parse::<Prefix>()) {
            Some(Ok(prefix)) => sources.push(prefix),
            Some(Err(error)) => {
                problems.error(at, error);
                readable = false;
            }
            None => readable = false,
        }
    }
    let of_plan = match &table.plan {
        None => Vec::new(),
        Some((plan, at)) => match plans.get(plan.as_str()) {
            Some(network) => network.clone(),
            None => {
                problems
                    .error(at, format!("plan {plan:?} is not there; write [plan.{plan}], or name another"));
                return None;
            }
        },
    };
    let network = match &table.network {
        Some(limits) => plain(rates(limits, problems)),
        None => of_plan,
    };
    if let Some(list) = &table.sources {
        chunks.extend(runs(&list.at, aside).iter().flat_map(|(_, chunks)| chunks).cloned());
    }
    chunks.push(Chunk::new(sources));
    let sources = Sources::new(chunks);
    if sources.is_empty() && readable {
        problems.warning(&table.at, format!("user {name:?} has no sources: no packet is ever its own"));
    }
    if network.is_empty() {
        problems.warning(
            &table.at,
            format!("user {name:?} has no network limits: nothing holds it but the source's"),
        );
    }
    readable
        .then(|| User::new(name.clone(), table.plan.as_ref().map(|(plan, _)| plan.clone()), sources, network))
}

/// The runs that belong into a list.
fn runs<'a>(list: &Range<usize>, aside: &'a Aside) -> &'a [(usize, Vec<Chunk>)] {
    let before = |place: usize| aside.runs.partition_point(|(at, _)| *at < place);
    &aside.runs[before(list.start)..before(list.end)]
}
