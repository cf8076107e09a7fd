//! Everything that was read of a host, as plain data. A reading that failed has the reason in its place.

use std::{collections::BTreeSet, path::PathBuf};

use crate::dataplane::{
    features::{DeviceExtent, DriverSupport},
    sysctl::TcpSettings,
};

/// A value, or why there is none.
pub(super) type Perhaps<T> = Result<T, String>;

/// Everything that was read of a host.
#[derive(Clone, Debug)]
pub struct Readings {
    /// What the policy asks for.
    pub wishes: Wishes,
    /// The host itself.
    pub host: HostReadings,
    /// What was read of each interface.
    pub links: Vec<LinkReadings>,
    /// The store, if the policy names one.
    pub store: Option<StoreReadings>,
    /// Whether a daemon looks after the host.
    pub attendance: Attendance,
}

/// What a policy asks of a host; nothing without a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Whether some service answers SYNs with cookies.
    pub cookies: bool,
    /// Whether senders are answered, with cookies or with word of a refusal.
    pub answers: bool,
    /// Whether callers are answered on sockets.
    pub listens: bool,
    /// Whether some limit depends on headroom.
    pub elastic: bool,
}

/// The host itself.
#[derive(Clone, Debug)]
pub struct HostReadings {
    /// Release of the kernel.
    pub release: String,
    /// Whether programs may interleave, as on some PREEMPT_RT kernels.
    pub interleaves: bool,
    /// Where pins would be.
    pub pin: PathBuf,
    /// Why the place for pins is not on a BPF file system.
    pub pin_problem: Option<String>,
    /// The sysctl `net.core.bpf_jit_enable`.
    pub jit: Perhaps<u64>,
    /// The sysctl `net.core.bpf_jit_harden`.
    pub jit_harden: Perhaps<u64>,
    /// Whether the kernel describes its types.
    pub btf: bool,
    /// CPUs that packets can come in on.
    pub cpus: u32,
    /// Bytes that can be had without swapping.
    pub memory_available: Perhaps<u64>,
    /// Bytes that the control group may still take; `None` if it has no limit. Maps are charged to it.
    pub group_room: Perhaps<Option<u64>>,
    /// The clock source.
    pub clock: Perhaps<String>,
    /// What is not measured of headroom, as sentences.
    pub headroom_notes: Vec<String>,
    /// Settings of TCP.
    pub tcp: TcpSettings,
    /// How many files a process may open at most; `None` without a bound.
    pub open_files: Perhaps<Option<u64>>,
}

/// What was read of one interface.
#[derive(Clone, Debug)]
pub struct LinkReadings {
    /// Name of the interface.
    pub name: String,
    /// What made the interface: `veth`, `tun`, `bridge`, `bond`, `vlan`; nothing of a device that stands for itself.
    pub kind: Option<String>,
    /// The driver of the device behind the interface.
    pub driver: Option<String>,
    /// How frames of the interface are read, or why they cannot be.
    pub framing: Perhaps<&'static str>,
    /// Bytes of the largest packet.
    pub mtu: Option<u32>,
    /// The bond or bridge that the interface is a port of, with its kind.
    pub port_of: Option<(String, String)>,
    /// The interface that this one is a VLAN of.
    pub vlan_of: Option<String>,
    /// Whether the interface has VLANs.
    pub has_vlans: bool,
    /// Whether the other end of the interface takes what a program sends back, if the interface is one of a pair.
    pub takes_answers: Option<Perhaps<bool>>,
    /// What the driver can do for programs.
    pub support: Perhaps<DriverSupport>,
    /// Features of the device that are on.
    pub features: Perhaps<BTreeSet<String>>,
    /// Frames that a receive queue has room for.
    pub ring: Perhaps<DeviceExtent>,
    /// Receive queues in use, and how many the device has.
    pub queues: Perhaps<DeviceExtent>,
    /// The queue of each entry of the table by which the device spreads flows.
    pub spread: Perhaps<Vec<u32>>,
    /// What a virtio device was given by its hypervisor.
    pub virtio: Option<Virtio>,
    /// The program that is on the interface.
    pub occupant: Occupant,
}

/// What a virtio network device and its hypervisor agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Virtio {
    /// Whether the device joins packets before it hands them over.
    pub joins_packets: bool,
    /// Whether the guest can turn the joining off.
    pub can_be_turned_off: bool,
}

/// The program on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// There is no program.
    Nobody,
    /// Our program, and how it runs.
    Ours(&'static str),
    /// A program of which only the number is known, and why the name is not.
    Unnamed(u32, String),
    /// A program of somebody else: number and name.
    Foreign(u32, String),
}

/// What was read of the store.
#[derive(Clone, Debug)]
pub struct StoreReadings {
    /// Address of the store, without a password.
    pub address: String,
    /// Servers of the store, or why they cannot be asked.
    pub servers: Perhaps<Vec<ServerReadings>>,
}

/// One server of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReadings {
    /// Address of the server's socket.
    pub at: String,
    /// Version of the server.
    pub version: String,
    /// Whether the server takes writes.
    pub is_master: bool,
    /// Bytes that the server may hold; 0 is no limit.
    pub maxmemory: u64,
    /// What the server does when it holds `maxmemory` bytes.
    pub maxmemory_policy: String,
}

/// Whether a daemon looks after the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attendance {
    /// No daemon answers, and nothing is pinned.
    Nothing(String),
    /// No daemon answers, and these interfaces have our links.
    Abandoned(Vec<String>),
    /// A daemon answers, or why it does not.
    Daemon(Perhaps<DaemonReadings>),
}

/// A daemon that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonReadings {
    /// Process id of the daemon.
    pub pid: u32,
    /// Build of the daemon.
    pub build: String,
    /// Effective capabilities of the daemon, as the kernel's bits.
    pub capabilities: Perhaps<u64>,
    /// Warnings that the status of the daemon has.
    pub warnings: Vec<String>,
    /// Whether all interfaces of the daemon are protected.
    pub protected: bool,
}
