//! Where the honest clients of the attacked host are: a namespace with a wire of its own to that host.

use anyhow::{Context, Result};

use crate::{
    lane::{Lane, ip},
    shell,
};

/// The namespace of the honest clients.
pub(crate) const NAMESPACE: &str = "clients";
/// The clients' end of their wire.
pub(crate) const CLIENT: &str = "client0";
/// The host's end of it. Short, as the kernel thread that serves it has the name in its own.
pub(crate) const HOST: &str = "host0";
/// The neighbour on the generator's wire to which the host sends what has no other route.
pub(crate) const NEIGHBOUR: [&str; 2] = ["198.18.0.9", "02:00:00:00:00:02"];

/// The namespace of the clients, which goes with the value.
pub(crate) struct ClientWire(());

impl Drop for ClientWire {
    fn drop(&mut self) {
        let _gone = ip(&["-n", NAMESPACE, "link", "del", CLIENT]);
        let _gone = ip(&["netns", "del", NAMESPACE]);
    }
}

impl ClientWire {
    /// Makes the namespace and its wire to the receiving host of a lane.
    pub(crate) fn connect(lane: &Lane) -> Result<Self> {
        ip(&["netns", "add", NAMESPACE])?;
        let wire = Self(());
        connect(lane).context("cannot make the wire of the honest clients")?;
        Ok(wire)
    }
}

/// Where an honest client comes from: another address of 198.19.0.0/16 for each number.
pub(crate) fn address(number: u16) -> [u8; 4] {
    let [high, low] = number.to_be_bytes();
    [198, 19, high, low]
}

fn connect(lane: &Lane) -> Result<()> {
    let host = lane.namespace();
    ip(&["-n", host, "link", "add", HOST, "type", "veth", "peer", "name", CLIENT, "netns", NAMESPACE])?;
    ip(&["-n", host, "address", "add", "198.18.1.1/24", "dev", HOST])?;
    ip(&["-n", NAMESPACE, "address", "add", "198.18.1.2/24", "dev", CLIENT])?;
    for (namespace, interface) in [(host, HOST), (NAMESPACE, CLIENT), (NAMESPACE, "lo")] {
        ip(&["-n", namespace, "link", "set", interface, "up"])?;
    }
    // All of them are the clients' own addresses, without one being added for each.
    ip(&["-n", NAMESPACE, "route", "add", "local", "198.19.0.0/16", "dev", "lo"])?;
    ip(&["-n", NAMESPACE, "route", "add", "198.18.0.0/24", "via", "198.18.1.1"])?;
    ip(&["-n", host, "route", "add", "198.19.0.0/16", "via", "198.18.1.2"])?;
    // The stack answers forged SYNs too, as long as it gets them; out of the same interface.
    let [neighbour, mac] = NEIGHBOUR;
    ip(&["-n", host, "neigh", "add", neighbour, "lladdr", mac, "dev", &lane.inlet])?;
    ip(&["-n", host, "route", "add", "default", "via", neighbour, "dev", &lane.inlet])?;
    // A wire carries frames and not the 64 KB portions that two ends of a veth hand each other.
    let namespace = format!("--net=/run/netns/{NAMESPACE}");
    shell::run("nsenter", [namespace.as_str(), "ethtool", "-K", CLIENT, "tso", "off"]).map(drop)
}
