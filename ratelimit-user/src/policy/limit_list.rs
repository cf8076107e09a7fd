//! The lists of limits that a policy has, and the names of the limits in them.
//!
//! `source` is a list, `source.packets` its limit in packets, `source.packets-2` a second one. Names of users may have dots in them,
//! but no list ends like a limit, so a name means one thing only.

use std::fmt;

use ratelimit_common::{
    abi::{MAX_LIMITS, Meter, service::MAX_TOTALS},
    limit::rate::Rate,
};

/// One list of limits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitList {
    /// The list `[source] limits`.
    Source,
    /// The list `[host] total`.
    Host,
    /// The list `[[service]] per_source` of a service.
    PerSource(String),
    /// The list `[[service]] total` of a service.
    Total(String),
    /// The list `[plan.NAME] network` of a plan.
    Plan(String),
    /// The list `[[user]] network` of a user.
    User(String),
}

impl LimitList {
    /// Whether a first limit in this meter can be added to the list.
    pub(super) fn takes(&self, rates: &[Rate], meter: Meter) -> bool {
        let first = rates.iter().all(|rate| rate.meter != meter);
        match self {
            Self::Host | Self::Total(_) => {
                first && rates.len() < MAX_TOTALS && matches!(meter, Meter::Packets | Meter::Bytes)
            }
            _ => first && rates.len() < MAX_LIMITS,
        }
    }

    /// The name of the list's `nth` limit in a meter, counted from 1.
    pub fn limit_name(&self, meter: Meter, nth: usize) -> String {
        match nth {
            1 => format!("{self}.{}", meter.name()),
            _ => format!("{self}.{}-{nth}", meter.name()),
        }
    }

    /// The names of all limits of the list.
    pub fn limit_names(&self, rates: &[Rate]) -> Vec<String> {
        let name = |(at, rate): (usize, &Rate)| {
            let nth = 1 + rates[..at].iter().filter(|other| other.meter == rate.meter).count();
            self.limit_name(rate.meter, nth)
        };
        rates.iter().enumerate().map(name).collect()
    }
}

impl fmt::Display for LimitList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source => f.write_str("source"),
            Self::Host => f.write_str("host.total"),
            Self::PerSource(service) => write!(f, "service.{service}.per_source"),
            Self::Total(service) => write!(f, "service.{service}.total"),
            Self::Plan(plan) => write!(f, "plan.{plan}.network"),
            Self::User(user) => write!(f, "user.{user}.network"),
        }
    }
}

/// Parses the last part of a limit's name: `packets` is the first limit in packets, `packets-2` the second.
pub(super) fn parse_limit_name(text: &str) -> Option<(Meter, usize)> {
    let (word, nth) = match text.split_once('-') {
        None => (text, 1),
        Some((word, nth)) => (word, nth.parse::<usize>().ok().filter(|nth| *nth > 1)?),
    };
    Some((Meter::ALL.into_iter().find(|meter| meter.name() == word)?, nth))
}
