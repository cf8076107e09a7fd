//! The attacked host with its two wires, and what runs on it.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use aya::Ebpf;
use rustix::thread::Pid;

use super::{Seats, server::Server};
use crate::{
    contestant::daemon::{self, Guard},
    lane::{Ground, Lane, ip},
    place,
    rig::{self, Generator},
    shell, threaded,
    traffic::SYN_FRAME,
};

/// The namespace of the honest clients.
const GUESTS: &str = "guests";
/// The guests' end of their wire.
const GUEST: &str = "guest0";
/// The host's end of it. Short, as the kernel thread that serves it has the name in its own.
const HOST: &str = "host0";
/// Addresses of the guests: any of 198.19.0.0/16.
const GUESTS_V4: [u8; 2] = [198, 19];

/// Fields are dropped in order: the server and the daemon leave before their wires go.
pub(super) struct Site {
    pub(super) server: Server,
    guard: Guard,
    /// The kernel thread that takes the flood from the wire.
    receiver: Pid,
    _programs: [Ebpf; 2],
    _guests: Guests,
    lane: Lane,
    pub(super) ground: Ground,
}

/// The namespace of the guests, which goes with the value.
struct Guests(());

impl Drop for Guests {
    fn drop(&mut self) {
        let _gone = ip(&["-n", GUESTS, "link", "del", GUEST]);
        let _gone = ip(&["netns", "del", GUESTS]);
    }
}

impl Site {
    /// A host under a policy, with every receiver on its seat; that of the flood on the CPU `judge`.
    pub(super) fn new(policy: &str, seats: Seats, judge: usize, limiter: &Path) -> Result<Self> {
        let ground = Ground::new()?;
        let lane = Lane::new(&ground, 0, SYN_FRAME)?;
        ip(&["netns", "add", GUESTS])?;
        let guests = Guests(());
        connect(&lane).context("cannot make the wire of the honest clients")?;
        for (name, value) in [("tcp_syncookies", 2), ("tcp_timestamps", 2)] {
            shell::output(lane.command("sysctl").args(["-q", "-w", &format!("net.ipv4.{name}={value}")]))?;
        }
        let guard = daemon::start(&lane, &[&lane.inlet, HOST], policy, limiter)?;
        // A veth delivers what a program sends back (XDP_TX) only to an end that has a program itself. Answers to
        // forged sources end there; no namespace has a way out.
        let programs = [
            place::inside(ground.namespace(), || rig::attach("drop", &lane.outlet))?,
            place::inside(GUESTS, || rig::attach("pass", GUEST))?,
        ];
        // The guests' wire is served where its packets are sent, which is the host's CPU already.
        let receiver = threaded::receiver(lane.namespace(), &lane.inlet)?;
        place::keep_on(Some(receiver), judge)?;
        place::keep_on(Some(threaded::receiver(ground.namespace(), &lane.outlet)?), seats.generator)?;
        let server = Server::start(lane.namespace(), seats.host)?;
        Ok(Self { server, guard, receiver, _programs: programs, _guests: guests, lane, ground })
    }

    /// What makes a flood for this host.
    pub(super) fn generator(&self, make: impl FnOnce(&str) -> Result<Generator> + Send) -> Result<Generator> {
        place::inside(self.ground.namespace(), || make(&self.lane.outlet))
    }

    /// Packets of the flood that the limiter has judged so far.
    pub(super) fn arrived(&self, generator: &Generator) -> Result<u64> {
        place::inside(self.ground.namespace(), || generator.arrived())
    }

    /// CPU time that the flood has cost so far, the limiter and what it passed included.
    pub(super) fn flood_ran_for(&self) -> Result<Duration> {
        place::ran_for(self.receiver)
    }

    /// SYNs that the limiter has answered so far.
    pub(super) fn answered(&self) -> Result<u64> {
        let stats = self.guard.stats(&self.lane)?;
        stats["replies_by_reason"]["cookie_sent"].as_u64().context("`ratelimit stats` has no cookie_sent")
    }
}

/// Moves the calling thread to the honest clients.
pub(super) fn join_guests(seats: Seats) -> Result<()> {
    place::enter(GUESTS)?;
    place::stay_on(seats.host)
}

/// Where an honest client comes from: another address for each number.
pub(super) fn guest_address(number: u16) -> [u8; 4] {
    let [high, low] = number.to_be_bytes();
    [GUESTS_V4[0], GUESTS_V4[1], high, low]
}

fn connect(lane: &Lane) -> Result<()> {
    let host = lane.namespace();
    ip(&["-n", host, "link", "add", HOST, "type", "veth", "peer", "name", GUEST, "netns", GUESTS])?;
    ip(&["-n", host, "address", "add", "198.18.1.1/24", "dev", HOST])?;
    ip(&["-n", GUESTS, "address", "add", "198.18.1.2/24", "dev", GUEST])?;
    for (namespace, interface) in [(host, HOST), (GUESTS, GUEST), (GUESTS, "lo")] {
        ip(&["-n", namespace, "link", "set", interface, "up"])?;
    }
    // All of them are the guests' own addresses, without one being added for each.
    ip(&["-n", GUESTS, "route", "add", "local", "198.19.0.0/16", "dev", "lo"])?;
    ip(&["-n", GUESTS, "route", "add", "198.18.0.0/24", "via", "198.18.1.1"])?;
    ip(&["-n", host, "route", "add", "198.19.0.0/16", "via", "198.18.1.2"])?;
    // The stack answers forged SYNs too, as long as it gets them; out of the same interface.
    ip(&["-n", host, "neigh", "add", "198.18.0.9", "lladdr", "02:00:00:00:00:02", "dev", &lane.inlet])?;
    ip(&["-n", host, "route", "add", "default", "via", "198.18.0.9", "dev", &lane.inlet])?;
    // A wire carries frames and not the 64 KB portions that two ends of a veth hand each other.
    let guests = format!("--net=/run/netns/{GUESTS}");
    shell::run("nsenter", [guests.as_str(), "ethtool", "-K", GUEST, "tso", "off"]).map(drop)
}
