//! Users and groups by name, from this host's `/etc/passwd` and `/etc/group`.

use std::{fs, io};

/// The file with the users of this host.
pub(crate) const USERS: &str = "/etc/passwd";
/// The file with the groups of this host.
pub(crate) const GROUPS: &str = "/etc/group";

/// Reads one of the two files.
pub(crate) fn read(file: &str) -> io::Result<String> {
    fs::read_to_string(file)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot read {file}: {error}")))
}

/// The number of a user and of its own group, from lines of `name:password:number:group:…`.
pub(crate) fn user(users: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields = fields_of(users, name)?;
    Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The number of a group, from lines of `name:password:number:members`.
pub(crate) fn group(groups: &str, name: &str) -> Option<u32> {
    fields_of(groups, name)?.nth(1)?.parse().ok()
}

/// The groups that name a user as a member.
pub(crate) fn groups_with(groups: &str, member: &str) -> Vec<u32> {
    let is_in =
        |line: &&str| line.rsplit(':').next().is_some_and(|all| all.split(',').any(|one| one == member));
    groups.lines().filter(is_in).filter_map(|line| line.split(':').nth(2)?.parse().ok()).collect()
}

/// The fields behind the name, in the line of that name.
fn fields_of<'a>(lines: &'a str, name: &str) -> Option<std::str::Split<'a, char>> {
    lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(fields)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_their_names() {
        let lines = "root:x:0:\nwww-data:x:33:nginx,caddy\nbroken\nodd:x:many:\n";
        assert_eq!(group(lines, "www-data"), Some(33));
        assert_eq!(group(lines, "root"), Some(0));
        assert_eq!((group(lines, "www"), group(lines, "broken"), group(lines, "odd")), (None, None, None));
        assert_eq!((groups_with(lines, "caddy"), groups_with(lines, "cad")), (vec![33], vec![]));
    }
}
