//! What a policy says of one API, made ready for questions.

use std::{collections::HashMap, sync::Arc};

use super::tally::Tally;
use crate::policy::{Escalation, KeyPart};

/// Values by names of the policy. Callers cannot choose these names, so the hasher need not withstand chosen ones.
pub(super) type Named<T> = HashMap<String, T, foldhash::fast::RandomState>;

/// The rules of one API.
#[derive(Debug)]
pub struct ApiRules {
    /// The name of the API, as counters have it.
    pub name: Arc<str>,
    /// The index of the API in the policy file.
    pub index: usize,
    /// Decisions by outcome, kept through changes of the policy.
    pub tally: Arc<Tally>,
    /// When a caller is blocked.
    pub escalation: Option<Escalation>,
    pub(super) key: Vec<KeyPart>,
    pub(super) allowance: usize,
    pub(super) by_plan: Named<usize>,
    pub(super) by_user: Named<usize>,
    pub(super) prefixes: Prefixes,
    pub(super) login: Option<LoginRules>,
}

/// The limits of a login, as indices of allowances.
#[derive(Debug)]
pub(super) struct LoginRules {
    pub(super) per_ip: usize,
    pub(super) per_user_and_ip: usize,
    pub(super) per_user: usize,
    pub(super) known_for_us: u64,
    /// The seed of the keys that remember which user has logged in from which address.
    pub(super) known_seed: u64,
}

/// The prefix lengths that addresses are counted by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefixes {
    pub(super) ipv4: u8,
    pub(super) ipv6: u8,
}
