//! Sockets in the file system: made with the rights that they are to have, and never in the place of anything else.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, lchown},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use crate::{
    accounts::{self, GROUPS},
    policy::SocketRights,
};

/// The file of a socket. It is removed when the value is dropped, if it is still the file that was made.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and number of the file.
    made: (u64, u64),
}

/// Makes a socket. A socket of this user that an earlier run left is replaced; any other file with the name stays, and is an error.
pub(super) fn bind(path: &Path, rights: &SocketRights) -> io::Result<(UnixListener, SocketFile)> {
    let group = rights.group.as_deref().map(number_of).transpose()?;
    make_way(path)?;
    // Only the owner may connect until the rights are as they should be.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener?;
    let meta = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_owned(), made: (meta.dev(), meta.ino()) };
    if let (Some(group), Some(name)) = (group, &rights.group) {
        lchown(path, None, Some(group)).map_err(|error| {
            let why = format!(
                "cannot give it to socket_group {name:?}: {error}; be a member of the group, or root"
            );
            io::Error::new(error.kind(), why)
        })?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(rights.mode))?;
    Ok((listener, file))
}

/// Removes a socket that nobody listens on, if it belongs to this user.
fn make_way(path: &Path) -> io::Result<()> {
    let meta = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let us = rustix::process::geteuid().as_raw();
    let stays = |what: &str| {
        let why = format!("there is {what}, which stays; name another path, or remove it");
        Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
    };
    if !meta.file_type().is_socket() {
        return stays(kind(meta.file_type()));
    }
    if meta.uid() != us {
        return stays(&format!("a socket of user {}, not of user {us}", meta.uid()));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on it already")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => stays(&format!("a socket that is not like ours ({error})")),
    }
}

fn kind(kind: fs::FileType) -> &'static str {
    match kind {
        kind if kind.is_file() => "a regular file",
        kind if kind.is_dir() => "a directory",
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_fifo() => "a pipe",
        _ => "a device",
    }
}

/// Returns the number of a group that is given by name, or by number.
fn number_of(group: &str) -> io::Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    accounts::group(&accounts::read(GROUPS)?, group).ok_or_else(|| {
        let why = format!("socket_group {group:?} is not in {GROUPS}; use a group that is, or its number");
        io::Error::new(io::ErrorKind::NotFound, why)
    })
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = |meta: &fs::Metadata| (meta.dev(), meta.ino()) == self.made;
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| is_ours(&meta)) {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// A directory of one test, which goes with the value.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ratelimit-socket-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    fn refused(path: &Path) -> String {
        bind(path, &SocketRights::default()).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_socket_of_ours_stays_where_it_is() {
        let directory = Directory::new("stays");
        let at = |name: &str| directory.0.join(name);
        fs::write(at("file"), "precious").unwrap();
        fs::create_dir(at("directory")).unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        drop(UnixListener::bind(at("theirs")).unwrap());
        let _datagrams = UnixDatagram::bind(at("datagrams")).unwrap();
        let cases = [
            ("file", "there is a regular file, which stays"),
            ("directory", "there is a directory, which stays"),
            ("link", "there is a symbolic link, which stays"),
            ("datagrams", "there is a socket that is not like ours"),
        ];
        for (name, sentence) in cases {
            let said = refused(&at(name));
            assert!(said.starts_with(sentence), "{name}: {said}");
            assert!(fs::symlink_metadata(at(name)).is_ok(), "{name} is there");
        }
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "precious");
        // Giving files to another user takes rights.
        if lchown(at("theirs"), Some(65_534), None).is_ok() {
            assert!(refused(&at("theirs")).starts_with("there is a socket of user 65534, not of user"));
            assert!(at("theirs").exists());
        }
    }

    #[test]
    fn a_socket_that_an_earlier_run_left_is_replaced_and_one_in_use_is_not() {
        let directory = Directory::new("left");
        let path = directory.0.join("s");
        drop(UnixListener::bind(&path).unwrap());
        let (_listener, file) = bind(&path, &SocketRights::default()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
        assert_eq!(refused(&path), "another process listens on it already");
        drop(file);
        assert!(!path.exists(), "a start that fails leaves nothing behind");
    }

    #[test]
    fn mode_and_group_are_those_of_the_policy() {
        let directory = Directory::new("rights");
        let path = directory.0.join("s");
        let own = fs::metadata(&directory.0).unwrap().gid();
        let rights = SocketRights { mode: 0o600, group: Some(own.to_string()) };
        let (_listener, _file) = bind(&path, &rights).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.mode() & 0o777, meta.gid()), (0o600, own));
        let nobody = SocketRights { group: Some("no such group".to_owned()), ..rights };
        let other = directory.0.join("other");
        let said = bind(&other, &nobody).map(drop).unwrap_err().to_string();
        assert!(said.starts_with("socket_group \"no such group\" is not in /etc/group"), "{said}");
        assert!(!other.exists());
    }
}
