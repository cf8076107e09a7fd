//! The limits of the running policy, one by one.

use ratelimit_common::limit::rate::Rate;

use super::{
    caller::By,
    host::Host,
    settings::{Order, Save},
};
use crate::{
    control::protocol::{LimitInfo, Operator, Reply},
    failure::Failure,
    policy::{LimitList, Setting},
};

impl Host {
    /// All of them.
    pub(super) fn limits(&self) -> Vec<LimitInfo> {
        self.policy().limit_lists().iter().flat_map(|list| self.limits_of(list)).collect()
    }

    /// One of them, or all of a list, from the next packet on.
    pub(super) fn set_limit(
        &mut self,
        name: &str,
        typed: String,
        save: bool,
        operator: &Operator,
        by: &By<'_>,
    ) -> Result<Reply, Failure> {
        let (setting, _) = self.limit_called(name)?;
        let save = if save { Save::Yes } else { Save::No };
        let settings = vec![(setting.clone(), typed)];
        let file = self.set(&Order { verb: "limit set", settings, save, operator }, by)?;
        let value = self.policy().value(&setting).unwrap_or_default();
        Ok(Reply::Done(format!("{name} is {value} from now on{file}")))
    }

    /// One of them, or those of one list.
    pub(super) fn limit(&self, name: &str) -> Result<Reply, Failure> {
        let (setting, list) = self.limit_called(name)?;
        let list = &list;
        let limits = self.limits_of(list);
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

    fn limit_called(&self, name: &str) -> Result<(Setting, LimitList), Failure> {
        let setting = self.policy().setting(name).map_err(Failure::usage)?;
        match setting.list().cloned() {
            Some(list) => Ok((setting, list)),
            None => Err(Failure::usage(format!("{name} is no limit; use ratelimit user get or user set"))),
        }
    }

    fn limits_of(&self, list: &LimitList) -> Vec<LimitInfo> {
        let rates = self.policy().rates(list);
        let from = self.policy().inherited(list).map(|plan| plan.to_string());
        let names = list.limit_names(&rates).into_iter();
        names.zip(&rates).map(|(name, rate)| info(name, rate, from.clone())).collect()
    }
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
