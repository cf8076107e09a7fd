//! Users: names that share limits over all their addresses on this host.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use ratelimit_common::{
    abi::{MAX_LIMITS, list::MAX_LISTED, user::MAX_USERS},
    limit::rate::{Rate, RateError},
};

use super::{
    Chunk, Prefix, RequestLimit, Sources,
    fields::{Fields, followed, words},
    request_limit::{given, in_order},
    sources::difference,
};

/// One user: prefixes, and limits that all of them share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: String,
    plan: Option<String>,
    sources: Sources,
    /// The user's own limits, if it has any; they replace those of its plan.
    own: Option<Vec<Rate>>,
    /// The limits that apply: the user's own, or those of its plan.
    network: Vec<Rate>,
    /// The user's own limits of requests, if it has any; they replace those of its plan.
    requests: Option<Vec<RequestLimit>>,
}

/// Limits that each user on the plan has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    name: String,
    network: Vec<Rate>,
    requests: Vec<RequestLimit>,
}

/// All users of a policy, and the plans that they are on. Cheap to copy: versions of a policy share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    users: Arc<[User]>,
    plans: Arc<[Plan]>,
}

/// Why users or plans are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// A user without a name, or with a name that is hard to type.
    #[error("user name {name:?} is not one; use letters, digits, -, _, . and @, at most 64")]
    Name {
        /// Place of the user in the list of the file, from 0.
        index: usize,
        /// The rejected value, as the policy file has it.
        name: String,
    },
    /// Two users of one name.
    #[error("user {name:?} is there twice; give one another name")]
    Twice {
        /// Place of the user in the list of the file, from 0.
        index: usize,
        /// The rejected value, as the policy file has it.
        name: String,
    },
    /// More users than the maps hold.
    #[error("{count} users are more than there can be; use at most {MAX_USERS}")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// More prefixes than the maps hold.
    #[error("{count} {family} sources of users are more than there can be; use at most {MAX_LISTED}")]
    TooManySources {
        /// "IPv4" or "IPv6".
        family: &'static str,
        /// How many there are.
        count: usize,
    },
    /// A prefix that two users claim.
    #[error("source {prefix} of user {name:?} belongs to user {other:?} already; name it in one of them")]
    Overlap {
        /// Place of the user in the list of the file, from 0.
        index: usize,
        /// The name of the second user.
        name: String,
        /// The prefix that both users claim.
        prefix: Prefix,
        /// The user who has it already.
        other: String,
    },
    /// More limits of a user than a bucket has words.
    #[error(
        "user {name:?}: {count} network limits are more than there can be; use at most {MAX_LIMITS}, a soft or elastic one counts as two"
    )]
    TooManyLimits {
        /// Place of the user in the list of the file, from 0.
        index: usize,
        /// The name of the user.
        name: String,
        /// How many words the limits take.
        count: usize,
    },
    /// More limits of a plan than a bucket has words.
    #[error(
        "plan {name:?}: {count} network limits are more than there can be; use at most {MAX_LIMITS}, a soft or elastic one counts as two"
    )]
    PlanTooManyLimits {
        /// The name of the plan.
        name: String,
        /// How many words the limits take.
        count: usize,
    },
    /// A user on a plan that does not exist.
    #[error("user {name:?} is on plan {plan:?}, which is not there; there is {}", super::some(.known))]
    UnknownPlan {
        /// Place of the user in the list of the file, from 0.
        index: usize,
        /// The name of the user.
        name: String,
        /// The rejected value, as the policy file has it.
        plan: String,
        /// The names of the plans that exist.
        known: Vec<String>,
    },
    /// A limit that cannot be held.
    #[error("user {name:?}: limit \"{rate}\": {error}")]
    Rate {
        /// Place of the user in the list of the file, from 0.
        index: usize,
        /// The name of the user.
        name: String,
        /// The rejected value, as the policy file has it.
        rate: Rate,
        /// Why the limit cannot be held.
        error: RateError,
    },
}

impl UserError {
    /// The user's place in the list, if the error is about a user.
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::Name { index, .. }
            | Self::Twice { index, .. }
            | Self::Overlap { index, .. }
            | Self::TooManyLimits { index, .. }
            | Self::UnknownPlan { index, .. }
            | Self::Rate { index, .. } => Some(*index),
            Self::TooMany { .. } | Self::TooManySources { .. } | Self::PlanTooManyLimits { .. } => None,
        }
    }
}

const MAX_NAME: usize = 64;

impl User {
    /// The user in words, for `diff`, without its prefixes. A plan that changes gives one row, however many users are on it.
    pub(super) fn fields(&self) -> Fields {
        let network = self.own.as_deref().map_or_else(|| "of its plan".to_owned(), words);
        let mut fields = followed([("network", network)]);
        if let Some(plan) = &self.plan {
            fields.insert("plan".into(), (plan.clone(), false));
        }
        if let Some(limits) = &self.requests {
            fields.insert("limits".into(), (given(limits), false));
        }
        fields
    }

