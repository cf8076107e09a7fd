//! Settings that can be changed while a policy is in force: a limit, a list of limits, the plan of a user. Each has a name and a value in
//! words, so that settings can be typed, written down and read back.

use std::fmt;

use ratelimit_common::{
    abi::Meter,
    limit::{rate::Rate, text::parse_rate},
};

use super::{
    HostError, Plan, Policy, Service, ServiceError, SourceError, TooManyWindows, Uncountable, User,
    UserError,
    fields::{NONE, words},
    limit_list::{LimitList, parse_limit_name},
    some,
};

/// The word for a user that has the limits of its plan.
pub const OF_PLAN: &str = "plan";

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `source.packets`: one limit of a list.
    Limit {
        /// The list that the limit is in.
        list: LimitList,
        /// The meter of the limit.
        meter: Meter,
        /// The position among the list's limits of this meter, from 1.
        nth: usize,
    },
    /// `service.dns.per_source`: all limits of a list.
    List(LimitList),
    /// The plan of a user: `user.acme.plan`.
    Plan {
        /// The user's name.
        user: String,
    },
}

/// Why a setting cannot be changed to a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// Nothing has this name.
    #[error("no limit is called {name:?}; there is {}", some(.known))]
    Unknown {
        /// The rejected value, as the operator gave it.
        name: String,
        /// The names that are possible.
        known: Vec<String>,
    },
    /// No service, plan or user has this name.
    #[error("no {kind} is called {name:?}; there is {}", some(.known))]
    Nobody {
        /// `service`, `plan` or `user`.
        kind: &'static str,
        /// The rejected value, as the operator gave it.
        name: String,
        /// The names that are possible.
        known: Vec<String>,
    },
    /// The policy would have more different windows than there is room for.
    #[error(transparent)]
    Windows(#[from] TooManyWindows),
    /// The store could not count the limit exactly.
    #[error(transparent)]
    Uncountable(#[from] Uncountable),
    /// The limit's name and its rate have different meters.
    #[error("limit \"{name}\" is in {wanted}, and \"{rate}\" is in {found}; use a rate in {wanted}", wanted = .wanted.name(), found = .rate.meter.name())]
    WrongMeter {
        /// The limit's name.
        name: String,
        /// The meter in the limit's name.
        wanted: Meter,
        /// The rejected value, as the operator gave it.
        rate: Rate,
    },
    /// A text that is not a rate.
    #[error("limit \"{name}\": {error}")]
    Text {
        /// The name of the limit or the list.
        name: String,
        /// What is wrong with the text.
        error: String,
    },
    /// The user is set to the limits of its plan, but has no plan.
    #[error("user {name:?} is on no plan that it could have its limits from; name one with --plan")]
    NoPlan {
        /// The name of the user.
        name: String,
    },
    /// A limit that sources cannot have.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A limit that the host cannot have.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A limit that a service cannot have.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// A limit that a user cannot have.
    #[error(transparent)]
    User(#[from] UserError),
}

impl Setting {
    /// The list of limits that the setting changes.
    pub fn list(&self) -> Option<&LimitList> {
        match self {
            Self::Limit { list, .. } | Self::List(list) => Some(list),
            Self::Plan { .. } => None,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { list, meter, nth } => f.write_str(&list.limit_name(*meter, *nth)),
            Self::List(list) => list.fmt(f),
            Self::Plan { user } => write!(f, "user.{user}.plan"),
        }
    }
}

impl Policy {
    /// Every list of limits, including empty ones.
    pub fn limit_lists(&self) -> Vec<LimitList> {
        let mut lists = vec![LimitList::Source, LimitList::Host];
        for service in self.services().iter() {
            let name = service.name().to_owned();
            lists.extend([LimitList::PerSource(name.clone()), LimitList::Total(name)]);
        }
        lists.extend(self.users().plans().map(|plan| LimitList::Plan(plan.name().to_owned())));
        lists.extend(self.users().iter().map(|user| LimitList::User(user.name().to_owned())));
        lists
    }

    /// The limits of a list. For a user: its own limits, or those of its plan.
    pub fn rates(&self, list: &LimitList) -> Vec<Rate> {
        let service = |name: &str| self.services().get(name);
        let rates = match list {
            LimitList::Source => return self.source().limits().iter().map(|limit| *limit.rate()).collect(),
            LimitList::Host => Some(self.host().totals()),
            LimitList::PerSource(name) => service(name).map(Service::per_source),
            LimitList::Total(name) => service(name).map(Service::totals),
            LimitList::Plan(name) => self.users().plan(name).map(Plan::network),
            LimitList::User(name) => self.users().get(name).map(User::network),
        };
        rates.unwrap_or_default().to_vec()
    }

    /// The plan whose limits a user's list has; `None` if the user has limits of its own.
    pub fn inherited(&self, list: &LimitList) -> Option<LimitList> {
        let LimitList::User(name) = list else { return None };
        let user = self.users().get(name).filter(|user| user.own().is_none())?;
        user.plan().map(|plan| LimitList::Plan(plan.to_owned()))
    }

    /// The setting of a name. The name of a limit that does not exist yet is valid if the limit can be added.
    pub fn setting(&self, name: &str) -> Result<Setting, SettingError> {
        if let Some(user) = name.strip_prefix("user.").and_then(|rest| rest.strip_suffix(".plan")) {
            self.require_user(user)?;
            return Ok(Setting::Plan { user: user.to_owned() });
        }
        let lists = self.limit_lists();
        if let Some(list) = lists.iter().find(|list| list.to_string() == name) {
            return Ok(Setting::List(list.clone()));
        }
        let unknown = |known| SettingError::Unknown { name: name.to_owned(), known };
        let inside = |list: &&LimitList| {
            name.strip_prefix(&list.to_string()).is_some_and(|rest| rest.starts_with('.'))
        };
        // The longest match: a user's name may have dots and begin like another user's list.
        let around = lists.iter().filter(inside).max_by_key(|list| list.to_string().len());
        let Some(list) = around else {
            self.require_known(name)?;
            let names = lists.iter().flat_map(|list| list.limit_names(&self.rates(list)));
            return Err(unknown(names.collect()));
        };
        let rates = self.rates(list);
        let addable = Meter::ALL.into_iter().filter(|meter| list.takes(&rates, *meter));
        let addable: Vec<String> = addable.map(|meter| list.limit_name(meter, 1)).collect();
        let names = list.limit_names(&rates);
        let end = name.rsplit('.').next().and_then(parse_limit_name);
        match end {
            // The first limit of a meter is a valid name even if the list cannot take it: setting it then gives the error.
            Some((meter, nth))
                if list.limit_name(meter, nth) == name
                    && (nth == 1 || names.iter().any(|known| known == name)) =>
            {
                Ok(Setting::Limit { list: list.clone(), meter, nth })
            }
            _ => Err(unknown(names.into_iter().chain(addable).collect())),
        }
    }

    /// The value of a setting, in the words that set it; `None` if there is no such limit.
    pub fn value(&self, setting: &Setting) -> Option<String> {
        match setting {
            Setting::Plan { user } => self.users().get(user)?.plan().map(str::to_owned),
            Setting::List(list) if self.inherited(list).is_some() => Some(OF_PLAN.to_owned()),
            Setting::List(list) => Some(words(&self.rates(list))),
            Setting::Limit { list, meter, nth } => {
                let rates = self.rates(list);
                position(&rates, *meter, *nth).map(|at| rates[at].to_string())
            }
        }
    }

    /// The policy with one setting changed.
    pub fn with(&self, setting: &Setting, value: &str) -> Result<Self, SettingError> {
        let next = self.set(setting, value)?;
        next.windows_fit()?;
        next.leases_fit()?;
        Ok(next)
    }

    fn set(&self, setting: &Setting, value: &str) -> Result<Self, SettingError> {
        match setting {
            Setting::Plan { user } => {
                self.require_user(user)?;
                self.require_plan(value)?;
                let users = self.users().with_plan(user, value)?;
                Ok(Self { users, ..self.clone() })
            }
            Setting::List(list @ LimitList::User(name)) if value.trim() == OF_PLAN => {
                if self.users().get(name).is_some_and(|user| user.plan().is_none()) {
                    return Err(SettingError::NoPlan { name: name.clone() });
                }
                self.with_rates(list, None)
            }
            Setting::List(list) => self.with_rates(list, Some(&parse_list(list, value)?)),
            Setting::Limit { list, meter, nth } => {
                let rate = parse(&setting.to_string(), value)?;
                if rate.meter != *meter {
                    let name = setting.to_string();
                    return Err(SettingError::WrongMeter { name, wanted: *meter, rate });
                }
                let mut rates = self.rates(list);
                match position(&rates, *meter, *nth) {
                    Some(at) => rates[at] = rate,
                    // If the list has no room for the limit, the check of the whole list says so.
                    None => rates.push(rate),
                }
                self.with_rates(list, Some(&rates))
            }
        }
    }

    /// The policy with other limits in one list; `None` gives a user those of its plan.
    fn with_rates(&self, list: &LimitList, rates: Option<&[Rate]>) -> Result<Self, SettingError> {
        let mut next = self.clone();
        let own = rates;
        let rates = rates.unwrap_or_default();
        match list {
            LimitList::Source => next.source = self.source.with_limits(rates)?,
            LimitList::Host => next.host = self.host.clone().with_totals(rates.to_vec())?,
            LimitList::PerSource(name) => {
                next.services = self.services.changed(name, |s| s.with_per_source(rates.to_vec()))?;
            }
            LimitList::Total(name) => {
                next.services = self.services.changed(name, |s| s.with_totals(rates.to_vec()))?;
            }
            LimitList::Plan(name) => next.users = self.users.with_plan_network(name, rates)?,
            LimitList::User(name) => next.users = self.users.with_own(name, own)?,
        }
        Ok(next)
    }

    /// The user of this name, or an error that lists the users.
    pub fn require_user(&self, name: &str) -> Result<&User, SettingError> {
        self.users().get(name).ok_or_else(|| nobody("user", name, self.users().iter().map(User::name)))
    }

    fn require_plan(&self, name: &str) -> Result<&Plan, SettingError> {
        self.users().plan(name).ok_or_else(|| nobody("plan", name, self.users().plans().map(Plan::name)))
    }

    fn require_service(&self, name: &str) -> Result<&Service, SettingError> {
        self.services()
            .get(name)
            .ok_or_else(|| nobody("service", name, self.services().iter().map(Service::name)))
    }

    /// Checks whether the service, plan or user in a name exists.
    fn require_known(&self, name: &str) -> Result<(), SettingError> {
        let between = |start: &str, middle: &str| {
            let rest = name.strip_prefix(start)?;
            Some(rest.rfind(middle).map_or(rest, |end| &rest[..end]))
        };
        if let Some(user) = between("user.", ".network") {
            self.require_user(user)?;
        }
        if let Some(plan) = between("plan.", ".network") {
            self.require_plan(plan)?;
        }
        if let Some(service) = name.strip_prefix("service.").and_then(|rest| rest.split('.').next()) {
            self.require_service(service)?;
        }
        Ok(())
    }
}

fn nobody<'n>(kind: &'static str, name: &str, known: impl Iterator<Item = &'n str>) -> SettingError {
    SettingError::Nobody { kind, name: name.to_owned(), known: known.map(str::to_owned).collect() }
}

/// The index of the `nth` limit of a meter, counted from 1.
fn position(rates: &[Rate], meter: Meter, nth: usize) -> Option<usize> {
    let of_meter = rates.iter().enumerate().filter(|(_, rate)| rate.meter == meter);
    of_meter.map(|(at, _)| at).nth(nth - 1)
}

/// The texts of the rates in a list, split at commas.
pub fn pieces(value: &str) -> Vec<&str> {
    if value.trim() == NONE { Vec::new() } else { value.split(',').map(str::trim).collect() }
}

fn parse_list(list: &LimitList, value: &str) -> Result<Vec<Rate>, SettingError> {
    pieces(value).into_iter().map(|piece| parse(&list.to_string(), piece)).collect()
}

fn parse(name: &str, text: &str) -> Result<Rate, SettingError> {
    parse_rate(text).map_err(|error| SettingError::Text { name: name.to_owned(), error: error.to_string() })
}

#[cfg(test)]
mod tests;
