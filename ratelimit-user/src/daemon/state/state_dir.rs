//! The state directory: it has the control socket, and a lock so that there is one daemon per directory. `ratelimit serve` uses only the lock.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use crate::{
    control::{holder::LOCK, server::SOCKET},
    failure::{ExitCode, Failure},
};

/// A state directory that this process owns until it ends.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    /// The locked file. The kernel releases the lock when the process ends, however it ends.
    _lock: File,
}

impl StateDir {
    /// Makes the directory if it is missing, and locks it.
    pub(crate) fn claim(path: &Path) -> Result<Self, Failure> {
        Ok(Self { path: path.to_owned(), _lock: lock(path, "state directory", "--state")? })
    }

    /// Returns the path of the control socket.
    pub(in crate::daemon) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    /// Returns the path of the directory.
    pub(in crate::daemon) fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a directory if it is missing, and locks it for as long as the returned file is open. Messages call it `what`, and name the `option` for it.
pub(in crate::daemon) fn lock(path: &Path, what: &str, option: &str) -> Result<File, Failure> {
    let failed = |action: &str, error: &io::Error| {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
            // A file is in its place, or the path cannot be a directory.
            _ => ExitCode::Usage,
        };
        Failure::new(code, format!("cannot {action} {}: {error}", path.display()))
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|e| failed(&format!("make the {what}"), &e))?;
    // Another user who can write there must not make us open, or even empty, another file through a link.
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path.join(LOCK))
        .map_err(|e| failed(&format!("write in the {what}"), &e))?;
    // Whoever may read the file may lock it; an earlier build made it readable for everybody.
    lock.set_permissions(fs::Permissions::from_mode(0o600))
        .map_err(|e| failed(&format!("keep others out of the lock of the {what}"), &e))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Failure::usage(format!(
            "another daemon runs with the {what} {}; stop it first or choose another with {option}",
            path.display()
        ))),
        Err(TryLockError::Error(error)) => Err(failed(&format!("lock the {what}"), &error)),
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        // A socket without a listener would only confuse.
        let _absent = fs::remove_file(self.socket());
    }
}