    /// A user with limits of its own or those of its plan, not checked yet: [`Users::new`] checks it.
    pub fn new(name: String, plan: Option<String>, sources: Sources, own: Option<Vec<Rate>>) -> Self {
        Self { name, plan, sources, own, network: Vec::new(), requests: None }
    }

    /// Gives the user request limits of its own instead of the plan's.
    pub fn with_requests(self, requests: Option<Vec<RequestLimit>>) -> Self {
        Self { requests, ..self }
    }

    /// The user's own limits of requests, if it has any.
    pub fn requests(&self) -> Option<&[RequestLimit]> {
        self.requests.as_deref()
    }

    /// The name of the user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user's plan. Its limits apply unless the user has its own.
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// Prefixes of the user. The longest prefix around an address decides whose the address is.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Limits on all addresses of the user together.
    pub fn network(&self) -> &[Rate] {
        &self.network
    }

    /// The user's own limits, which replace those of its plan.
    pub fn own(&self) -> Option<&[Rate]> {
        self.own.as_deref()
    }

    fn problem(&self, index: usize) -> Option<UserError> {
        let typeable = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        let name = || self.name.clone();
        if self.name.is_empty() || self.name.len() > MAX_NAME || !self.name.chars().all(typeable) {
            return Some(UserError::Name { index, name: name() });
        }
        let own = self.own.as_deref().unwrap_or_default();
        let places = Rate::places(own);
        if places > MAX_LIMITS {
            return Some(UserError::TooManyLimits { index, name: name(), count: places });
        }
        self.network.iter().find_map(|rate| {
            rate.limit().err().map(|error| UserError::Rate { index, name: name(), rate: *rate, error })
        })
    }
}

impl Plan {
    /// The plan in words, for `diff`.
    pub(super) fn fields(&self) -> Fields {
        let mut fields = followed([("network", words(&self.network))]);
        if !self.requests.is_empty() {
            fields.insert("limits".into(), (in_order(&self.requests), false));
        }
        fields
    }

    /// A plan, not checked yet: [`Users::new`] checks it.
    pub fn new(name: String, network: Vec<Rate>) -> Self {
        Self { name, network, requests: Vec::new() }
    }

    /// Gives the plan request limits.
    pub fn with_requests(self, requests: Vec<RequestLimit>) -> Self {
        Self { requests, ..self }
    }

    /// Limits of requests of each user on the plan, over all APIs.
    pub fn requests(&self) -> &[RequestLimit] {
        &self.requests
    }

    /// The name of the plan.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Limits of packets of each user on the plan.
    pub fn network(&self) -> &[Rate] {
        &self.network
    }
}

/// New prefixes that are searched for one by one; more than this many are checked by comparing all with all.
const FEW: usize = 1024;

impl Users {
    /// Checks all users and plans; the error lists every problem. `before` are users that have been checked: prefixes that both have are not
    /// compared again.
    pub fn new(mut users: Vec<User>, plans: Vec<Plan>, before: &Self) -> Result<Self, Vec<UserError>> {
        let mut errors = Vec::new();
        for plan in plans.iter().filter(|plan| Rate::places(&plan.network) > MAX_LIMITS) {
            let (name, count) = (plan.name.clone(), Rate::places(&plan.network));
            errors.push(UserError::PlanTooManyLimits { name, count });
        }
        let by_name: HashMap<&str, &Plan> = plans.iter().map(|plan| (plan.name.as_str(), plan)).collect();
        for (index, user) in users.iter_mut().enumerate() {
            let plan = user.plan.as_deref().map(|plan| (plan, by_name.get(plan)));
            if let Some((plan, None)) = plan {
                let (name, plan) = (user.name.clone(), plan.to_owned());
                let known = plans.iter().map(|plan| plan.name.clone()).collect();
                errors.push(UserError::UnknownPlan { index, name, plan, known });
            }
            let of_plan = plan.and_then(|(_, plan)| plan).map_or(&[][..], |plan| &plan.network);
            user.network = user.own.as_deref().unwrap_or(of_plan).to_vec();
        }
        errors.extend(users.iter().enumerate().filter_map(|(index, user)| user.problem(index)));
        if users.len() > MAX_USERS {
            errors.push(UserError::TooMany { count: users.len() });
        }
        for (family, v4) in [("IPv4", true), ("IPv6", false)] {
            let sources =
                users.iter().flat_map(|user| user.sources.iter()).filter(|prefix| prefix.is_v4() == v4);
            let count = sources.count();
            if count > MAX_LISTED as usize {
                errors.push(UserError::TooManySources { family, count });
            }
        }
        let mut names: HashSet<&str> = HashSet::new();
        for (index, user) in users.iter().enumerate().filter(|(_, user)| !names.insert(&user.name)) {
            errors.push(UserError::Twice { index, name: user.name.clone() });
        }
        if !before.makes_distinct(&users) {
            errors.extend(overlaps(&users));
        }
        if errors.is_empty() { Ok(Self { users: users.into(), plans: plans.into() }) } else { Err(errors) }
    }

