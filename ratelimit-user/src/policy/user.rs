//! Users: whose addresses share limits of their own on this host.

use std::collections::HashMap;

use ratelimit_common::{
    abi::{MAX_LIMITS, user::MAX_USERS},
    limit::rate::{Rate, RateError},
};

use super::Prefix;

/// One user: prefixes, and limits that all of them share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: String,
    plan: Option<String>,
    sources: Vec<Prefix>,
    network: Vec<Rate>,
}

/// All users of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(Vec<User>);

/// Why there cannot be such users. `index` counts them as given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// No name, or one that is hard to type.
    #[error("user name {name:?} is not one; use letters, digits, -, _, . and @, at most 64")]
    Name {
        /// Which.
        index: usize,
        /// As given.
        name: String,
    },
    /// Two of one name.
    #[error("user {name:?} is there twice; give one another name")]
    Twice {
        /// Which.
        index: usize,
        /// As given.
        name: String,
    },
    /// More than the maps hold.
    #[error("{count} users are more than there can be; use at most {MAX_USERS}")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// A prefix that two users claim.
    #[error("source {prefix} of user {name:?} belongs to user {other:?} already; name it in one of them")]
    Overlap {
        /// Which.
        index: usize,
        /// Its name.
        name: String,
        /// The prefix.
        prefix: Prefix,
        /// Who has it.
        other: String,
    },
    /// More than a bucket has words.
    #[error("user {name:?}: {count} network limits are more than there can be; use at most {MAX_LIMITS}")]
    TooManyLimits {
        /// Which.
        index: usize,
        /// Its name.
        name: String,
        /// How many.
        count: usize,
    },
    /// A limit that cannot be held.
    #[error("user {name:?}: limit \"{rate}\": {error}")]
    Rate {
        /// Which.
        index: usize,
        /// Its name.
        name: String,
        /// As given.
        rate: Rate,
        /// Why.
        error: RateError,
    },
}

impl UserError {
    /// Which user, if it is one.
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::Name { index, .. }
            | Self::Twice { index, .. }
            | Self::Overlap { index, .. }
            | Self::TooManyLimits { index, .. }
            | Self::Rate { index, .. } => Some(*index),
            Self::TooMany { .. } => None,
        }
    }
}

const MAX_NAME: usize = 64;

impl User {
    /// A user as given; [`Users::new`] judges it.
    pub fn new(name: String, plan: Option<String>, sources: Vec<Prefix>, network: Vec<Rate>) -> Self {
        Self { name, plan, sources, network }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The plan it has its limits from, unless they are its own.
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// Its addresses. The longest prefix around an address decides whose it is.
    pub fn sources(&self) -> &[Prefix] {
        &self.sources
    }

    /// What all its addresses may send together.
    pub fn network(&self) -> &[Rate] {
        &self.network
    }

    fn problem(&self, index: usize) -> Option<UserError> {
        let typeable = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        let name = || self.name.clone();
        if self.name.is_empty() || self.name.len() > MAX_NAME || !self.name.chars().all(typeable) {
            return Some(UserError::Name { index, name: name() });
        }
        if self.network.len() > MAX_LIMITS {
            return Some(UserError::TooManyLimits { index, name: name(), count: self.network.len() });
        }
        self.network.iter().find_map(|rate| {
            rate.limit().err().map(|error| UserError::Rate { index, name: name(), rate: *rate, error })
        })
    }
}

impl Users {
    /// Checks everything and reports everything.
    pub fn new(users: Vec<User>) -> Result<Self, Vec<UserError>> {
        let mut errors: Vec<UserError> =
            users.iter().enumerate().filter_map(|(index, user)| user.problem(index)).collect();
        if users.len() > MAX_USERS {
            errors.push(UserError::TooMany { count: users.len() });
        }
        let mut names: HashMap<&str, ()> = HashMap::new();
        let mut owner: HashMap<Prefix, &str> = HashMap::new();
        for (index, user) in users.iter().enumerate() {
            if names.insert(&user.name, ()).is_some() {
                errors.push(UserError::Twice { index, name: user.name.clone() });
                continue;
            }
            for prefix in &user.sources {
                if let Some(other) = owner.insert(*prefix, &user.name) {
                    let (name, other) = (user.name.clone(), other.to_owned());
                    errors.push(UserError::Overlap { index, name, prefix: *prefix, other });
                }
            }
        }
        if errors.is_empty() { Ok(Self(users)) } else { Err(errors) }
    }

    /// All of them, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &User> + Clone {
        self.0.iter()
    }

    /// One by name.
    pub fn get(&self, name: &str) -> Option<&User> {
        self.0.iter().find(|user| user.name == name)
    }
}
