//! Replaces a file at once: a reader gets the old file or the new one, also after a power cut.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

use crate::log;

/// A new file on disk, beside the file that it will replace. It is removed if it is not committed.
#[derive(Debug)]
pub(in crate::daemon) struct Replacement {
    target: PathBuf,
    temporary: Option<PathBuf>,
}

impl Replacement {
    /// Writes the content beside the target, with the target's mode and owner, or with mode 0600 if there is no target. A symbolic
    /// link stays a link: the file that it points to is replaced.
    pub(in crate::daemon) fn prepare(target: &Path, content: &[u8]) -> io::Result<Self> {
        let target = fs::canonicalize(target).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(target.to_owned()),
            _ => Err(error),
        })?;
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        let temporary = target.with_file_name(format!(".{name}.ratelimit-{}", std::process::id()));
        // An earlier process with the same id may have left this file.
        let _absent = fs::remove_file(&temporary);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let replacement = Self { target, temporary: Some(temporary) };
        if let Ok(like) = fs::metadata(&replacement.target) {
            fchown(&file, Some(like.uid()), Some(like.gid()))?;
            file.set_permissions(Permissions::from_mode(like.mode() & 0o7777))?;
        }
        file.write_all(content)?;
        file.sync_all()?;
        Ok(replacement)
    }

    /// Puts the new file in the place of the old one.
    pub(in crate::daemon) fn commit(mut self) -> io::Result<()> {
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        fs::rename(&temporary, &self.target).inspect_err(|_| {
            let _gone = fs::remove_file(&temporary);
        })?;
        sync_directory(&self.target);
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _gone = fs::remove_file(temporary);
        }
    }
}

/// Removes a file, also on disk. A file that does not exist counts as removed.
pub(in crate::daemon) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            sync_directory(path);
            Ok(())
        }
    }
}

/// Writes the directory of a file to disk, which makes a change of its name last. A failure is only logged: the change has been
/// made, and only a power cut could undo it.
pub(super) fn sync_directory(path: &Path) {
    let Some(parent) = path.parent() else { return };
    if let Err(error) = File::open(parent).and_then(|directory| directory.sync_all()) {
        log::warning(format!("{} was changed, but may not outlive a power cut: {error}", path.display()));
    }
}

#[cfg(test)]
pub(in crate::daemon) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory for one test; dropping the value removes it.
    pub(in crate::daemon) struct Dir(pub(in crate::daemon) PathBuf);

    impl Dir {
        pub(in crate::daemon) fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("ratelimit-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }

        pub(in crate::daemon) fn names(&self) -> Vec<String> {
            let mut names: Vec<String> = fs::read_dir(&self.0)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_and_a_link_to_it_stays_a_link() {
        let dir = Dir::new("replaced");
        let (file, link) = (dir.0.join("policy.toml"), dir.0.join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        symlink("policy.toml", &link).unwrap();
        let replacement = Replacement::prepare(&link, b"new").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"old", "nothing happens before it is committed");
        replacement.commit().unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o644);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(dir.names(), ["link", "policy.toml"], "nothing is left over");
    }

    #[test]
    fn what_is_not_committed_leaves_no_trace_and_a_new_file_is_for_its_owner() {
        let dir = Dir::new("uncommitted");
        let file = dir.0.join("record");
        drop(Replacement::prepare(&file, b"x").unwrap());
        assert_eq!(dir.names(), [""; 0]);
        Replacement::prepare(&file, b"x").unwrap().commit().unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
        remove(&file).unwrap();
        remove(&file).unwrap();
        assert_eq!(dir.names(), [""; 0]);
    }
}
