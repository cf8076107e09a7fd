//! What is asked: may this user call this API now?

use std::net::IpAddr;

use crate::policy::some;

/// A question. Nothing in it is owned: it is asked and forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The user who makes the request; empty if no user is named.
    pub user: &'a str,
    /// The API that the request is for.
    pub api: &'a str,
    /// The address that the request comes from.
    pub ip: Option<IpAddr>,
    /// Whether a trusted peer vouches for the address, so that the address may be blocked for its requests.
    pub vouched: bool,
    /// The units that the request takes.
    pub cost: u64,
    /// How much the request matters.
    pub priority: Priority,
    /// Further parts of the key, by name.
    pub parts: &'a [(&'a str, &'a str)],
}

impl<'a> Request<'a> {
    /// A request of cost 1 that matters as much as most.
    pub fn new(user: &'a str, api: &'a str) -> Self {
        Self { user, api, ip: None, vouched: false, cost: 1, priority: Priority::Normal, parts: &[] }
    }

    /// Sets the address of the caller.
    pub fn from(self, ip: IpAddr) -> Self {
        Self { ip: Some(ip), ..self }
    }

    /// Sets whether a trusted peer vouches for the address.
    pub fn vouched(self, vouched: bool) -> Self {
        Self { vouched, ..self }
    }

    /// Sets the cost.
    pub fn costing(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Sets the priority.
    pub fn with_priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Adds further parts of the key.
    pub fn with_parts(self, parts: &'a [(&'a str, &'a str)]) -> Self {
        Self { parts, ..self }
    }
}

/// How much a request matters. Requests that matter less leave a part of each limit to the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Gives way first.
    Background,
    /// The priority of most requests.
    #[default]
    Normal,
    /// Gives way to nothing.
    Critical,
}

impl Priority {
    /// All priorities, the lowest first.
    pub const ALL: [Self; 3] = [Self::Background, Self::Normal, Self::Critical];

    /// The word for the priority.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Normal => "normal",
            Self::Critical => "critical",
        }
    }

    /// Returns the priority that has this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.name() == word)
    }
}

/// A question that has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// There is no API of this name, and no API for all other names.
    #[error("api {api:?} is not in the policy; there is {}", some(.known))]
    UnknownApi {
        /// The rejected value, as far as it fits into a sentence.
        api: String,
        /// The APIs that exist.
        known: Vec<String>,
    },
    /// The limits of this API are counted by something that was not given.
    #[error("{part} is missing; requests for api {api:?} are counted by it")]
    Missing {
        /// The part of the key that is missing.
        part: String,
        /// The API that the request is for.
        api: String,
    },
    /// A request that counts nothing.
    #[error("cost 0 counts nothing; use at least 1, or peek")]
    NoCost,
}
