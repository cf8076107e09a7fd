//! Which callers may give which orders at the control socket.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown},
    path::{Path, PathBuf},
};

use super::protocol::Order;
use crate::failure::{ExitCode, Failure};

/// The rights of other users to a file.
const OTHERS: u32 = 0o007;

/// A group whose members may ask the daemon, and change nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readers {
    /// The name of the group in messages.
    pub name: String,
    /// The number of the group.
    pub group: u32,
}

/// The rules of one control socket.
#[derive(Clone, Debug)]
pub struct Admission {
    socket: PathBuf,
    readers: Option<Readers>,
    /// The user of the front process, which may not use the control socket, whatever groups it is in.
    barred: Option<u32>,
}

/// The orders that a caller may give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallerRights {
    /// All orders: root, and the daemon's own user.
    Operator,
    /// Orders that only ask: a member of the group.
    Reader,
    /// No order: every other user.
    Outsider,
}

impl Admission {
    /// Lets the group use the socket and pass through its directory; the other files of the directory stay closed to the group.
    pub fn open(socket: &Path, readers: Option<Readers>, barred: Option<u32>) -> io::Result<Self> {
        if let Some(Readers { group, .. }) = &readers {
            let directory = socket.parent().unwrap_or(Path::new("/"));
            let mode = fs::metadata(directory)?.mode();
            lchown(directory, None, Some(*group))?;
            // The group may pass through the directory, but not list it.
            fs::set_permissions(directory, fs::Permissions::from_mode((mode & 0o700) | 0o010))?;
        }
        let admission = Self { socket: socket.to_owned(), readers, barred };
        admission.let_in(socket)?;
        Ok(admission)
    }

    /// Lets the group read and write a socket.
    pub(super) fn let_in(&self, socket: &Path) -> io::Result<()> {
        let Some(Readers { group, .. }) = &self.readers else { return Ok(()) };
        lchown(socket, None, Some(*group))?;
        fs::set_permissions(socket, fs::Permissions::from_mode(0o660))
    }

    /// Returns the path of the socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the rights of a caller, whose user and group the kernel has told.
    pub(super) fn standing(&self, uid: u32, gid: u32) -> CallerRights {
        let us = rustix::process::geteuid().as_raw();
        match &self.readers {
            _ if uid == 0 || uid == us => CallerRights::Operator,
            Some(readers) if Some(uid) != self.barred => {
                // The kernel tells only one group of the caller. A member by another of its groups got past the file's mode, provided that the mode admits nobody else.
                let is_in = gid == readers.group
                    || fs::symlink_metadata(&self.socket)
                        .is_ok_and(|file| file.gid() == readers.group && file.mode() & OTHERS == 0);
                if is_in { CallerRights::Reader } else { CallerRights::Outsider }
            }
            _ => CallerRights::Outsider,
        }
    }

    /// Refuses an order that a caller with these rights may not give.
    pub(super) fn require(&self, standing: CallerRights, order: &Order) -> Result<(), Failure> {
        match (standing, &self.readers) {
            (CallerRights::Operator, _) => Ok(()),
            (CallerRights::Reader, _) if order.only_asks() => Ok(()),
            (CallerRights::Reader, Some(Readers { name, .. })) => {
                Err(refusal(&format!("members of the group {name:?} may ask, and change nothing; use sudo")))
            }
            _ => Err(self.refuse_outsider()),
        }
    }

    /// Returns the refusal that names who may use the control socket.
    pub(super) fn refuse_outsider(&self) -> Failure {
        match &self.readers {
            None => refusal("only root and the daemon's own user may use the control socket; use sudo"),
            Some(Readers { name, .. }) => refusal(&format!(
                "only root and the daemon's own user may use the control socket, and members of the group {name:?} may ask; use sudo"
            )),
        }
    }
}

fn refusal(message: &str) -> Failure {
    Failure::new(ExitCode::NotPermitted, message)
}
