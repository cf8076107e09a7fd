//! The meaning of `[[user]]` and `[plan.<name>]` tables.

use std::{collections::HashSet, ops::Range};

use ratelimit_common::limit::rate::Rate;

use super::{
    document::{Document, PlanTable, UserSection},
    lists::{prefixes, rates},
    pieces::Aside,
    problem::Problems,
    request_limits::{self, LimitTerms},
    value::At,
};
use crate::policy::{Chunk, Plan, Sources, User, UserError, Users};

/// The users and plans, if all of them make sense.
pub(super) fn resolve(
    document: &Document,
    zone: Option<&str>,
    aside: &Aside,
    problems: &mut Problems<'_>,
) -> Option<Users> {
    let terms = LimitTerms::plain(zone);
    let plans: Vec<Plan> = document.plans.iter().map(|table| plan(table, terms, problems)).collect();
    let known: HashSet<&str> = document.plans.iter().map(|plan| plan.name.as_str()).collect();
    let tables = &document.users;
    let users: Vec<User> =
        tables.iter().filter_map(|table| user(table, &known, terms, aside, problems)).collect();
    let complete = users.len() == tables.len();
    let claimed = tables.iter().filter_map(|table| table.sources.as_ref());
    if claimed.map(|sources| runs(&sources.at, aside).len()).sum::<usize>() != aside.runs.len() {
        problems.error(&(0..0), "there are prefixes where no prefix belongs");
    }
    match Users::new(users, plans, &aside.before) {
        Ok(users) => complete.then_some(users),
        Err(errors) => {
            for error in errors {
                let user = error.index().filter(|_| complete).and_then(|index| tables.get(index));
                let at = match &error {
                    UserError::PlanTooManyLimits { name, .. } => {
                        document.plans.iter().find(|plan| plan.name == *name).map(|plan| &plan.at)
                    }
                    _ => user.or(tables.first()).map(|table| &table.at),
                };
                problems.error(&at.cloned().unwrap_or_default(), error);
            }
            None
        }
    }
}

fn plan(table: &PlanTable, terms: LimitTerms<'_>, problems: &mut Problems<'_>) -> Plan {
    let network = table.network.as_ref().map_or_else(Vec::new, |limits| plain(rates(limits, problems)));
    let requests = table.limits.as_ref().map(|limits| request_limits::read(limits, terms, problems));
    Plan::new(table.name.clone(), network).with_requests(requests.unwrap_or_default())
}

fn plain(rates: Vec<At<Rate>>) -> Vec<Rate> {
    rates.into_iter().map(|(rate, _)| rate).collect()
}

fn user(
    table: &UserSection,
    plans: &HashSet<&str>,
    terms: LimitTerms<'_>,
    aside: &Aside,
    problems: &mut Problems<'_>,
) -> Option<User> {
    let Some((name, _)) = &table.name else {
        problems.missing(&table.at, "[[user]] has no name; write name = \"acme\"");
        return None;
    };
    let sources = table.sources.as_ref().map_or_else(|| Some(Vec::new()), |list| prefixes(list, problems));
    if let Some((plan, at)) = &table.plan
        && !plans.contains(plan.as_str())
    {
        problems.error(at, format!("plan {plan:?} is not there; write [plan.{plan}], or name another"));
        return None;
    }
    let own = table.network.as_ref().map(|limits| plain(rates(limits, problems)));
    let requests = table.limits.as_ref().map(|limits| request_limits::read(limits, terms, problems));
    let sources = sources.map(|sources| {
        let list = table.sources.as_ref();
        let runs = list.into_iter().flat_map(|list| runs(&list.at, aside)).flat_map(|(_, chunks)| chunks);
        Sources::new(runs.cloned().chain([Chunk::new(sources)]).collect())
    });
    let plan = table.plan.as_ref().map(|(plan, _)| plan.clone());
    Some(User::new(name.clone(), plan, sources?, own).with_requests(requests))
}

/// The runs that belong into a list.
fn runs<'a>(list: &Range<usize>, aside: &'a Aside) -> &'a [(usize, Vec<Chunk>)] {
    let before = |place: usize| aside.runs.partition_point(|(at, _)| *at < place);
    &aside.runs[before(list.start)..before(list.end)]
}
