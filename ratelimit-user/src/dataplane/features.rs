//! Reads features of a device and its driver that act on packets before the program sees them, over the netlink of ethtool and of network devices.

use std::{collections::BTreeSet, io};

use super::generic_netlink::{NetlinkFamily, attribute, attributes, find, number};

/// Commands and attributes of ethtool's netlink (linux/ethtool_netlink.h).
const FEATURES_GET: u8 = 11;
const RINGS_GET: u8 = 15;
const CHANNELS_GET: u8 = 17;
const RSS_GET: u8 = 38;
/// The header attribute, with the flag for nested attributes, without which the kernel refuses it.
const HEADER: u16 = 0x8000 | 1;
const DEVICE_INDEX: u16 = 1;
const ACTIVE: u16 = 4;
const BITS: u16 = 3;
const BIT_NAME: u16 = 2;
const RINGS_RX_MAX: u16 = 2;
const RINGS_RX: u16 = 6;
const CHANNELS_RX_MAX: u16 = 2;
const CHANNELS_COMBINED_MAX: u16 = 5;
const CHANNELS_RX: u16 = 6;
const CHANNELS_COMBINED: u16 = 9;
const RSS_TABLE: u16 = 4;

/// Commands and attributes of the netlink of network devices (linux/netdev.h).
const DEVICE_GET: u8 = 1;
const XDP_FEATURES: u16 = 3;
/// The flag that the driver runs programs itself (`NETDEV_XDP_ACT_BASIC`).
const BASIC: u64 = 1;
/// The flag that the driver hands frames of several pieces to a program (`NETDEV_XDP_ACT_RX_SG`).
const RECEIVES_PIECES: u64 = 1 << 5;

/// The feature that takes VLAN tags out of received packets and keeps them beside the packets.
pub const RX_VLAN: &str = "rx-vlan-hw-parse";

/// Whether VLAN tags of received packets are kept apart, where the program does not see them. If the kernel does not say, this is
/// true: then no packet is answered, which harms less than answers to the wrong network.
pub fn keeps_tags_apart(index: u32) -> bool {
    active(index).map_or(true, |features| features.contains(RX_VLAN))
}

/// A number of queues or frames: how many the device has, and how many it could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceExtent {
    /// The number that the device has now.
    pub now: u32,
    /// The largest number that the device could have.
    pub most: u32,
}

/// Features of a driver that programs depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverSupport {
    /// Whether the driver runs programs itself.
    pub native: bool,
    /// Whether the driver hands frames of several pieces to programs.
    pub pieces: bool,
}

/// Returns the names of the features that are on.
pub fn active(index: u32) -> io::Result<BTreeSet<String>> {
    let features = ethtool(index, FEATURES_GET)?;
    let bits = find(&features, ACTIVE).and_then(|set| find(set, BITS)).unwrap_or_default();
    // A bit set without a mask lists only the bits that are on.
    let names = attributes(bits).filter_map(|(_, bit)| find(bit, BIT_NAME));
    let text = |name: &[u8]| String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
    Ok(names.map(text).collect())
}

/// Returns the number of frames that each receive queue has room for.
pub fn ring(index: u32) -> io::Result<DeviceExtent> {
    let rings = ethtool(index, RINGS_GET)?;
    extent(number(&rings, RINGS_RX), number(&rings, RINGS_RX_MAX))
}

/// Returns the number of receive queues: those that also send, and those that only receive.
pub fn queues(index: u32) -> io::Result<DeviceExtent> {
    let channels = ethtool(index, CHANNELS_GET)?;
    let sum = |one, other| {
        let counts = [number(&channels, one), number(&channels, other)];
        let known: Vec<u32> = counts.into_iter().flatten().collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    extent(sum(CHANNELS_RX, CHANNELS_COMBINED), sum(CHANNELS_RX_MAX, CHANNELS_COMBINED_MAX))
}

/// Returns the queue of each entry in the table by which the device spreads flows (RSS). Kernels since 6.2 tell it.
pub fn spread(index: u32) -> io::Result<Vec<u32>> {
    let rss = ethtool(index, RSS_GET)?;
    let table = find(&rss, RSS_TABLE).ok_or_else(|| io::Error::other("the driver has no table"))?;
    let (entries, _) = table.as_chunks();
    Ok(entries.iter().map(|entry| u32::from_ne_bytes(*entry)).collect())
}

/// Returns the features of the driver. Kernels since 6.3 tell them.
pub fn driver_support(index: u32) -> io::Result<DriverSupport> {
    // The attribute for the index of the device has the number that it has in ethtool's netlink.
    let device =
        NetlinkFamily::find("netdev")?.ask(DEVICE_GET, &attribute(DEVICE_INDEX, &index.to_ne_bytes()))?;
    let features =
        find(&device, XDP_FEATURES).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
    let features = features.ok_or_else(|| io::Error::other("the kernel does not say"))?;
    Ok(DriverSupport { native: features & BASIC != 0, pieces: features & RECEIVES_PIECES != 0 })
}

fn ethtool(index: u32, command: u8) -> io::Result<Vec<u8>> {
    let device = attribute(HEADER, &attribute(DEVICE_INDEX, &index.to_ne_bytes()));
    NetlinkFamily::find("ethtool")?.ask(command, &device)
}

fn extent(now: Option<u32>, most: Option<u32>) -> io::Result<DeviceExtent> {
    match (now, most) {
        (Some(now), Some(most)) if most > 0 => Ok(DeviceExtent { now, most }),
        _ => Err(io::Error::other("the driver does not say")),
    }
}
