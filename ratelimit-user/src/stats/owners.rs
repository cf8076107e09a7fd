//! Finds the users of addresses, thousands of times a second.

use std::collections::{BTreeSet, HashMap};

use crate::policy::{Prefix, Users};

/// The prefixes of users, looked up by length: as many steps as there are different lengths, however many prefixes there are.
#[derive(Debug)]
pub struct Owners<'u> {
    names: HashMap<Prefix, &'u str>,
    /// The prefix lengths that users have, the longest first.
    lengths: Vec<u8>,
}

impl<'u> Owners<'u> {
    /// The prefixes of these users.
    pub fn of(users: &'u Users) -> Self {
        let mut names = HashMap::new();
        for user in users.iter() {
            names.extend(user.sources().iter().map(|prefix| (*prefix, user.name())));
        }
        let lengths: BTreeSet<u8> = names.keys().map(Prefix::len).collect();
        Self { names, lengths: lengths.into_iter().rev().collect() }
    }

    /// The user with the longest prefix around these addresses.
    pub fn owner(&self, addresses: &Prefix) -> Option<&'u str> {
        let around = self.lengths.iter().filter(|length| **length <= addresses.len());
        around.filter_map(|length| self.names.get(&addresses.shortened(*length))).next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config, policy::User};

    #[test]
    fn the_longest_prefix_decides_as_it_does_in_the_policy() {
        let policy = "[source]\nlimits = [\"10 packets/s\"]\n\
            [[user]]\nname = \"wide\"\nsources = [\"203.0.113.0/24\", \"2001:db8::/32\"]\nnetwork = [\"10 packets/s\"]\n\
            [[user]]\nname = \"one\"\nsources = [\"203.0.113.7\", \"2001:db8:7::/48\"]\nnetwork = [\"10 packets/s\"]\n";
        let policy = config::parse(policy, "policy.toml").unwrap().policy;
        let owners = Owners::of(policy.users());
        for (source, owner) in [
            ("203.0.113.7", Some("one")),
            ("203.0.113.8", Some("wide")),
            ("203.0.114.7", None),
            ("2001:db8:7:1::/64", Some("one")),
            ("2001:db8:8:1::/64", Some("wide")),
            ("0.0.0.0/0", None),
        ] {
            let source: Prefix = source.parse().unwrap();
            assert_eq!(owners.owner(&source), owner);
            assert_eq!(policy.users().of(&source).map(User::name), owner, "{source}");
        }
    }
}