    /// Whether no prefix occurs twice in `next`, as far as that follows cheaply from the fact that none occurs twice in these users.
    fn makes_distinct(&self, next: &[User]) -> bool {
        let (old, new) = (chunks(&self.users), chunks(next));
        let old_ones: HashSet<_> = old.iter().map(|chunk| chunk.identity()).collect();
        let mut new_ones = HashSet::new();
        if !new.iter().all(|chunk| new_ones.insert(chunk.identity())) {
            return false;
        }
        // Unchanged prefixes are distinct. New prefixes have to differ from each other and from all unchanged ones.
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

    /// All users, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &User> + Clone {
        self.users.iter()
    }

    /// The user of a name.
    pub fn get(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|user| user.name == name)
    }

    /// The user of these addresses: the longest prefix around them decides.
    pub fn of(&self, addresses: &Prefix) -> Option<&User> {
        let around = |user: &&User| {
            let covering = user.sources.iter().filter(|prefix| prefix.covers(addresses));
            covering.map(Prefix::len).max()
        };
        self.users.iter().filter(|user| around(user).is_some()).max_by_key(around)
    }

    /// All plans of the policy.
    pub fn plans(&self) -> impl ExactSizeIterator<Item = &Plan> + Clone {
        self.plans.iter()
    }

    /// The plan of a name.
    pub fn plan(&self, name: &str) -> Option<&Plan> {
        self.plans.iter().find(|plan| plan.name == name)
    }

    /// A copy with one user on another plan.
    pub fn with_plan(&self, name: &str, plan: &str) -> Result<Self, UserError> {
        self.changed(name, |user| user.plan = Some(plan.to_owned()))
    }

    /// A copy in which one user has other limits of its own; `None` gives the user those of its plan.
    pub fn with_own(&self, name: &str, own: Option<&[Rate]>) -> Result<Self, UserError> {
        self.changed(name, |user| user.own = own.map(<[Rate]>::to_vec))
    }

    /// A copy in which one plan has other limits.
    pub fn with_plan_network(&self, name: &str, network: &[Rate]) -> Result<Self, UserError> {
        let mut plans = self.plans.to_vec();
        plans.iter_mut().filter(|plan| plan.name == name).for_each(|plan| plan.network = network.to_vec());
        first_error(Self::new(self.users.to_vec(), plans, self))
    }

    fn changed(&self, name: &str, change: impl Fn(&mut User)) -> Result<Self, UserError> {
        let mut users = self.users.to_vec();
        users.iter_mut().filter(|user| user.name == name).for_each(change);
        first_error(Self::new(users, self.plans.to_vec(), self))
    }
}

/// Keeps the first error: a change of one thing has one error.
fn first_error(users: Result<Users, Vec<UserError>>) -> Result<Users, UserError> {
    users.map_err(|errors| errors.into_iter().next().unwrap_or(UserError::TooMany { count: 0 }))
}

fn chunks(users: &[User]) -> Vec<&Chunk> {
    users.iter().flat_map(|user| user.sources.chunks()).collect()
}

/// An error for every prefix that occurs twice. The second user of one name is left out: its name is reported already.
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn user(name: &str, sources: Vec<Prefix>) -> User {
        User::new(name.to_owned(), None, sources.into_iter().collect(), None)
    }

    #[test]
    fn more_users_or_sources_than_the_maps_hold_are_counted() {
        let many = |n: usize| (0..n).map(|n| user(&format!("u{n}"), Vec::new())).collect();
        assert!(Users::new(many(MAX_USERS), Vec::new(), &Users::default()).is_ok());
        let errors = Users::new(many(MAX_USERS + 1), Vec::new(), &Users::default()).unwrap_err();
        assert_eq!(errors, [UserError::TooMany { count: MAX_USERS + 1 }]);
        let sources = |n: u32| (0..n).map(|n| Prefix::masked(Ipv4Addr::from_bits(n).into(), 32)).collect();
        assert!(Users::new(vec![user("a", sources(MAX_LISTED))], Vec::new(), &Users::default()).is_ok());
        let errors =
            Users::new(vec![user("a", sources(MAX_LISTED + 1))], Vec::new(), &Users::default()).unwrap_err();
        assert_eq!(
            errors[0].to_string(),
            "1048577 IPv4 sources of users are more than there can be; use at most 1048576"
        );
    }

    #[test]
    fn the_longest_prefix_decides_whose_an_address_is() {
        let of = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Prefix>>();
        let users = vec![user("a", of(&["10.0.0.0/8", "10.1.1.0/24"])), user("b", of(&["10.1.0.0/16"]))];
        let users = Users::new(users, Vec::new(), &Users::default()).unwrap();
        for (address, name) in [
            ("10.1.1.1", Some("a")),
            ("10.1.2.1", Some("b")),
            ("10.2.0.1", Some("a")),
            ("11.0.0.1", None),
            ("::1", None),
        ] {
            assert_eq!(users.of(&address.parse().unwrap()).map(User::name), name, "{address}");
        }
    }
}
