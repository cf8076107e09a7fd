//! `[[user]]` and `[plan.<name>]`: their keys, and what they mean.

use std::{collections::HashSet, ops::Range};

use ratelimit_common::limit::rate::Rate;
use toml::{Spanned, de::DeValue};

use super::{
    lists::{prefixes, rates},
    pieces::Aside,
    problem::Problems,
    request_limits::{self, LimitTerms},
    table::{PolicyTable as _, policy_table},
    value::{At, Strings, entries, string, strings, table},
};
use crate::policy::{Chunk, Plan, Sources, User, UserError, Users};

policy_table! {
    /// The table `[[user]]`.
    UserSection {
        at,
        "name" => name: Option<At<String>> = string,
        "plan" => plan: Option<At<String>> = string,
        "sources" => sources: Option<Strings> = strings,
        "network" => network: Option<Strings> = strings,
        "limits" => limits: Option<Strings> = strings,
    }
}

policy_table! {
    /// `[plan.<name>]` without its name.
    PlanKeys {
        "network" => network: Option<Strings> = strings,
        "limits" => limits: Option<Strings> = strings,
    }
}

/// The table `[plan.<name>]`.
#[derive(Debug)]
pub(super) struct PlanTable {
    pub(super) at: Range<usize>,
    pub(super) name: String,
    pub(super) keys: PlanKeys,
}

/// The tables below `plan`, each with the place of its name.
pub(super) fn plans(key: &str, value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> Vec<PlanTable> {
    let Some(fields) = table(key, value, problems) else { return Vec::new() };
    let mut plans = Vec::new();
    for (name, value) in entries(fields, problems) {
        let Some(fields) = table("a plan", value, problems) else { continue };
        let keys = PlanKeys::read(fields, &value.span(), problems);
        plans.push(PlanTable { at: name.span(), name: name.get_ref().to_string(), keys });
    }
    plans
}

/// The users and plans, if all tables are valid.
pub(super) fn resolve(
    plan_tables: &[PlanTable],
    tables: &[UserSection],
    zone: Option<&str>,
    aside: &Aside,
    problems: &mut Problems<'_>,
) -> Option<Users> {
    let terms = LimitTerms::plain(zone);
    let plans: Vec<Plan> = plan_tables.iter().map(|table| plan(table, terms, problems)).collect();
    let known: HashSet<&str> = plan_tables.iter().map(|plan| plan.name.as_str()).collect();
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
                        plan_tables.iter().find(|plan| plan.name == *name).map(|plan| &plan.at)
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
    let network = table.keys.network.as_ref().map_or_else(Vec::new, |limits| plain(rates(limits, problems)));
    let requests = table.keys.limits.as_ref().map(|limits| request_limits::read(limits, terms, problems));
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

/// The runs that were cut out of a list.
fn runs<'a>(list: &Range<usize>, aside: &'a Aside) -> &'a [(usize, Vec<Chunk>)] {
    let before = |place: usize| aside.runs.partition_point(|(at, _)| *at < place);
    &aside.runs[before(list.start)..before(list.end)]
}
