//! The attacked host with its two wires, and what runs on it.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use aya::Ebpf;
use rustix::thread::Pid;

use super::{Seats, server::Server};
use crate::{
    client_wire::{self, ClientWire},
    contestant::daemon::{self, Guard},
    lane::{Ground, Lane},
    place,
    rig::{self, Generator},
    shell, threaded,
    traffic::SYN_FRAME,
};

/// Fields are dropped in order: the server and the daemon leave before their wires go.
pub(super) struct Site {
    pub(super) server: Server,
    guard: Guard,
    /// The kernel thread that takes the flood from the wire.
    receiver: Pid,
    _programs: [Ebpf; 2],
    _clients: ClientWire,
    lane: Lane,
    pub(super) ground: Ground,
}

impl Site {
    /// A host under a policy, with every receiver on its seat; that of the flood on the CPU `judge`.
    pub(super) fn new(policy: &str, seats: Seats, judge: usize, limiter: &Path) -> Result<Self> {
        let ground = Ground::new()?;
        let lane = Lane::new(&ground, 0, SYN_FRAME)?;
        let clients = ClientWire::connect(&lane)?;
        for (name, value) in [("tcp_syncookies", 2), ("tcp_timestamps", 2)] {
            shell::output(lane.command("sysctl").args(["-q", "-w", &format!("net.ipv4.{name}={value}")]))?;
        }
        let guard = daemon::start(&lane, &[&lane.inlet, client_wire::HOST], policy, limiter)?;
        // A veth delivers what a program sends back (XDP_TX) only to an end that has a program itself. Answers to
        // forged sources end there; no namespace has a way out.
        let programs = [
            place::inside(ground.namespace(), || rig::attach("drop", &lane.outlet))?,
            place::inside(client_wire::NAMESPACE, || rig::attach("pass", client_wire::CLIENT))?,
        ];
        // The guests' wire is served where its packets are sent, which is the host's CPU already.
        let receiver = threaded::receiver(lane.namespace(), &lane.inlet)?;
        place::keep_on(Some(receiver), judge)?;
        place::keep_on(Some(threaded::receiver(ground.namespace(), &lane.outlet)?), seats.generator)?;
        let server = Server::start(lane.namespace(), seats.host)?;
        Ok(Self { server, guard, receiver, _programs: programs, _clients: clients, lane, ground })
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
    place::enter(client_wire::NAMESPACE)?;
    place::stay_on(seats.host)
}
