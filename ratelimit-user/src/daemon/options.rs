//! What the operator asked for on the command line.

use std::path::PathBuf;

use crate::{
    dataplane::{attach::GenericMode, trace::Image},
    policy::address::StoreAddress,
};

/// The arguments of `ratelimit run`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policy file.
    pub policy: PathBuf,
    /// Interfaces; those of the policy when empty.
    pub interfaces: Vec<String>,
    /// The state directory.
    pub state: PathBuf,
    /// The pin directory.
    pub pin: PathBuf,
    /// The kernel's process file system.
    pub proc: PathBuf,
    /// The store that hosts share, instead of the policy's.
    pub redis: Option<StoreAddress>,
    /// What generic mode is answered with.
    pub generic: GenericMode,
    /// Where blocks and allows are kept.
    pub keep: Keep,
    /// The kernel program.
    pub image: Image,
    /// The user that the front process runs as, if the operator names one.
    pub user: Option<String>,
    /// The group whose members may ask, if the operator names one.
    pub group: Option<String>,
    /// Where a supervisor starts the front process, if the daemon is not to do it itself.
    pub front: Option<PathBuf>,
    /// Options of the log, as words of a command line.
    pub log: Vec<String>,
}

/// A directory that outlives a reboot.
#[derive(Clone, Debug)]
pub enum Keep {
    /// The directory that the operator names.
    Named(PathBuf),
    /// The usual one; the state directory if it cannot be used.
    Usual(PathBuf),
    /// The state directory, which the operator has named.
    WithState,
}
