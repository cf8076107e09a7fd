//! The user that the front process runs as.

use std::fmt;

use crate::accounts::{self, GROUPS, USERS};

/// The user that packages make for the front.
const OWN: &str = "ratelimit";
/// The user that owns nothing on every system, and its number for systems without a list of users.
const NOBODY: &str = "nobody";
const NOBODYS: u32 = 65_534;

/// A user with the numbers that the kernel uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FrontUser {
    pub(super) name: String,
    pub(super) user: u32,
    pub(super) group: u32,
    /// Further groups that the user is in.
    pub(super) groups: Vec<u32>,
}

impl fmt::Display for FrontUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.name, self.user, self.group)
    }
}

/// Finds the user with this name; without a name `ratelimit` if there is such a user, else `nobody`.
pub(super) fn find(name: Option<&str>) -> Result<FrontUser, String> {
    let users = match name {
        Some(_) => accounts::read(USERS).map_err(|error| error.to_string())?,
        // A container may have no list of users.
        None => accounts::read(USERS).unwrap_or_default(),
    };
    choose(name, &users, &accounts::read(GROUPS).unwrap_or_default())
}

fn choose(name: Option<&str>, users: &str, groups: &str) -> Result<FrontUser, String> {
    let found = match name {
        Some(name) => named(name, users, groups),
        None => named(OWN, users, groups).or_else(|| named(NOBODY, users, groups)).or_else(|| {
            Some(FrontUser { name: NOBODY.to_owned(), user: NOBODYS, group: NOBODYS, groups: Vec::new() })
        }),
    };
    let found = found.ok_or_else(|| {
        let name = name.unwrap_or_default();
        format!("user {name:?} is not in /etc/passwd; make one with `useradd --system ratelimit`, or name another with --user")
    })?;
    match found.user {
        0 => Err(format!("user {:?} is root; name one without rights with --user", found.name)),
        _ => Ok(found),
    }
}

fn named(name: &str, users: &str, groups: &str) -> Option<FrontUser> {
    let (user, group) = accounts::user(users, name)?;
    Some(FrontUser { name: name.to_owned(), user, group, groups: accounts::groups_with(groups, name) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\nredis:x:110:118::/:/bin/false\nodd:x\n";
    const GROUPS: &str = "root:x:0:\nredis:x:118:\nstore:x:40:ratelimit,redis\ntls:x:41:redis\n";

    #[test]
    fn the_user_of_the_package_comes_first_and_nobody_stands_in_for_it() {
        assert_eq!(choose(None, USERS, GROUPS).unwrap().to_string(), "nobody (65534:65534)");
        assert_eq!(choose(None, "", "").unwrap().to_string(), "nobody (65534:65534)");
        let with = format!("{USERS}ratelimit:x:995:990::/:/bin/false\n");
        let own = choose(None, &with, GROUPS).unwrap();
        assert_eq!((own.user, own.group, own.groups), (995, 990, vec![40]));
        let redis = choose(Some("redis"), USERS, GROUPS).unwrap();
        assert_eq!((redis.user, redis.groups), (110, vec![40, 41]));
    }

    #[test]
    fn root_and_users_that_are_not_there_are_refused() {
        assert!(choose(Some("root"), USERS, GROUPS).unwrap_err().contains("is root"));
        for name in ["www", "odd", "red", ""] {
            assert!(choose(Some(name), USERS, GROUPS).unwrap_err().contains("not in /etc/passwd"), "{name}");
        }
    }
}
