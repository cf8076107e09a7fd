//! Errors between the daemon and the kernel, as sentences for an operator.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::failure::{ExitCode, Failure};

/// What a source takes, measured: its entry, a quarter of one for windows, and their hash buckets.
const SOURCE_BYTES: u64 = 185;
/// What the daemon, its program and all maps of fixed size take, measured.
const BASE_MIB: u64 = 40;

/// Returns the memory for a number of sources, in MiB.
fn mebibytes(sources: u32) -> u64 {
    (u64::from(sources) * SOURCE_BYTES).div_ceil(1 << 20)
}

/// The capabilities that loading programs and making maps takes.
pub(super) const FOR_PROGRAMS: &str = "CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON";

/// A failure of the data plane.
#[derive(Debug, thiserror::Error)]
pub enum DataplaneError {
    /// The process is not root and lacks a capability.
    #[error(
        "{what} needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; this process runs as user {uid} and lacks {missing}; use sudo"
    )]
    NoRights {
        /// What was tried.
        what: &'static str,
        /// The effective user of the process.
        uid: u32,
        /// Names of the missing capabilities.
        missing: String,
    },
    /// The kernel refused an action that takes capabilities.
    #[error("the kernel refused {action}; the process needs {needed}")]
    NotPermitted {
        /// What was tried.
        action: String,
        /// Names of the capabilities that it takes.
        needed: &'static str,
    },
    /// The kernel is older than the programs need.
    #[error("needs kernel {}.{} or newer, this is {found}", .floor.0, .floor.1)]
    KernelTooOld {
        /// Major and minor number of the oldest kernel that works.
        floor: (u32, u32),
        /// Release of the running kernel.
        found: String,
    },
    /// The pin directory is on another kind of file system.
    #[error(
        "no BPF file system at {}; mount one (mount -t bpf bpf {}) or choose a directory on one with --pin",
        .path.display(), .mount_point.display()
    )]
    NoBpfFs {
        /// The pin directory that was asked for.
        path: PathBuf,
        /// The directory on which a BPF file system could be mounted.
        mount_point: PathBuf,
    },
    /// Another daemon uses the pin directory.
    #[error(
        "another daemon uses the pin directory {}; stop it, or name its --state if you mean to talk to it", .path.display()
    )]
    PinDirTaken {
        /// The directory that belongs to another daemon.
        path: PathBuf,
    },
    /// The interface does not exist.
    #[error("interface {name:?} does not exist; this host has {}", .known.join(", "))]
    NoInterface {
        /// The name that was asked for.
        name: String,
        /// The interfaces that exist.
        known: Vec<String>,
    },
    /// A program of somebody else is on the interface.
    #[error(
        "interface {interface:?} already runs the XDP program {program:?} (id {id}), which is not ours; \
         it is left alone: stop whoever attached it (or ip link set dev {interface} xdp off, or bpftool link detach), \
         or choose another interface"
    )]
    ForeignProgram {
        /// The interface that was to be guarded.
        interface: String,
        /// The program's name.
        program: String,
        /// The program's id.
        id: u32,
    },
    /// A program of ours is on the interface, and its link is not under this pin directory.
    #[error(
        "interface {interface:?} already runs a program of ratelimit (id {id}) whose pins are not under {}: {}", .pin.display(), cure(.elsewhere.as_deref(), interface)
    )]
    PinnedElsewhere {
        /// The interface that was to be guarded.
        interface: String,
        /// The program's id.
        id: u32,
        /// The pin directory that was asked for.
        pin: PathBuf,
        /// The pin directory that has its link, if one was found.
        elsewhere: Option<PathBuf>,
    },
    /// The program cannot read frames of the interface.
    #[error("interface {interface:?} cannot be guarded: {reason}")]
    LinkType {
        /// The interface that was to be guarded.
        interface: String,
        /// Why the frames cannot be read.
        reason: String,
    },
    /// Native mode was demanded, and the interface cannot run it.
    #[error(
        "interface {interface:?} cannot run XDP in native mode ({reason}), and --require-native asks for it; \
         without the flag generic mode is used, at about a tenth of the speed"
    )]
    NotNative {
        /// The interface that was to be guarded.
        interface: String,
        /// The error of the driver.
        reason: String,
    },
    /// Links were unpinned, and the kernel has not taken the program off yet.
    #[error(
        "the program still runs on {} after {seconds} s: its pin is removed, and the program goes when the kernel, or whoever holds the link open, lets go \
         of it; look again with: ip link show dev {}", .interfaces.join(", "), .interfaces[0]
    )]
    StillRuns {
        /// The interfaces, at least one.
        interfaces: Vec<String>,
        /// Seconds that the process waited.
        seconds: u64,
    },
    /// The driver or kernel refused to attach in any mode.
    #[error("cannot attach to interface {interface:?}: {reason}")]
    Attach {
        /// The interface that was to be guarded.
        interface: String,
        /// The error of the kernel.
        reason: String,
    },
    /// The kernel refused the program or a map.
    #[error("cannot load the kernel program: {reason}")]
    Load {
        /// The line of the kernel's error that matters.
        reason: String,
    },
    /// The kernel has too little memory. Maps are made in no particular order, so it does not matter which of them failed.
    #[error(
        "the kernel has not enough memory: source.table_entries = {sources} takes about {} MiB, everything else about {BASE_MIB}; \
         use a smaller table, or raise the memory limit of the daemon's cgroup if it has one", mebibytes(*.sources)
    )]
    NoMemory {
        /// The size of the table of sources.
        sources: u32,
    },
    /// A map operation failed.
    #[error("cannot {action}: {}", whole_chain(source))]
    Map {
        /// What was tried.
        action: String,
        /// The kernel's answer.
        source: aya::maps::MapError,
    },
    /// The list of one family is full.
    #[error(
        "the {family} list is full at {max} prefixes (blocks, the allow list and the sources of users together); remove some, or name a wider prefix"
    )]
    ListFull {
        /// "IPv4" or "IPv6".
        family: &'static str,
        /// The capacity of the map.
        max: u32,
    },
    /// An operation on a file, a socket or netlink failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// Returns advice for an interface whose link is under another pin directory.
