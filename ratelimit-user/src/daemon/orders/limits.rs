//! Orders about single limits of the running policy.

use ratelimit_common::limit::rate::Rate;

use super::{
    caller::By,
    settings::{Assignments, Save},
};
use crate::{
    control::protocol::{LimitInfo, Operator, Reply},
    daemon::in_force::{PolicyInForce, enforcer::Enforcer},
    failure::Failure,
    policy::{LimitList, Policy, Setting},
};

/// Returns every limit of a policy.
pub(in crate::daemon) fn limits(policy: &Policy) -> Vec<LimitInfo> {
    policy.limit_lists().iter().flat_map(|list| limits_of(policy, list)).collect()
}

/// Returns one limit of a policy, or the limits of one list.
pub(in crate::daemon) fn limit(policy: &Policy, name: &str) -> Result<Reply, Failure> {
    let (setting, list) = limit_called(policy, name)?;
    let limits = limits_of(policy, &list);
    if let Setting::List(_) = setting {
        return Ok(Reply::Limits(limits));
    }
    let known: Vec<_> = limits.iter().map(|limit| limit.name.clone()).collect();
    match limits.into_iter().find(|limit| limit.name == name) {
        Some(limit) => Ok(Reply::Limits(vec![limit])),
        None => Err(Failure::usage(format!(
            "no limit is called {name:?}; there is {}",
            if known.is_empty() { "none in that list".to_owned() } else { known.join(", ") }
        ))),
    }
}

impl PolicyInForce {
    /// Sets a limit, or all limits of a list, from the next packet on.
    pub(in crate::daemon) fn set_limit(
        &mut self,
        name: &str,
        typed: String,
        save: bool,
        (operator, by): (&Operator, &By<'_>),
        enforcer: &mut Enforcer<'_>,
    ) -> Result<Reply, Failure> {
        let (setting, list) = limit_called(self.policy(), name)?;
        let (before, is_burst_typed) = (self.policy().rates(&list), typed.contains("burst"));
        let save = if save { Save::Yes } else { Save::No };
        let settings = vec![(setting.clone(), typed)];
        let file = self.set(&Assignments { verb: "limit set", settings, save, operator }, by, enforcer)?;
        let value = self.policy().value(&setting).unwrap_or_default();
        let note = match is_burst_typed {
            true => String::new(),
            false => other_burst(&before, &self.policy().rates(&list)),
        };
        Ok(Reply::Done(format!("{name} is {value} from now on{file}{note}")))
    }
}

/// Returns the end of a sentence about a limit whose burst is another one although none was typed.
fn other_burst(before: &[Rate], after: &[Rate]) -> String {
    let mut changed = after.iter().filter(|rate| !before.contains(rate));
    let (Some(new), None) = (changed.next(), changed.next()) else { return String::new() };
    let mut replaced = before.iter().filter(|rate| !after.contains(rate));
    match (replaced.next(), replaced.next()) {
        (Some(old), None) if old.meter == new.meter && old.burst != new.burst => {
            format!(
                "; no burst was given, so it is {} and no longer {}",
                new.burst_in_words(),
                old.burst_in_words()
            )
        }
        _ => String::new(),
    }
}

fn limit_called(policy: &Policy, name: &str) -> Result<(Setting, LimitList), Failure> {
    let setting = policy.setting(name).map_err(Failure::usage)?;
    match setting.list().cloned() {
        Some(list) => Ok((setting, list)),
        None => Err(Failure::usage(format!("{name} is no limit; use ratelimit user get or user set"))),
    }
}

fn limits_of(policy: &Policy, list: &LimitList) -> Vec<LimitInfo> {
    let rates = policy.rates(list);
    let from = policy.inherited(list).map(|plan| plan.to_string());
    let names = list.limit_names(&rates).into_iter();
    names.zip(&rates).map(|(name, rate)| info(name, rate, from.clone())).collect()
}

fn info(name: String, rate: &Rate, from: Option<String>) -> LimitInfo {
    LimitInfo {
        name,
        rate: rate.to_string(),
        meter: rate.meter.name().to_owned(),
        amount: rate.amount,
        period: rate.period.name().to_owned(),
        burst: rate.burst,
        from,
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_common::limit::text::parse_rate;

    use super::*;

    #[test]
    fn a_burst_that_changes_without_being_typed_is_told() {
        let rates = |texts: &[&str]| texts.iter().map(|text| parse_rate(text).unwrap()).collect::<Vec<_>>();
        let before = rates(&["5000 packets/s burst 10000", "100 syns/s"]);
        assert_eq!(
            other_burst(&before, &rates(&["1000 packet/s", "100 syns/s"])),
            "; no burst was given, so it is 1000 and no longer 10000"
        );
        assert_eq!(other_burst(&before, &rates(&["9000 packets/s burst 10000", "100 syns/s"])), "");
        assert_eq!(
            other_burst(&before, &rates(&["1000 packets/s"])),
            "",
            "which limit that replaces is not known"
        );
        assert_eq!(other_burst(&rates(&["9/s"]), &rates(&["1 MB/s"])), "");
    }
}
