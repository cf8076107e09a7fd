//! The group whose members may ask over the control socket.

use crate::{
    accounts::{self, GROUPS},
    control::admission::Readers,
    failure::Failure,
};

/// The group that packages make for readers.
const OWN: &str = "ratelimit";

/// Finds the group with this name; without a name `ratelimit`, if there is such a group.
pub(in crate::daemon) fn find(name: Option<&str>) -> Result<Option<Readers>, Failure> {
    let groups = accounts::read(GROUPS);
    let number = |name: &str| groups.as_ref().ok().and_then(|groups| accounts::group(groups, name));
    let readers = |name: &str| number(name).map(|group| Readers { name: name.to_owned(), group });
    match name {
        None => Ok(readers(OWN)),
        Some(name) => readers(name).map(Some).ok_or_else(|| {
            Failure::usage(format!(
                "group {name:?} is not in {GROUPS}; make one with `groupadd --system {OWN}`, or name another with --group"
            ))
        }),
    }
}