fn cure(elsewhere: Option<&Path>, interface: &str) -> String {
    match elsewhere {
        Some(pin) => format!(
            "it is pinned under {0}; take it over with --pin {0}, or end it first with: ratelimit detach --iface {interface} --pin {0} (and \
             --state, if its daemon runs)",
            pin.display()
        ),
        None => "no pin of it is to be seen from here; use the --pin that it was started with, or stop the process that holds it".to_owned(),
    }
}

impl DataplaneError {
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action: action.into(), source }
    }

    pub(crate) fn map(action: impl Into<String>) -> impl FnOnce(aya::maps::MapError) -> Self {
        move |source| Self::Map { action: action.into(), source }
    }
}

impl From<DataplaneError> for Failure {
    fn from(error: DataplaneError) -> Self {
        let code = match &error {
            DataplaneError::NoRights { .. } | DataplaneError::NotPermitted { .. } => ExitCode::NotPermitted,
            DataplaneError::NoInterface { .. }
            | DataplaneError::ListFull { .. }
            | DataplaneError::PinDirTaken { .. } => ExitCode::Usage,
            DataplaneError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ExitCode::NotPermitted
            }
            DataplaneError::KernelTooOld { .. }
            | DataplaneError::NoBpfFs { .. }
            | DataplaneError::ForeignProgram { .. }
            | DataplaneError::PinnedElsewhere { .. }
            | DataplaneError::LinkType { .. }
            | DataplaneError::NotNative { .. }
            | DataplaneError::Attach { .. }
            | DataplaneError::StillRuns { .. }
            | DataplaneError::Load { .. }
            | DataplaneError::NoMemory { .. }
            | DataplaneError::Map { .. }
            | DataplaneError::Io { .. } => ExitCode::Unsupported,
        };
        Self::new(code, error)
    }
}

/// Returns the text of an error with all its causes, which the outer errors often leave out.
pub(super) fn whole_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}
