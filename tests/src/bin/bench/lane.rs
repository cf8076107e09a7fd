//! The wire to one contestant: a namespace for it, and a veth pair from the generator's namespace into it.

use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// The namespace where packets are made.
const GENERATOR: &str = "generator";
/// The address that the generator's packets go to. It is not an address of the receiving host, which does not forward:
/// what a contestant passes is routed and then dropped without an answer, at the same cost for all.
pub(crate) const DESTINATION_V4: [u8; 4] = [198, 18, 0, 2];
/// An address of the receiving host itself.
pub(crate) const HOST_V4: [u8; 4] = [198, 18, 0, 1];
/// The IPv6 address that packets go to, which only a route makes silent.
pub(crate) const DESTINATION_V6: [u16; 8] = [0x2001, 2, 0, 0, 0, 0, 0, 2];
/// The MAC address of every receiving interface: netfilter only sees what is addressed to the host.
pub(crate) const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 1];

/// What a wire carries unless it is told otherwise, without the Ethernet header.
const MTU: usize = 1_500;
const ETHERNET: usize = 14;

/// The generator's namespace.
#[derive(Debug)]
pub(crate) struct Ground(());

impl Ground {
    pub(crate) fn new() -> Result<Self> {
        ip(&["netns", "add", GENERATOR])?;
        Ok(Self(()))
    }

    pub(crate) fn namespace(&self) -> &'static str {
        GENERATOR
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _gone = ip(&["netns", "del", GENERATOR]);
    }
}

/// A contestant's namespace and its wire.
#[derive(Debug)]
pub(crate) struct Lane {
    namespace: String,
    /// The receiving interface, in the contestant's namespace.
    pub(crate) inlet: String,
    /// The sending interface, in the generator's namespace.
    pub(crate) outlet: String,
}

impl Lane {
    /// For frames up to this length.
    pub(crate) fn new(_ground: &Ground, number: usize, frame_len: usize) -> Result<Self> {
        let lane = Self {
            namespace: format!("contestant-{number}"),
            // Short: the kernel thread that serves it has the name in its own, which has fifteen characters.
            inlet: format!("rlb{number}"),
            outlet: format!("out{number}"),
        };
        ip(&["netns", "add", &lane.namespace])?;
        let mtu = MTU.max(frame_len - ETHERNET).to_string();
        lane.build(number, &mtu).with_context(|| format!("cannot make the wire {}", lane.inlet))?;
        Ok(lane)
    }

    fn build(&self, number: usize, mtu: &str) -> Result<()> {
        let mac = MAC.map(|byte| format!("{byte:02x}")).join(":");
        // One queue: the packets of one sender arrive on one CPU.
        ip(&[
            ["-n", GENERATOR, "link", "add", &self.outlet, "numtxqueues", "1", "numrxqueues", "1"].as_slice(),
            &["type", "veth", "peer", "name", &self.inlet, "address", &mac, "numtxqueues", "1"],
            &["numrxqueues", "1", "netns", &self.namespace],
        ]
        .concat())?;
        let own = &self.namespace;
        ip(&["-n", own, "link", "set", "lo", "up"])?;
        ip(&["-n", own, "address", "add", "198.18.0.1/24", "dev", &self.inlet])?;
        ip(&["-n", own, "link", "set", &self.inlet, "mtu", mtu, "up"])?;
        ip(&["-n", GENERATOR, "link", "set", &self.outlet, "mtu", mtu, "up"])?;
        let silent = std::net::Ipv6Addr::from(DESTINATION_V6).to_string();
        ip(&["-n", own, "-6", "route", "add", "blackhole", &silent])?;
        // For packets from a socket, which are routed: every lane leads to the same address, so it takes a metric each.
        let metric = (number + 1).to_string();
        // IPv6 wants to have one to choose from, even for packets that bring their own.
        let own_v6 = format!("2001:2:0:1::{metric}/128");
        ip(&["-n", GENERATOR, "address", "add", &own_v6, "dev", &self.outlet, "nodad"])?;
        for destination in [std::net::Ipv4Addr::from(DESTINATION_V4).to_string(), silent] {
            ip(&["-n", GENERATOR, "route", "add", &destination, "dev", &self.outlet, "metric", &metric])?;
            ip(&["-n", GENERATOR, "neigh", "add", &destination, "lladdr", &mac, "dev", &self.outlet])?;
        }
        Ok(())
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A command in the contestant's namespace. nsenter rather than `ip netns exec`, which would also replace /sys and
    /// with it every BPF file system below.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace)).arg(program);
        command
    }

    /// Without an XDP program, a veth takes packets in bulk only when GRO is on.
    pub(crate) fn turn_gro_on(&self) -> Result<()> {
        shell::output(self.command("ethtool").args(["-K", &self.inlet, "gro", "on"])).map(drop)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // The namespace itself lives on until the last process in it ends; the wire must not.
        let _gone = ip(&["-n", GENERATOR, "link", "del", &self.outlet]);
        let _gone = ip(&["netns", "del", &self.namespace]);
    }
}

pub(crate) fn ip(words: &[&str]) -> Result<()> {
    shell::run("ip", words).map(drop)
}
