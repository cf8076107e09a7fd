//! Users: whose addresses share limits of their own on this host.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use ratelimit_common::{
    abi::{MAX_LIMITS, user::MAX_USERS},
    limit::rate::{Rate, RateError},
};

use super::{Chunk, Prefix, Sources, sources::difference};

/// One user: prefixes, and limits that all of them share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: String,
    plan: Option<String>,
    sources: Sources,
    network: Vec<Rate>,
}

/// All users of a policy. Cheap to copy: versions of a policy share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(Arc<[User]>);

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
    pub fn new(name: String, plan: Option<String>, sources: Sources, network: Vec<Rate>) -> Self {
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
    pub fn sources(&self) -> &Sources {
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

/// Prefixes that are looked for among all others one by one; with more than that, all are compared with all.
const FEW: usize = 1024;

impl Users {
    /// Checks everything and reports everything. `before` are users that have been checked: what both have in common is not
    /// checked again.
    pub fn new(users: Vec<User>, before: &Self) -> Result<Self, Vec<UserError>> {
        let mut errors: Vec<UserError> =
            users.iter().enumerate().filter_map(|(index, user)| user.problem(index)).collect();
        if users.len() > MAX_USERS {
            errors.push(UserError::TooMany { count: users.len() });
        }
        let mut names: HashSet<&str> = HashSet::new();
        for (index, user) in users.iter().enumerate().filter(|(_, user)| !names.insert(&user.name)) {
            errors.push(UserError::Twice { index, name: user.name.clone() });
        }
        if !before.makes_distinct(&users) {
            errors.extend(overlaps(&users));
        }
        if errors.is_empty() { Ok(Self(users.into())) } else { Err(errors) }
    }

    /// Whether no prefix of `next` is there twice, as far as that is easily told from the fact that none is here.
    fn makes_distinct(&self, next: &[User]) -> bool {
        let (old, new) = (chunks(&self.0), chunks(next));
        let old_ones: HashSet<_> = old.iter().map(|chunk| chunk.identity()).collect();
        let mut new_ones = HashSet::new();
        if !new.iter().all(|chunk| new_ones.insert(chunk.identity())) {
            return false;
        }
        // What stays is distinct, and so is what goes. What comes has to differ from itself and from everything that is there.
        let come = difference(old, new.iter().copied()).come;
        let mut fresh: Vec<&Prefix> = new
            .iter()
            .filter(|chunk| !old_ones.contains(&chunk.identity()))
            .flat_map(|chunk| chunk.prefixes())
            .collect();
        fresh.sort_unstable();
        let stays = || new.iter().filter(|chunk| old_ones.contains(&chunk.identity()));
        come.len() <= FEW
            && fresh.is_sorted_by(|one, next| one < next)
            && !come.iter().any(|prefix| stays().any(|chunk| chunk.prefixes().binary_search(prefix).is_ok()))
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

fn chunks(users: &[User]) -> Vec<&Chunk> {
    users.iter().flat_map(|user| user.sources.chunks()).collect()
}

/// Every prefix that is there twice. A user that is there twice is wrong as a whole.
fn overlaps(users: &[User]) -> Vec<UserError> {
    let mut errors = Vec::new();
    let mut names = HashSet::new();
    let mut owner: HashMap<Prefix, &str> = HashMap::new();
    for (index, user) in users.iter().enumerate().filter(|(_, user)| names.insert(&user.name)) {
        for prefix in user.sources.iter() {
            if let Some(other) = owner.insert(*prefix, &user.name) {
                let (name, other) = (user.name.clone(), other.to_owned());
                errors.push(UserError::Overlap { index, name, prefix: *prefix, other });
            }
        }
    }
    errors
}
