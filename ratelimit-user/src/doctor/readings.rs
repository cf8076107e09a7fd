//! Everything that was read of a host, as plain data. A reading that failed has the reason in its place.

use std::{collections::BTreeSet, path::PathBuf};

use crate::dataplane::{
    features::{DeviceExtent, DriverSupport},
    sysctl::TcpSettings,
};

/// A value, or why there is none.
pub(super) type Perhaps<T> = Result<T, String>;

/// What was read.
#[derive(Clone, Debug)]
pub struct Readings {
    /// What the policy asks for.
    pub wishes: Wishes,
    /// The host itself.
    pub host: HostReadings,
    /// Interfaces.
    pub links: Vec<LinkReadings>,
    /// The store, if the policy names one.
    pub store: Option<StoreReadings>,
    /// Who looks after the host.
    pub attendance: Attendance,
}

/// What a policy asks of a host; nothing without a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Services answer SYNs with cookies.
    pub cookies: bool,
    /// Senders are answered, with cookies or with word of a refusal.
    pub answers: bool,
    /// Callers are answered on sockets.
    pub listens: bool,
    /// Limits depend on headroom.
    pub elastic: bool,
}

/// The host itself.
#[derive(Clone, Debug)]
pub struct HostReadings {
    /// Release of the kernel.
    pub release: String,
    /// Programs may interleave on this PREEMPT_RT kernel.
    pub interleaves: bool,
    /// Where pins would be.
    pub pin: PathBuf,
    /// Why that is not on a BPF file system.
    pub pin_problem: Option<String>,
    /// `net.core.bpf_jit_enable`.
    pub jit: Perhaps<u64>,
    /// `net.core.bpf_jit_harden`.
    pub jit_harden: Perhaps<u64>,
    /// The kernel describes its types.
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
    /// How many files a process may open at most; `None` if any number.
    pub open_files: Perhaps<Option<u64>>,
}

/// One interface.
#[derive(Clone, Debug)]
pub struct LinkReadings {
    /// Its name.
    pub name: String,
    /// What made it: `veth`, `tun`, `bridge`, `bond`, `vlan`; nothing of a device that stands for itself.
    pub kind: Option<String>,
    /// The driver of the device behind it.
    pub driver: Option<String>,
    /// How its frames are read, or why they cannot be.
    pub framing: Perhaps<&'static str>,
    /// Bytes of the largest packet.
    pub mtu: Option<u32>,
    /// The bond or bridge that it is a port of, with its kind.
    pub port_of: Option<(String, String)>,
    /// The interface that it is a VLAN of.
    pub vlan_of: Option<String>,
    /// It has VLANs.
    pub has_vlans: bool,
    /// Whether its other end takes what a program sends back, if it is one of a pair.
    pub takes_answers: Option<Perhaps<bool>>,
    /// What the driver can do for programs.
    pub support: Perhaps<DriverSupport>,
    /// Features that are on.
    pub features: Perhaps<BTreeSet<String>>,
    /// Frames that a receive queue has room for.
    pub ring: Perhaps<DeviceExtent>,
    /// Receive queues.
    pub queues: Perhaps<DeviceExtent>,
    /// The queue of each entry of the table by which the device spreads flows.
    pub spread: Perhaps<Vec<u32>>,
    /// What a virtio device was given by its hypervisor.
    pub virtio: Option<Virtio>,
    /// The program that is on it.
    pub occupant: Occupant,
}

/// What a virtio network device and its hypervisor agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Virtio {
    /// The device joins packets before it hands them over.
    pub joins_packets: bool,
    /// The guest can turn that off.
    pub can_be_turned_off: bool,
}

/// The program on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// None.
    Nobody,
    /// Ours, and how it runs.
    Ours(&'static str),
    /// One of which only its number is known, and why.
    Unnamed(u32, String),
    /// Somebody else's: number and name.
    Foreign(u32, String),
}

/// The store.
#[derive(Clone, Debug)]
pub struct StoreReadings {
    /// Where it is, without a password.
    pub address: String,
    /// Its servers, or why they cannot be asked.
    pub servers: Perhaps<Vec<ServerReadings>>,
}

/// One server of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReadings {
    /// Its socket.
    pub at: String,
    /// Its version.
    pub version: String,
    /// It takes writes.
    pub is_master: bool,
    /// Bytes that it may hold; 0 is no limit.
    pub maxmemory: u64,
    /// What it does when that is reached.
    pub maxmemory_policy: String,
}

/// Who looks after the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attendance {
    /// Nobody, and nothing is pinned.
    Nothing(String),
    /// Nobody, and these interfaces have our links.
    Abandoned(Vec<String>),
    /// Somebody answers, or why not.
    Daemon(Perhaps<DaemonReadings>),
}

/// A daemon that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonReadings {
    /// Its process id.
    pub pid: u32,
    /// Its build.
    pub build: String,
    /// Its effective capabilities, as the kernel's bits.
    pub capabilities: Perhaps<u64>,
    /// Warnings that its status has.
    pub warnings: Vec<String>,
    /// Whether all its interfaces are protected.
    pub protected: bool,
}
