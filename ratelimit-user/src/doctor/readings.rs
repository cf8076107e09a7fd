//! Everything that was read of a host, as plain data. A failed reading has the reason in its place.

use std::{collections::BTreeSet, path::PathBuf};

use crate::{
    dataplane::{
        features::{DeviceExtent, DriverSupport},
        sysctl::TcpSettings,
    },
    store::redis::Persistence,
};

/// A value, or the reason why it could not be read.
pub(super) type Perhaps<T> = Result<T, String>;

/// Everything that was read of a host.
#[derive(Clone, Debug)]
pub struct Readings {
    /// The wishes of the policy.
    pub wishes: Wishes,
    /// The readings of the host itself.
    pub host: HostReadings,
    /// The readings of each interface.
    pub links: Vec<LinkReadings>,
    /// The readings of the store, if the policy names one.
    pub store: Option<StoreReadings>,
    /// Whether a daemon looks after the host.
    pub attendance: Attendance,
}

/// What a policy needs of a host; all false without a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Whether some service answers SYNs with cookies.
    pub cookies: bool,
    /// Whether the policy sends replies: cookies or rejections.
    pub answers: bool,
    /// Whether the policy has listeners for questions.
    pub listens: bool,
    /// Whether some limit depends on headroom.
    pub elastic: bool,
    /// Whether the store counts requests over more than an hour.
    pub counts_for_long: bool,
}

/// The readings of the host itself.
#[derive(Clone, Debug)]
pub struct HostReadings {
    /// Release of the kernel.
    pub release: String,
    /// Whether programs may preempt each other on a CPU, as on some PREEMPT_RT kernels.
    pub interleaves: bool,
    /// The directory for pins.
    pub pin: PathBuf,
    /// Why the directory for pins is not on a BPF file system.
    pub pin_problem: Option<String>,
    /// The sysctl `net.core.bpf_jit_enable`.
    pub jit: Perhaps<u64>,
    /// The sysctl `net.core.bpf_jit_harden`.
    pub jit_harden: Perhaps<u64>,
    /// Whether the kernel has type information (BTF).
    pub btf: bool,
    /// CPUs that packets can come in on.
    pub cpus: u32,
    /// Bytes of memory that are available without swapping.
    pub memory_available: Perhaps<u64>,
    /// Bytes that the control group, to which maps are charged, may still take; `None` if it has no limit.
    pub group_room: Perhaps<Option<u64>>,
    /// The name of the clock source.
    pub clock: Perhaps<String>,
    /// Sentences about what cannot be measured of headroom.
    pub headroom_notes: Vec<String>,
    /// Settings of TCP.
    pub tcp: TcpSettings,
    /// Names of services with SYN cookies whose packets the host sends elsewhere, with the cause.
    pub translated: Perhaps<Vec<(String, String)>>,
    /// How many files a process may open at most; `None` without a bound.
    pub open_files: Perhaps<Option<u64>>,
}

/// The readings of one interface.
#[derive(Clone, Debug)]
pub struct LinkReadings {
    /// Name of the interface.
    pub name: String,
    /// The kind of a software link: `veth`, `tun`, `bridge`, `bond`, `vlan`; `None` for a device.
    pub kind: Option<String>,
    /// The driver of the device behind the interface.
    pub driver: Option<String>,
    /// How frames of the interface begin, or why such frames cannot be read.
    pub framing: Perhaps<&'static str>,
    /// The largest packet in bytes.
    pub mtu: Option<u32>,
    /// The bond or bridge that the interface is a port of, with its kind.
    pub port_of: Option<(String, String)>,
    /// The interface that this one is a VLAN of.
    pub vlan_of: Option<String>,
    /// Whether the interface has VLANs.
    pub has_vlans: bool,
    /// Whether the other end of a pair of interfaces accepts replies of a program; `None` if the interface is not one of a pair.
    pub takes_answers: Option<Perhaps<bool>>,
    /// What the driver supports for XDP programs.
    pub support: Perhaps<DriverSupport>,
    /// Features of the device that are on.
    pub features: Perhaps<BTreeSet<String>>,
    /// Frames that a receive queue has room for, and the most that it could have.
    pub ring: Perhaps<DeviceExtent>,
    /// Receive queues in use, and how many the device has.
    pub queues: Perhaps<DeviceExtent>,
    /// The queue of each entry in the device's table for spreading flows.
    pub spread: Perhaps<Vec<u32>>,
    /// What a virtio device and its hypervisor agreed on.
    pub virtio: Option<Virtio>,
    /// The program on the interface.
    pub occupant: Occupant,
}

/// What a virtio network device and its hypervisor agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Virtio {
    /// Whether the device merges packets before it hands them over.
    pub joins_packets: bool,
    /// Whether the guest can turn the merging off.
    pub can_be_turned_off: bool,
}

/// The program on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// There is no program.
    Nobody,
    /// This project's program, and its mode.
    Ours(&'static str),
    /// A program of which only the number is known, with the reason why its name is not.
    Unnamed(u32, String),
    /// Another program: its number and name.
    Foreign(u32, String),
}

/// The readings of the store.
#[derive(Clone, Debug)]
pub struct StoreReadings {
    /// Address of the store, without a password.
    pub address: String,
    /// The servers of the store, or why they could not be asked.
    pub servers: Perhaps<Vec<ServerReadings>>,
}

/// One server of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReadings {
    /// Address of the server's socket.
    pub at: String,
    /// Version of the server.
    pub version: String,
    /// Whether the server accepts writes.
    pub is_master: bool,
    /// The server's memory limit in bytes; 0 for no limit.
    pub maxmemory: u64,
    /// What the server does when it reaches `maxmemory`.
    pub maxmemory_policy: String,
    /// What the server writes to disk.
    pub persistence: Persistence,
}

/// Whether a daemon protects the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attendance {
    /// No daemon answers, and nothing is pinned.
    Nothing(String),
    /// No daemon answers, and these interfaces have links of this project.
    Abandoned(Vec<String>),
    /// The daemon that answers, or why it could not be asked.
    Daemon(Perhaps<DaemonReadings>),
}

/// The readings of a daemon that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonReadings {
    /// Process id of the daemon.
    pub pid: u32,
    /// Build of the daemon.
    pub build: String,
    /// Effective capabilities of the daemon, as the kernel's bits.
    pub capabilities: Perhaps<u64>,
    /// Warnings in the daemon's status.
    pub warnings: Vec<String>,
    /// Whether all interfaces of the daemon are protected.
    pub protected: bool,
}
